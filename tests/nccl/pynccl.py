#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A client that binds the library with ctypes, as inference engines do:

    pynccl.py LIBRARY [RANKS] [--device] [--sockets PATH,PATH,...]

Each rank is a process; with --sockets they are dealt out in rows to the daemons of several nodes. The id travels by value; versions are read as a number of five digits; symbols are looked up
one by one, and a missing one is an error. Buffers are ctypes arrays, for the host backend; with --device tensors of
PyTorch on GPUs (rank r on GPU r modulo their number), with calls on a stream of its own, one by one and captured into a
graph that is replayed with other inputs. Exit status 1 if a result is wrong in any element.
"""

import ctypes
import os
import sys
import time

INT32, UINT8, FLOAT32, FLOAT64 = 2, 1, 7, 8
SUM, MAX, AVG = 0, 2, 4
TYPES = {INT32: ctypes.c_int32, UINT8: ctypes.c_uint8, FLOAT32: ctypes.c_float, FLOAT64: ctypes.c_double}
POISON = 0x5B


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


Comm = ctypes.c_void_p
Stream = ctypes.c_void_p
Buffer = ctypes.c_void_p

FUNCTIONS = {
    "ncclGetVersion": [ctypes.POINTER(ctypes.c_int)],
    "ncclGetUniqueId": [ctypes.POINTER(UniqueId)],
    "ncclCommInitRank": [ctypes.POINTER(Comm), ctypes.c_int, UniqueId, ctypes.c_int],
    "ncclAllReduce": [Buffer, Buffer, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, Comm, Stream],
    "ncclReduce": [Buffer, Buffer, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, Comm, Stream],
    "ncclAllGather": [Buffer, Buffer, ctypes.c_size_t, ctypes.c_int, Comm, Stream],
    "ncclReduceScatter": [Buffer, Buffer, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, Comm, Stream],
    "ncclSend": [Buffer, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, Comm, Stream],
    "ncclRecv": [Buffer, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, Comm, Stream],
    "ncclBroadcast": [Buffer, Buffer, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, Comm, Stream],
    "ncclCommDestroy": [Comm],
    "ncclGroupStart": [],
    "ncclGroupEnd": [],
    "ncclCommWindowRegister": [Comm, Buffer, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int],
    "ncclCommWindowDeregister": [Comm, ctypes.c_void_p],
}


class Library:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.text = self.library.ncclGetErrorString
        self.text.restype = ctypes.c_char_p
        self.text.argtypes = [ctypes.c_int]
        for name, arguments in FUNCTIONS.items():
            function = getattr(self.library, name)
            function.restype = ctypes.c_int
            function.argtypes = arguments

    def __call__(self, name, *arguments):
        result = getattr(self.library, "nccl" + name)(*arguments)
        if result != 0:
            raise RuntimeError(f"{name}: {self.text(result).decode()}")

    def version(self):
        number = ctypes.c_int()
        self("GetVersion", ctypes.byref(number))
        digits = str(number.value)
        if len(digits) != 5:
            raise RuntimeError(f"version {digits} has not five digits")
        return f"{digits[0]}.{int(digits[1:3])}.{int(digits[3:])}"


class HostArray:
    """Memory of the process."""

    stream = None

    def __init__(self, kind, count):
        self.array = (TYPES[kind] * count)()
        self.place = ctypes.addressof(self.array)
        ctypes.memset(self.array, POISON, ctypes.sizeof(self.array))

    def fill(self, values):
        self.array[:] = values

    def values(self):
        return list(self.array)


class DeviceArray:
    """Memory of a GPU, from PyTorch's allocator."""

    torch = stream = types = None

    @classmethod
    def use(cls, rank):
        import torch

        cls.torch = torch
        torch.cuda.set_device(rank % torch.cuda.device_count())
        cls.types = {INT32: torch.int32, UINT8: torch.uint8, FLOAT32: torch.float32, FLOAT64: torch.float64}
        cls.work = torch.cuda.Stream()
        cls.stream = cls.work.cuda_stream

    def __init__(self, kind, count):
        size = ctypes.sizeof(TYPES[kind])
        with self.torch.cuda.stream(self.work):
            raw = self.torch.full((count * size,), POISON, dtype=self.torch.uint8, device="cuda")
            self.array = raw.view(self.types[kind])
        self.place = self.array.data_ptr()

    def fill(self, values):
        with self.torch.cuda.stream(self.work):
            self.array.copy_(self.torch.tensor(values, dtype=self.array.dtype))

    def values(self):
        with self.torch.cuda.stream(self.work):
            found = self.array.cpu().tolist()
        self.work.synchronize()
        return found


Array = HostArray


def filled(kind, values):
    array = empty(kind, len(values))
    array.fill(values)
    return array


def empty(kind, count):
    return Array(kind, count)


def rounded(kind, values):
    """As the type holds them."""
    return list((TYPES[kind] * len(values))(*values))


def average(values):
    return sum(values) / len(values)


