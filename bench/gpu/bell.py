#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The first call after a silence: what it costs that kernels or threads have gone to sleep.

All ranks meet, are silent for a while and make one small call that they wait for. A sample is the time of the slowest
rank; it contains how far apart the ranks wake up.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import time
from typing import Any

import crew as crews
import railmux
import small

PAUSES_MS = (0, 1, 50, 1000)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--backend", choices=("hip", "host"), default="hip")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--json", type=pathlib.Path, required=True)
    return parser.parse_args()


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
    for pause_ms in PAUSES_MS:
        if crew.gather(time.monotonic() > end, "over")[0]:
            break
        times = []
        for _ in range(options.rounds):
            crew.barrier()
            time.sleep(pause_ms / 1e3)
            start = time.perf_counter()
            one.call()
            times.append(1e6 * (time.perf_counter() - start))
            wrong += one.wrong(crew.ranks * (crew.ranks + 1) / 2)
        times = crew.slowest(times)
        results.append({"pause_ms": pause_ms, "calls": len(times), "p50_us": crews.percentile(times, 50), "max_us": max(times)})
    wrong = crew.total(wrong)
    if crew.rank == 0:
        options.json.write_text(json.dumps({"version": 1, "results": results, "wrong": wrong}))


if __name__ == "__main__":
    crews.main(rank_main, parse())
