#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a communicator costs: the time until a first all_reduce on it has ended in the last rank, and GPU memory, beside NCCL.

The call is part of it since libraries differ in what they leave to it. A first communicator is the first of its process and
pays for whatever comes with it (but not for the GPU's context, which is there before); further ones follow in the same
processes. Memory is what all processes together took of the GPU, as seen by rank 0, with all of them alive.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import pathlib
import time
from collections.abc import Callable
from typing import Any

import crew as crews
import railmux

NCCL_FURTHER = 8  # they take long and are large
COUNT = 4096


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--backend", choices=("hip", "host"), default="hip")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--further", type=int, default=100, help="communicators after the first (default %(default)s)")
    parser.add_argument("--json", type=pathlib.Path, required=True)
    return parser.parse_args()


class Costs:
    """One rank."""

    def __init__(self, crew: crews.Crew, options: argparse.Namespace) -> None:
        self.crew = crew
        self.session = railmux.Session(name="bench-comms")
        self.gpu = crew.rank % self.session.gpus
        self.torch: Any = None
        self.address = 0
        self.wrong = 0
        self.further = {"railmux": options.further, "nccl": min(NCCL_FURTHER, options.further)}
        if options.backend == "hip":
            import torch

            self.torch = torch
            torch.cuda.set_device(railmux.torch_device(self.session, self.gpu))
            self.out = torch.ones(COUNT, dtype=torch.bfloat16, device="cuda")
            torch.cuda.synchronize()
        else:
            self.address = self.session.alloc(COUNT * 4)
            self.out = (ctypes.c_float * COUNT).from_address(self.address)

    def used_mib(self) -> float:
        """Of the GPU, by everybody."""
        self.crew.barrier()
        if not self.torch:
            return 0.0
        free, total = self.torch.cuda.mem_get_info()
        return (total - free) / 2**20

    def prepare(self) -> None:
        if self.torch:
            self.out.fill_(1)
            self.torch.cuda.synchronize()
        else:
            self.out[:] = [1] * COUNT

    def verify(self) -> None:
        if self.torch:
            self.wrong += int((self.out != self.crew.ranks).sum().item())
        else:
            self.wrong += sum(x != self.crew.ranks for x in self.out)

    def railmux_one(self) -> railmux.Comm:
        made = self.crew.from_first(self.session.new_id() if self.crew.rank == 0 else None)
        comm = self.session.comm(made, self.crew.ranks, self.crew.rank, self.gpu)
        if self.torch:
            stream, out = self.torch.cuda.current_stream().cuda_stream, self.out.data_ptr()
            comm.all_reduce(out, out, COUNT, railmux.BFLOAT16, stream=stream)
            self.torch.cuda.synchronize()
        else:
            comm.all_reduce(self.address, self.address, COUNT, railmux.FLOAT32)
        return comm

    def nccl_one(self) -> Any:
        """new_group is cheap and lazy; the communicator is made by the first call."""
        dist = self.torch.distributed
        if not dist.is_initialized():
            store = f"file://{self.crew.folder}/store"
            dist.init_process_group("nccl", init_method=store, rank=self.crew.rank, world_size=self.crew.ranks)
            group = dist.group.WORLD
        else:
            group = dist.new_group(list(range(self.crew.ranks)))
        dist.all_reduce(self.out, group=group)
        self.torch.cuda.synchronize()
        return group

    def measure(self, name: str, make: Callable[[], Any]) -> dict[str, Any]:
        kept, times, memory = [], [], [self.used_mib()]
        for _ in range(1 + self.further[name]):
            self.prepare()
            self.crew.barrier()
            start = time.monotonic()
            kept.append(make())
            times.append(1e3 * (time.monotonic() - start))
            self.verify()
            if len(kept) == 1:
                memory.append(self.used_mib())
        memory.append(self.used_mib())
        times = self.crew.slowest(times)
        if name == "railmux":
            for comm in kept:
                comm.destroy()
        return {
            "library": name,
            "first_ms": times[0],
            "further": self.further[name],
            "p50_ms": crews.percentile(times[1:], 50),
            "p99_ms": crews.percentile(times[1:], 99),
            "first_mib": memory[1] - memory[0],
            "further_mib": (memory[2] - memory[1]) / self.further[name],
        }


def rank_main(crew: crews.Crew, options: argparse.Namespace) -> None:
    costs = Costs(crew, options)
    libraries = [costs.measure("railmux", costs.railmux_one)]

    def write() -> None:
        wrong = crew.total(costs.wrong)
        if crew.rank == 0:
            options.json.write_text(json.dumps({"version": 1, "libraries": libraries, "wrong": wrong}))

    write()
    if costs.torch:
        libraries.append(costs.measure("nccl", costs.nccl_one))
        write()
    costs.session.close()


if __name__ == "__main__":
    crews.main(rank_main, parse())
