# SPDX-License-Identifier: MIT
"""librailmux from Python, as much of it as the measurements need (include/railmux/railmux.h).

Addresses and streams are plain numbers, so it works with and without torch:

    session = railmux.Session()
    comm = session.comm(session.new_id(), ranks, rank, gpu)
    comm.all_reduce(x.data_ptr(), x.data_ptr(), x.numel(), railmux.BFLOAT16, stream=torch.cuda.current_stream().cuda_stream)
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
from collections.abc import Iterator
from typing import Any

INT8, UINT8, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64, BFLOAT16 = range(10)
SUM, PROD, MAX, MIN, AVG = range(5)
ID_BYTES = 128
OPEN_TIMEOUT_MS = 20000
JOIN_TIMEOUT_MS = 60000
DEVICE_CALLS = 1  # flags of a communicator: RMX_COMM_DEVICE_CALLS,
ORDERED_TRANSFERS = 2  # RMX_COMM_ORDERED_TRANSFERS
# Its own dependencies come with it; whatever has these names once loaded is taken for all.
DEPENDENCIES = ("libprotobuf-c.so.1",)


class RailmuxError(RuntimeError):
    """A call's result was not RMX_OK."""

    def __init__(self, code: int, name: str, sentence: str) -> None:
        super().__init__(f"{name}: {sentence}")
        self.code = code
        self.name = name


