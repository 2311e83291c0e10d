#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tensors in PyTorch's expandable segments: virtual memory, mapped chunk by chunk.

Run with expandable_segments:True. In each round every rank allocates tensors of other sizes, sums them with the others
and compares each element; then it drops some and gives the rest of the allocator's memory back, so that chunks go and
others come at the same addresses. A graph captured at the beginning is replayed in every round, while its segment grows
and shrinks around it. At last a large request on such memory is timed beside one on memory of a plain allocation, and it
is waited for that all memory that was freed has come back.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import pathlib
import random
import time
from typing import Any

import crew as crews
import railmux
import small

PERIOD = 13  # sums of 8 ranks are exact in bf16
SIZES = (40_000, 600_000, 3_000_001, 9_000_000, 24_000_000, 70_000_000)  # elements of bf16; chunks have 1 or 10 Mi
LEFT = 64 << 20  # of what was allocated and is not there again: the runtime keeps some for itself
WAIT_S = 15.0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--backend", choices=("hip",), default="hip")
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path, required=True)
    return parser.parse_args()


class Plain:
    """Memory of an allocation of its own, past PyTorch's allocator."""

    def __init__(self, torch: Any, size: int) -> None:
        hip = bool(torch.version.hip)
        self.library = ctypes.CDLL("libamdhip64.so" if hip else "libcuda.so.1")
        self.free_name = "hipFree" if hip else "cuMemFree_v2"
        address = ctypes.c_void_p()
        allocate = getattr(self.library, "hipMalloc" if hip else "cuMemAlloc_v2")
        if allocate(ctypes.byref(address), ctypes.c_size_t(size)):
            raise RuntimeError("no plain memory")
        self.address = address.value or 0

    def free(self) -> None:
        getattr(self.library, self.free_name)(ctypes.c_void_p(self.address))


class Rank:
    def __init__(self, comm: railmux.Comm, rank: int, ranks: int) -> None:
        import torch

        self.torch, self.comm, self.rank, self.ranks = torch, comm, rank, ranks
        self.stream = torch.cuda.Stream()
        self.wrong = self.operations = 0

    def reduce(self, tensor: Any) -> None:
        self.comm.all_reduce(tensor.data_ptr(), tensor.data_ptr(), tensor.numel(), railmux.BFLOAT16, stream=self.stream.cuda_stream)

    def fill(self, tensor: Any, turn: int) -> Any:
        """The expected sum."""
        positions = self.torch.arange(tensor.numel(), dtype=self.torch.int32, device="cuda")
        tensor.copy_((positions + 5 * self.rank + turn) % PERIOD)
        expected = self.torch.zeros_like(tensor)
        for rank in range(self.ranks):
            expected += ((positions + 5 * rank + turn) % PERIOD).to(tensor.dtype)
        return expected

    def check(self, tensor: Any, turn: int) -> None:
        with self.torch.cuda.stream(self.stream):
            expected = self.fill(tensor, turn)
            self.reduce(tensor)
            self.wrong += int((tensor != expected).sum().item())
        self.operations += 1

    def timed(self, address: int, count: int) -> float:
        """Median of microseconds."""
        torch, times = self.torch, []
        for _ in range(30):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record(self.stream)
            self.comm.all_reduce(address, address, count, railmux.BFLOAT16, stream=self.stream.cuda_stream)
            end.record(self.stream)
            end.synchronize()
            times.append(1000 * begin.elapsed_time(end))
        return sorted(times)[len(times) // 2]


def rounds(one: Rank, options: argparse.Namespace) -> int:
    """The number that were done; the same on all ranks, since all choose by the same seed."""
    torch, chance = one.torch, random.Random(options.seed)
    captured = torch.empty(5_000_000, dtype=torch.bfloat16, device="cuda")
    source = torch.empty_like(captured)
    one.check(captured, 0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=one.stream, capture_error_mode="thread_local"):
        captured.copy_(source)
        one.reduce(captured)
    held: list[Any] = []
    for turn in range(options.rounds):
        for _ in range(4):
            held.append(torch.empty(chance.choice(SIZES) + chance.randrange(1000), dtype=torch.bfloat16, device="cuda"))
            one.check(held[-1], turn)
        one.check(chance.choice(held), turn + 3)
        with torch.cuda.stream(one.stream):
            expected = one.fill(source, turn)
            graph.replay()
            one.wrong += int((captured != expected).sum().item())
        one.operations += 1
        while len(held) > 6:
            held.pop(chance.randrange(len(held)))
        torch.cuda.synchronize()
        if turn % 3 == 2:
            torch.cuda.empty_cache()
    return options.rounds


def free_bytes(torch: Any) -> int:
    return torch.cuda.mem_get_info()[0]


def rank_main(crew: crews.Crew, options: argparse.Namespace) -> None:
    session = railmux.Session(name="bench-segments")
    gpu = crew.rank % session.gpus
    small.device_of(session, gpu, options.backend)
    comm = session.comm(crew.from_first(session.new_id() if crew.rank == 0 else None), crew.ranks, crew.rank, gpu)
    one = Rank(comm, crew.rank, crew.ranks)
    torch = one.torch
    first = torch.ones(1000, device="cuda")  # the context, and what the runtime keeps
    one.check(torch.empty(9_000_000, dtype=torch.bfloat16, device="cuda"), 1)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    crew.barrier()
    before = free_bytes(torch)
    done = rounds(one, options)
    count = 32 << 20
    segment = torch.empty(count, dtype=torch.bfloat16, device="cuda")
    plain = Plain(torch, 2 * count)
    crew.barrier()
    times = [[one.timed(address, count) for address in (segment.data_ptr(), plain.address)] for _ in range(3)]
    times = [crew.slowest(pair) for pair in times]
    plain.free()
    del segment
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    crew.barrier()
    end = time.monotonic() + WAIT_S
    while True:  # what is freed is taken back when other memory becomes known
        fresh = Plain(torch, 1 << 20)
        session.register(fresh.address, 1 << 20)
        session.unregister(fresh.address)
        fresh.free()
        missing = before - free_bytes(torch)
        if max(crew.gather(missing, "missing")) <= LEFT or any(crew.gather(time.monotonic() > end, "late")):
            break
        time.sleep(0.05)
    everybody = crew.gather({"wrong": one.wrong, "missing": missing, "error": comm.error()}, "end")
    del first
    if crew.rank:
        return
    missing = max(entry["missing"] for entry in everybody)
    errors = [entry["error"] for entry in everybody if entry["error"]]
    ratios = sorted(a / b for a, b in times)
    detail = f"64 MiB in a segment {min(a for a, _ in times):.0f} us, in a plain allocation {min(b for _, b in times):.0f}: "
    detail += f"{ratios[1]:.2f}x; of what was freed {max(missing, 0) >> 20} MiB is missing at the end"
    document: dict[str, Any] = {
        "version": 1,
        "wrong": sum(entry["wrong"] for entry in everybody),
        "operations": one.operations,
        "ratio": ratios[1],
        "missing_bytes": missing,
        "events": [{"name": f"{done} rounds in expandable segments", "outcome": "error" if errors or missing > LEFT else "done", "detail": detail}],
    }
    if errors:
        document["error"] = ", ".join(errors)
    options.json.write_text(json.dumps(document))


if __name__ == "__main__":
    crews.main(rank_main, parse())
