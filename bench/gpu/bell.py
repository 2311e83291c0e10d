#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The first call after a silence: what it costs that kernels or threads have gone to sleep.

All ranks meet, are silent for a while and make one small call that they wait for; on GPUs by themselves, and as a graph
that they replay. A sample is the time of the slowest rank; it contains how far apart the ranks wake up. Beside them the
same with a kernel that has nothing to do with the library: what host and GPU take to wake up themselves.
"""

from __future__ import annotations

import argparse
import itertools
import json
import pathlib
import time
from typing import Any

import crew as crews
import railmux
import small

PAUSES_MS = "0,1,50,1000"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--backend", choices=("hip", "host"), default="hip")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--pauses", default=PAUSES_MS, help="milliseconds, separated by commas (default %(default)s)")
    parser.add_argument("--awake", action="store_true", help="the ranks spin while they are silent, so only the daemon sleeps")
    parser.add_argument("--json", type=pathlib.Path, required=True)
    options = parser.parse_args()
    options.pauses = [int(word) for word in options.pauses.split(",")]
    return options


def rank_main(crew: crews.Crew, options: argparse.Namespace) -> None:
    end = time.monotonic() + options.seconds
    session = railmux.Session(name="bench-bell")
    gpu = crew.rank % session.gpus
    small.device_of(session, gpu, options.backend)
    made = crew.from_first(session.new_id() if crew.rank == 0 else None)
    one = small.Small(session.comm(made, crew.ranks, crew.rank, gpu), session, options.backend)
    one.give(crew.rank + 1)
    results: list[dict[str, Any]] = []
    wrong = 0
    for _ in range(20):
        one.call()
    ways = [("call", one.call)]
    if options.backend == "hip":
        one.capture()
        ways.append(("graph", one.replay))
        ways += zip(("kernel", "kernel's graph"), one.bare(), strict=True)
    ours = ("call", "graph")
    for pause_ms, (way, function) in itertools.product(options.pauses, ways):
        if crew.gather(time.monotonic() > end, "over")[0]:
            break
        for _ in range(3):
            function()
        times = []
        for _ in range(options.rounds):
            one.clear()  # before the silence
            crew.barrier()
            start = begin = time.perf_counter()
            if not options.awake:
                time.sleep(pause_ms / 1e3)
            while start < begin + pause_ms / 1e3:
                start = time.perf_counter()
            start = time.perf_counter()
            function()
            times.append(1e6 * (time.perf_counter() - start))
            if way in ours:
                wrong += one.wrong(crew.ranks * (crew.ranks + 1) / 2)
        times = crew.slowest(times)
        results.append({"pause_ms": pause_ms, "way": way, "calls": len(times), "p50_us": crews.percentile(times, 50), "max_us": max(times)})
    wrong = crew.total(wrong)
    if crew.rank == 0:
        options.json.write_text(json.dumps({"version": 1, "results": results, "wrong": wrong}))


if __name__ == "__main__":
    crews.main(rank_main, parse())