def average_whole(values):
    return sum(values) // len(values)


class Rank:
    def __init__(self, library, unique_id, rank, ranks):
        self.nccl, self.rank, self.ranks = library, rank, ranks
        self.comm = Comm()
        self.cases = self.wrong = 0
        library("CommInitRank", ctypes.byref(self.comm), ranks, unique_id, rank)

    def expect(self, what, got, wanted):
        self.cases += 1
        found = got.values()
        if found != list(wanted):
            self.wrong += 1
            print(f"rank {self.rank}: {what}: {found[:8]}, not {list(wanted)[:8]}", flush=True)

    def value(self, rank, i):
        return (rank + 1) * 3 + i % 17

    def all_reduce(self, count):
        for kind in TYPES:
            mean = average_whole if kind in (INT32, UINT8) else average
            for redop, fold in ((SUM, sum), (MAX, max), (AVG, mean)):
                if redop == SUM and kind == UINT8:
                    continue
                columns = ([self.value(r, i) for r in range(self.ranks)] for i in range(count))
                wanted = rounded(kind, [fold(column) for column in columns])
                data, out = filled(kind, [self.value(self.rank, i) for i in range(count)]), empty(kind, count)
                self.nccl("AllReduce", data.place, out.place, count, kind, redop, self.comm, Array.stream)
                self.expect(f"AllReduce type {kind} op {redop}", out, wanted)
                self.nccl("AllReduce", data.place, data.place, count, kind, redop, self.comm, Array.stream)
                self.expect(f"AllReduce in place type {kind} op {redop}", data, wanted)

    def all_gather(self, count):
        data, out = filled(INT32, [self.value(self.rank, i) for i in range(count)]), empty(INT32, count * self.ranks)
        self.nccl("AllGather", data.place, out.place, count, INT32, self.comm, Array.stream)
        self.expect("AllGather", out, [self.value(r, i) for r in range(self.ranks) for i in range(count)])

    def reduce_scatter(self, count):
        data = filled(FLOAT32, [self.value(self.rank, i) for i in range(count * self.ranks)])
        out = empty(FLOAT32, count)
        self.nccl("ReduceScatter", data.place, out.place, count, FLOAT32, SUM, self.comm, Array.stream)
        first = self.rank * count
        wanted = [sum(self.value(r, first + i) for r in range(self.ranks)) for i in range(count)]
        self.expect("ReduceScatter", out, wanted)

    def broadcast(self, count):
        for root in range(self.ranks):
            data, out = filled(INT32, [self.value(self.rank, i) for i in range(count)]), empty(INT32, count)
            # As the engines do: the root's own buffer, on the others there is nothing to send.
            self.nccl("Broadcast", data.place if self.rank == root else None, out.place, count, INT32, root, self.comm, Array.stream)
            self.expect(f"Broadcast from {root}", out, [self.value(root, i) for i in range(count)])

    def reduce(self, count):
        for root in range(self.ranks):
            data, out = filled(INT32, [self.value(self.rank, i) for i in range(count)]), empty(INT32, count)
            untouched = out.values()
            self.nccl("Reduce", data.place, out.place, count, INT32, SUM, root, self.comm, Array.stream)
            wanted = [sum(self.value(r, i) for r in range(self.ranks)) for i in range(count)]
            self.expect(f"Reduce to {root}", out, wanted if self.rank == root else untouched)

    def chain(self, count):
        """From rank to rank, without groups, as pipeline stages do."""
        data = filled(INT32, [self.value(0, i) for i in range(count)]) if self.rank == 0 else empty(INT32, count)
        if self.rank > 0:
            self.nccl("Recv", data.place, count, INT32, self.rank - 1, self.comm, Array.stream)
        if self.rank + 1 < self.ranks:
            self.nccl("Send", data.place, count, INT32, self.rank + 1, self.comm, Array.stream)
        self.expect("Send and Recv", data, [self.value(0, i) for i in range(count)])

    def ragged_all_gather(self):
        """Different sizes from each rank: broadcasts in a group, each to its place in the output."""
        sizes = [r * 5 + 1 for r in range(self.ranks)]
        out = empty(INT32, sum(sizes))
        data = filled(INT32, [self.value(self.rank, i) for i in range(sizes[self.rank])])
        self.nccl("GroupStart")
        for root, size in enumerate(sizes):
            place = out.place + 4 * sum(sizes[:root])
            self.nccl("Broadcast", data.place, place, size, INT32, root, self.comm, Array.stream)
        self.nccl("GroupEnd")
        wanted = [self.value(r, i) for r in range(self.ranks) for i in range(sizes[r])]
        self.expect("Broadcasts in a group", out, wanted)

    def everyone(self, count):
        data = filled(INT32, [self.value(self.rank, i) for i in range(count * self.ranks)])
        out = empty(INT32, count * self.ranks)
        self.nccl("GroupStart")
        for peer in range(self.ranks):
            self.nccl("Send", data.place + 4 * peer * count, count, INT32, peer, self.comm, Array.stream)
            self.nccl("Recv", out.place + 4 * peer * count, count, INT32, peer, self.comm, Array.stream)
        self.nccl("GroupEnd")
        first = self.rank * count
        wanted = [self.value(r, first + i) for r in range(self.ranks) for i in range(count)]
        self.expect("Send and Recv in a group", out, wanted)

    def window(self):
        window, memory = ctypes.c_void_p(), empty(UINT8, 8192)
        self.nccl("CommWindowRegister", self.comm, memory.place, 8192, ctypes.byref(window), 1)
        if window.value is not None:
            self.nccl("CommWindowDeregister", self.comm, window)

    def captured(self, count):
        """One graph with a reduction, a gather and sends in a group; replayed, with other inputs each time."""
        n, torch = self.ranks, DeviceArray.torch
        data, total = filled(FLOAT32, [0] * count), empty(FLOAT32, count)
        blocks, rows = empty(FLOAT32, count * n), empty(FLOAT32, count * n)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=DeviceArray.work):
            self.nccl("AllReduce", data.place, total.place, count, FLOAT32, SUM, self.comm, Array.stream)
            self.nccl("AllGather", total.place, blocks.place, count, FLOAT32, self.comm, Array.stream)
            self.nccl("GroupStart")
            for peer in range(n):
                self.nccl("Send", blocks.place + 4 * peer * count, count, FLOAT32, peer, self.comm, Array.stream)
                self.nccl("Recv", rows.place + 4 * peer * count, count, FLOAT32, peer, self.comm, Array.stream)
            self.nccl("GroupEnd")
        for turn in range(5):
            data.fill([self.value(self.rank, i) + turn for i in range(count)])
            with torch.cuda.stream(DeviceArray.work):
                graph.replay()
            wanted = [sum(self.value(r, i) + turn for r in range(n)) for i in range(count)]
            self.expect(f"captured AllReduce, replay {turn}", total, wanted)
            self.expect(f"captured AllGather, replay {turn}", blocks, wanted * n)
            self.expect(f"captured group, replay {turn}", rows, wanted * n)

    def everything(self):
        for count in (1, 7, 1000):
            self.all_reduce(count)
            self.all_gather(count)
            self.reduce_scatter(count)
            self.broadcast(count)
            self.reduce(count)
            self.chain(count)
            self.everyone(count)
            if Array is DeviceArray:
                self.captured(count)
        self.ragged_all_gather()
        self.window()
        self.all_reduce(3)


