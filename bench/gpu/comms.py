#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a communicator costs: the time until the last rank has joined, and GPU memory, beside NCCL.

A first one is the first of its process and pays for whatever comes with it (but not for the GPU's context, which is there
before); further ones follow in the same processes. Memory is what all processes together took of the GPU, as seen by
rank 0, with all of them alive; a call is made on each communicator, since some libraries allocate only then.
"""

from __future__ import annotations

import argparse
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
            self.tensor = torch.ones(COUNT, dtype=torch.bfloat16, device="cuda")
            self.out = torch.zeros_like(self.tensor)
            torch.cuda.synchronize()
        else:
            self.address = self.session.alloc(COUNT * 4)

    def used_mib(self) -> float:
        """Of the GPU, by everybody."""
        self.crew.barrier()
        if not self.torch:
            return 0.0
        free, total = self.torch.cuda.mem_get_info()
        return (total - free) / 2**20

    def railmux_one(self) -> railmux.Comm:
        made = self.crew.from_first(self.session.new_id() if self.crew.rank == 0 else None)
        return self.session.comm(made, self.crew.ranks, self.crew.rank, self.gpu)

    def railmux_call(self, comm: railmux.Comm) -> None:
        if not self.torch:
            comm.all_reduce(self.address, self.address, COUNT, railmux.FLOAT32)
            return
        stream = self.torch.cuda.current_stream().cuda_stream
        self.out.zero_()
        comm.all_reduce(self.tensor.data_ptr(), self.out.data_ptr(), COUNT, railmux.BFLOAT16, stream=stream)
        self.torch.cuda.synchronize()
        self.wrong += int((self.out != self.crew.ranks).sum().item())

    def nccl_one(self) -> Any:
        """new_group is cheap and lazy; the communicator is made by the first call, so both are timed."""
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

    def measure(self, name: str, make: Callable[[], Any], call: Callable[[Any], None]) -> dict[str, Any]:
        kept, times, memory = [], [], [self.used_mib()]
        for _ in range(1 + self.further[name]):
            self.crew.barrier()
            start = time.monotonic()
            kept.append(make())
            times.append(1e3 * (time.monotonic() - start))
            call(kept[-1])
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
    libraries = [costs.measure("railmux", costs.railmux_one, costs.railmux_call)]
    wrong = crew.total(costs.wrong)

    def write() -> None:
        if crew.rank == 0:
            options.json.write_text(json.dumps({"version": 1, "libraries": libraries, "wrong": wrong}))

    write()
    if costs.torch:
        libraries.append(costs.measure("nccl", costs.nccl_one, lambda group: None))
        write()
    costs.session.close()


if __name__ == "__main__":
    crews.main(rank_main, parse())