class _SessionOptions(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("socket", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("timeout_ms", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


class _CommOptions(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("gpu", ctypes.c_int32),
        ("timeout_ms", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("cancel", ctypes.c_void_p),
        ("flags", ctypes.c_uint32),
        ("max_blocks", ctypes.c_uint32),
    ]


class _Request(ctypes.Structure):
    _fields_ = [("opaque", ctypes.c_uint64 * 12)]


class _Id(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * ID_BYTES)]


_library: ctypes.CDLL | None = None
_P, _S, _U = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "rmx_error_name": (ctypes.c_char_p, [ctypes.c_int]),
    "rmx_last_error": (ctypes.c_char_p, []),
    "rmx_session_open": (ctypes.c_int, [_P, _P]),
    "rmx_session_close": (None, [_P]),
    "rmx_session_gpu_count": (_U, [_P]),
    "rmx_session_backend": (ctypes.c_char_p, [_P]),
    "rmx_session_gpu_pci": (ctypes.c_char_p, [_P, _U]),
    "rmx_mem_alloc": (ctypes.c_int, [_P, _S, _P]),
    "rmx_mem_free": (ctypes.c_int, [_P, _P]),
    "rmx_buffer_register": (ctypes.c_int, [_P, _P, _S]),
    "rmx_buffer_unregister": (ctypes.c_int, [_P, _P]),
    "rmx_get_id": (ctypes.c_int, [_P, _P]),
    "rmx_comm_create": (ctypes.c_int, [_P, _P, _U, _U, _P, _P]),
    "rmx_comm_destroy": (ctypes.c_int, [_P]),
    "rmx_comm_abort": (ctypes.c_int, [_P]),
    "rmx_comm_error": (ctypes.c_int, [_P]),
    "rmx_all_reduce": (ctypes.c_int, [_P, _P, _P, _S, _U, _U, _P]),
    "rmx_all_reduce_start": (ctypes.c_int, [_P, _P, _P, _S, _U, _U, _P, _P]),
    "rmx_wait_stream": (ctypes.c_int, [_P, _P]),
    "rmx_all_gather": (ctypes.c_int, [_P, _P, _P, _S, _U, _P]),
    "rmx_reduce_scatter": (ctypes.c_int, [_P, _P, _P, _S, _U, _U, _P]),
    "rmx_broadcast": (ctypes.c_int, [_P, _P, _P, _S, _U, _U, _P]),
    "rmx_all_to_all": (ctypes.c_int, [_P, _P, _P, _S, _U, _P]),
    "rmx_barrier": (ctypes.c_int, [_P, _P]),
    "rmx_send": (ctypes.c_int, [_P, _P, _S, _U, _U, _P]),
    "rmx_recv": (ctypes.c_int, [_P, _P, _S, _U, _U, _P]),
    "rmx_group_start": (ctypes.c_int, []),
    "rmx_group_end": (ctypes.c_int, []),
}


def library() -> ctypes.CDLL:
    """librailmux of the folder BENCH_LIB, or the installed one. What else it needs may lie in sys beside that folder."""
    global _library
    if _library is None:
        folder = os.environ.get("BENCH_LIB")
        for name in DEPENDENCIES:
            beside = pathlib.Path(folder).parent / "sys" / name if folder else None
            if beside and beside.exists():
                ctypes.CDLL(str(beside), mode=ctypes.RTLD_GLOBAL)
        loaded = ctypes.CDLL(str(pathlib.Path(folder) / "librailmux.so.0") if folder else "librailmux.so.0")
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
        _library = loaded
    return _library


def check(code: int) -> None:
    if code:
        name, sentence = library().rmx_error_name(code).decode(), library().rmx_last_error().decode()
        raise RailmuxError(code, name, sentence)


@contextlib.contextmanager
def group() -> Iterator[None]:
    """The calls within are one group (rmx_group_start(3))."""
    check(library().rmx_group_start())
    ended = False
    try:
        yield
        ended = True
    finally:
        code = library().rmx_group_end()
    if ended:
        check(code)


class Request:
    """What was started, and is to be waited for once."""

    def __init__(self) -> None:
        self.memory = _Request()

    def wait_stream(self, stream: int | None = None) -> None:
        check(library().rmx_wait_stream(ctypes.byref(self.memory), stream or None))


class Comm:
    """One rank of a communicator."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def all_reduce(self, source: int, to: int, count: int, kind: int, redop: int = SUM, stream: int | None = None) -> None:
        check(library().rmx_all_reduce(self.handle, source, to, count, kind, redop, stream or None))

    def all_reduce_start(
        self, source: int, to: int, count: int, kind: int, redop: int = SUM, stream: int | None = None
    ) -> Request:
        made = Request()
        memory = ctypes.byref(made.memory)
        check(library().rmx_all_reduce_start(self.handle, source, to, count, kind, redop, stream or None, memory))
        return made

    def all_gather(self, source: int, to: int, count: int, kind: int, stream: int | None = None) -> None:
        check(library().rmx_all_gather(self.handle, source, to, count, kind, stream or None))

    def reduce_scatter(self, source: int, to: int, count: int, kind: int, redop: int = SUM, stream: int | None = None) -> None:
        check(library().rmx_reduce_scatter(self.handle, source, to, count, kind, redop, stream or None))

    def broadcast(self, source: int, to: int, count: int, kind: int, root: int = 0, stream: int | None = None) -> None:
        check(library().rmx_broadcast(self.handle, source, to, count, kind, root, stream or None))

    def all_to_all(self, source: int, to: int, count: int, kind: int, stream: int | None = None) -> None:
        check(library().rmx_all_to_all(self.handle, source, to, count, kind, stream or None))

    def send(self, source: int, count: int, kind: int, peer: int, stream: int | None = None) -> None:
        check(library().rmx_send(self.handle, source, count, kind, peer, stream or None))

    def recv(self, to: int, count: int, kind: int, peer: int, stream: int | None = None) -> None:
        check(library().rmx_recv(self.handle, to, count, kind, peer, stream or None))

    def barrier(self, stream: int | None = None) -> None:
        check(library().rmx_barrier(self.handle, stream or None))

    def error(self) -> str:
        """The sticky error's name, "" for none."""
        code = library().rmx_comm_error(self.handle)
        return library().rmx_error_name(code).decode() if code else ""

    def abort(self) -> None:
        check(library().rmx_comm_abort(self.handle))

    def destroy(self) -> None:
        handle, self.handle = self.handle, 0
        check(library().rmx_comm_destroy(handle))


class Session:
    """A connection to the node's daemon."""

    def __init__(self, socket: str | None = None, name: str = "bench") -> None:
        path = socket.encode() if socket else None
        options = _SessionOptions(ctypes.sizeof(_SessionOptions), path, name.encode(), OPEN_TIMEOUT_MS, 0)
        handle = ctypes.c_void_p()
        check(library().rmx_session_open(ctypes.byref(options), ctypes.byref(handle)))
        self.handle = handle.value

    @property
    def backend(self) -> str:
        return library().rmx_session_backend(self.handle).decode()

    @property
    def gpus(self) -> int:
        return library().rmx_session_gpu_count(self.handle)

    def gpu_pci(self, gpu: int) -> str:
        return library().rmx_session_gpu_pci(self.handle, gpu).decode()

    def new_id(self) -> bytes:
        made = _Id()
        check(library().rmx_get_id(self.handle, ctypes.byref(made)))
        return bytes(made.bytes)

    def comm(self, made: bytes, ranks: int, rank: int, gpu: int = -1, flags: int = 0, max_blocks: int = 0) -> Comm:
        given = _Id((ctypes.c_ubyte * ID_BYTES)(*made))
        options = _CommOptions(ctypes.sizeof(_CommOptions), gpu, JOIN_TIMEOUT_MS, b"bench", None, flags, max_blocks)
        handle = ctypes.c_void_p()
        check(
            library().rmx_comm_create(self.handle, ctypes.byref(given), ranks, rank, ctypes.byref(options), ctypes.byref(handle))
        )
        return Comm(handle.value or 0)

    def alloc(self, size: int) -> int:
        address = ctypes.c_void_p()
        check(library().rmx_mem_alloc(self.handle, size, ctypes.byref(address)))
        return address.value or 0

    def register(self, address: int, size: int) -> None:
        check(library().rmx_buffer_register(self.handle, address, size))

    def unregister(self, address: int) -> None:
        check(library().rmx_buffer_unregister(self.handle, address))

    def free(self, address: int) -> None:
        check(library().rmx_mem_free(self.handle, address))

    def close(self) -> None:
        handle, self.handle = self.handle, None
        library().rmx_session_close(handle)


def torch_device(session: Session, gpu: int) -> int:
    """The number that torch has for one of the daemon's GPUs, by its PCI address."""
    import torch

    wanted = session.gpu_pci(gpu).lower()
    for device in range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(device)
        if not hasattr(found, "pci_bus_id"):
            break
        if f"{found.pci_domain_id:04x}:{found.pci_bus_id:02x}:{found.pci_device_id:02x}.0" == wanted:
            return device
    return gpu