def run_rank(path, rank, ranks, hand_over, take, device, over_nodes):
    global Array
    if device:
        DeviceArray.use(rank)
        Array = DeviceArray
    library = Library(path)
    if rank == 0:
        unique_id = UniqueId()
        library("GetUniqueId", ctypes.byref(unique_id))
        os.write(hand_over, bytes(unique_id) * (ranks - 1))
        print(f"{path}: version {library.version()}", flush=True)
    else:
        unique_id = UniqueId.from_buffer_copy(os.read(take, 128))
    me = Rank(library, unique_id, rank, ranks)
    me.everything()
    # One rank leaves as engines do that just exit. Over several nodes its end may be known there before what its last
    # call has sent, so there all say so.
    if rank != ranks - 1 or over_nodes:
        library("CommDestroy", me.comm)
    print(f"rank {rank}: {me.cases} cases, {me.wrong} wrong", flush=True)
    return 1 if me.wrong or me.cases == 0 else 0


def take_option(argv, name):
    """Takes an option with a value out of the list; None if it is not there."""
    if name not in argv[:-1]:
        return None
    at = argv.index(name)
    value = argv[at + 1]
    del argv[at : at + 2]
    return value


def main(argv):
    device = "--device" in argv
    argv = [word for word in argv if word != "--device"]
    sockets = take_option(argv, "--sockets")
    sockets = sockets.split(",") if sockets else []
    if len(argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    ranks = int(argv[2]) if len(argv) == 3 else 4
    take, hand_over = os.pipe()
    children = {}
    for rank in range(ranks):
        pid = os.fork()
        if pid == 0:
            status = 1
            if sockets:
                os.environ["RAILMUX_SOCKET"] = sockets[rank * len(sockets) // ranks]
            try:
                status = run_rank(argv[1], rank, ranks, hand_over, take, device, len(sockets) > 1)
            except (OSError, RuntimeError, AttributeError, ImportError) as error:
                print(f"rank {rank}: {error}", flush=True)
            sys.stdout.flush()
            os._exit(status)
        children[pid] = rank
    failed, begin = 0, time.monotonic()
    while children:
        pid, status = os.waitpid(-1, 0)
        rank = children.pop(pid, None)
        if status != 0:
            print(f"rank {rank}: status {status}, after {time.monotonic() - begin:.1f} s", flush=True)
            failed += 1
            for other in children:  # they may wait for it
                os.kill(other, 9)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
