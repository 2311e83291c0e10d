# SPDX-License-Identifier: MIT
"""One rank of dist.py: its process group and GPU, and what its parts share.

Needs torch, which dist.py imports only when it has become a rank. With --cpu everything is done in place of a GPU's work:
a graph is a call, a stream nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import faulthandler
import itertools
import json
import os
import pathlib
import re
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

import crew as crews

WRITE_EVERY_S = 0.5
FAILED_S = 8.0  # for the other ranks, to fail as well


class _Symbol(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("address", ctypes.c_void_p)]


def nccl_file() -> str:
    """Of the library that torch's calls go to: one that is preloaded comes before torch's own."""
    found = _Symbol()
    everything = ctypes.CDLL(None)
    try:
        address = ctypes.cast(everything.ncclGetUniqueId, ctypes.c_void_p)
        everything.dladdr.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        if everything.dladdr(address, ctypes.byref(found)) and found.file:
            return os.path.realpath(found.file.decode())
    except AttributeError:
        pass
    loaded = re.findall(r"(/\S*libnccl\S*)", pathlib.Path("/proc/self/maps").read_text())
    return loaded[0] if loaded else ""


class Rank:
    """Owner of the default process group."""

    def __init__(self, crew: crews.Crew, options: argparse.Namespace, seconds: float) -> None:
        self.crew = crew
        self.rank, self.n = crew.rank, crew.ranks
        self.options = options
        self.quick: bool = options.quick
        self.cpu: bool = options.cpu
        self.document: dict[str, Any] = {"version": 1, "parts": {}}
        self.written = 0.0
        self.place = os.open(options.save / f"place-{crew.rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        self.trace = (options.save / f"trace-{crew.rank}").open("w")
        self.arm("init", seconds)
        self.device = torch.device("cpu")
        gpu = crew.rank
        if "BENCH_SOCKETS" in os.environ:  # of the daemons of virtual nodes, which may share GPUs
            sockets = os.environ["BENCH_SOCKETS"].split(",")
            os.environ["RAILMUX_SOCKET"] = sockets[crew.rank * len(sockets) // crew.ranks]
            gpu = crew.rank // int(os.environ["BENCH_EACH"]) % torch.cuda.device_count()
        if not self.cpu:
            torch.cuda.set_device(gpu)
            self.device = torch.device("cuda", gpu)
            self.stream = torch.cuda.Stream()
        here = torch.ones(512, dtype=torch.bfloat16, device=self.device)
        self.synchronize()  # the context is there: its time is not the library's
        crew.barrier()
        start = time.monotonic()
        dist.init_process_group(
            "gloo" if self.cpu else "nccl",
            init_method=f"file://{crew.folder}/store",
            rank=crew.rank,
            world_size=crew.ranks,
            device_id=None if self.cpu else self.device,
        )
        made = time.monotonic()
        dist.all_reduce(here)
        self.synchronize()
        times = crew.slowest([1e3 * (made - start), 1e3 * (time.monotonic() - start)])
        self.document["torch"] = torch.__version__
        self.document["nccl"] = "" if self.cpu else ".".join(str(v) for v in torch.cuda.nccl.version())
        self.document["nccl_file"] = nccl_file()
        self.document["init_ms"], self.document["first_all_reduce_ms"] = times
        if int((here != crew.ranks).sum().item()):
            raise RuntimeError("the first all_reduce is wrong")

    # ---- where it is, for whoever looks after it --------------------------------------------------------------------
    def at(self, place: str) -> None:
        """The parent reads it when this process hangs or dies."""
        os.ftruncate(self.place, os.pwrite(self.place, place.encode(), 0))

    def arm(self, part: str, seconds: float) -> None:
        """After that time all threads' traces are written and the process ends, whoever holds the interpreter."""
        self.at(part)
        self.end = time.monotonic() + seconds
        faulthandler.dump_traceback_later(seconds, exit=True, file=self.trace)

    def failed(self, error: str) -> None:
        """If it is so on all ranks, they come to speak of it soon; if not, the others wait for this one in a collective."""
        print(f"rank {self.rank}: {error}", flush=True)
        self.at(error)
        faulthandler.dump_traceback_later(max(min(self.end - time.monotonic(), FAILED_S), 0.1), exit=True, file=self.trace)

    def agreed(self) -> None:
        faulthandler.dump_traceback_later(max(self.end - time.monotonic(), 0.1), exit=True, file=self.trace)

    def disarm(self) -> None:
        faulthandler.cancel_dump_traceback_later()

    def write(self, force: bool = True) -> None:
        if self.rank or not force and time.monotonic() - self.written < WRITE_EVERY_S:
            return
        part = self.options.json.with_suffix(".part")
        part.write_text(json.dumps(self.document))
        os.replace(part, self.options.json)
        self.written = time.monotonic()

    def save(self, part: str, tensors: dict[str, torch.Tensor]) -> None:
        """For the comparison with another run."""
        torch.save({name: tensor.cpu() for name, tensor in tensors.items()}, self.options.save / f"{part}-{self.rank}.pt")

    # ---- the GPU -----------------------------------------------------------------------------------------------------
    def synchronize(self) -> None:
        if not self.cpu:
            torch.cuda.synchronize()

    @contextlib.contextmanager
    def aside(self) -> Any:
        """On another stream, which begins after the work of this one and ends before what follows."""
        if self.cpu:
            yield
            return
        current = torch.cuda.current_stream()
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            yield
        current.wait_stream(self.stream)

    def capture(self, call: Callable[[], Any]) -> Callable[[], Any]:
        """A graph of it, as a function that replays it. The call was made before, outside of graphs."""
        if self.cpu:
            return call
        graph = torch.cuda.CUDAGraph()
        self.synchronize()
        self.crew.barrier()
        with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
            call()
        return graph.replay

    def used_mib(self) -> float:
        """Of this rank's GPU, by everybody, with all ranks at the same place."""
        self.synchronize()
        self.crew.barrier()
        if self.cpu:
            return 0.0
        free, total = torch.cuda.mem_get_info()
        return (total - free) / 2**20

    def samples(self, issue: Callable[[], Any], warmup: int, n: int, calls: int = 1) -> list[float]:
        """us per call, of the slowest rank, issued back to back."""
        for _ in range(warmup):
            issue()
        self.synchronize()
        self.crew.barrier()
        if self.cpu:
            at = [time.monotonic()]
            for _ in range(n):
                issue()
                at.append(time.monotonic())
            return self.crew.slowest([1e6 * (b - a) / calls for a, b in itertools.pairwise(at)])
        events = [torch.cuda.Event(enable_timing=True) for _ in range(n + 1)]
        events[0].record()
        for event in events[1:]:
            issue()
            event.record()
        self.synchronize()
        return self.crew.slowest([1e3 * a.elapsed_time(b) / calls for a, b in itertools.pairwise(events)])

    # ---- data --------------------------------------------------------------------------------------------------------
    def numbers(self, rank: int, count: int, period: int = 13, offset: int = 0) -> torch.Tensor:
        """Small whole ones that depend on rank and position."""
        return (torch.arange(count, device=self.device) + 7 * rank + 3 * offset) % period

    def random(self, seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        generator = torch.Generator(device=self.device).manual_seed(seed)
        return torch.randn(*shape, generator=generator, device=self.device, dtype=torch.float32).to(dtype)

    def same_bits(self, tensor: torch.Tensor) -> bool:
        """Whether all ranks hold the same."""
        bits = tensor.detach().contiguous().view(torch.uint8).flatten().to(torch.int64)
        weight = torch.arange(bits.numel(), device=bits.device) % 8191 + 1
        return len(set(self.crew.gather(int((bits * weight).sum().item())))) == 1
