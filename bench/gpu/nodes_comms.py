#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How long communicators over several daemons take to make: what nodes.py runs for its step comms.

BENCH_SOCKETS names the daemons' sockets, BENCH_EACH the ranks that share a GPU; ranks are numbered node by node. A round
makes --count communicators one after the other, all of which stay, calls an all_reduce on each and destroys them. The
first round also fills and pins memory, which the second finds there. A time is that of the slowest rank, in ms, from a
barrier until rmx_comm_create has returned.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import pathlib
import time
from typing import Any

import crew as crews
import railmux

COUNT = 512 << 10  # large enough for communicators that are made of others
ROUNDS = ("made", "made again")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--count", type=int, default=20, help="communicators (default %(default)s)")
    parser.add_argument("--json", type=pathlib.Path, required=True)
    return parser.parse_args()


class Maker:
    """One rank."""

    def __init__(self, crew: crews.Crew) -> None:
        sockets = os.environ["BENCH_SOCKETS"].split(",")
        there = crew.ranks // len(sockets)
        self.crew = crew
        self.session = railmux.Session(sockets[crew.rank // there], "bench-comms")
        self.gpu = crew.rank % there // int(os.environ["BENCH_EACH"])
        self.torch: Any = None
        if self.session.backend == "host":
            self.source, self.to = self.session.alloc(COUNT * 2), self.session.alloc(COUNT * 2)
            ctypes.memset(self.source, 0, COUNT * 2)
            return
        import torch

        self.torch = torch
        torch.cuda.set_device(railmux.torch_device(self.session, self.gpu))
        self.ones = torch.ones(COUNT, dtype=torch.bfloat16, device="cuda")
        self.sums = torch.zeros_like(self.ones)
        self.source, self.to = self.ones.data_ptr(), self.sums.data_ptr()
        torch.cuda.synchronize()

    def call(self, comm: railmux.Comm) -> int:
        """Wrong elements."""
        stream = self.torch.cuda.current_stream().cuda_stream if self.torch else None
        if self.torch:
            self.sums.zero_()
            comm.all_reduce(self.source, self.to, COUNT, railmux.BFLOAT16, stream=stream)
            return int((self.sums != self.crew.ranks).sum().item())
        ctypes.memset(self.to, 0xFF, COUNT * 2)
        comm.all_reduce(self.source, self.to, COUNT, railmux.BFLOAT16, stream=stream)
        return int(ctypes.string_at(self.to, COUNT * 2) != bytes(COUNT * 2))  # sums of what is all 0

    def round(self, count: int) -> tuple[list[float], int]:
        kept, times, wrong = [], [], 0
        for _ in range(count):
            made = self.crew.from_first(self.session.new_id() if self.crew.rank == 0 else None)
            self.crew.barrier()
            start = time.monotonic()
            kept.append(self.session.comm(made, self.crew.ranks, self.crew.rank, self.gpu))
            times.append(1e3 * (time.monotonic() - start))
            wrong += self.call(kept[-1])
        for comm in kept:
            comm.destroy()
        return self.crew.slowest(times), self.crew.total(wrong)


def rank_main(crew: crews.Crew, options: argparse.Namespace) -> None:
    maker = Maker(crew)
    found = {name: maker.round(options.count) for name in ROUNDS}
    if crew.rank == 0:
        document = {"version": 1, "ms": {name: one[0] for name, one in found.items()}, "wrong": sum(w for _, w in found.values())}
        options.json.write_text(json.dumps(document))
    maker.session.close()


if __name__ == "__main__":
    crews.main(rank_main, parse())
