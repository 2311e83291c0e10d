#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Registrations of memory beside clients that need short times.

Half of the processes make small calls all the time. The other half register memory on the same GPUs, use it now and then
in a call of their own, unregister it, and give some of it back to the runtime. Mappings can be closed only while no
kernel is resident, so what is asked is how much the first half feels of that. The same neighbours are measured without
their registrations first, since their kernels, copies and allocations are felt too.
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
import small

QUIET_CALLS = 400
LOOK_EVERY = 16
USE_EVERY = 10
RENEW_EVERY = 50
SIZES = (1 << 20, 3 << 20, 24 << 20)  # bytes; large ones are allocations of their own
WAIT_S = 60.0
PHASES = ("used", "registered")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, required=True, help="of each half")
    parser.add_argument("--backend", choices=("hip", "host"), default="hip")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--registrations", type=int, default=1000, help="of each process (default %(default)s)")
    parser.add_argument("--json", type=pathlib.Path, required=True)
    options = parser.parse_args()
    options.clients = options.ranks
    options.ranks *= 2
    return options


class Memory:
    """Of the runtime on GPUs, ordinary one on the host."""

    def __init__(self, backend: str, size: int) -> None:
        self.count = size // 4
        self.size = size
        self.torch: Any = None
        if backend == "hip":
            import torch

            self.torch = torch
            self.held = torch.empty(self.count, dtype=torch.float32, device="cuda")
            self.address = self.held.data_ptr()
        else:
            self.held = (ctypes.c_float * self.count)()
            self.address = ctypes.addressof(self.held)

    def fill(self, value: float, count: int) -> None:
        if self.torch:
            self.held[:count] = value
            self.torch.cuda.synchronize()
        else:
            self.held[:count] = [value] * count

    def wrong(self, value: float, count: int) -> int:
        if self.torch:
            self.torch.cuda.synchronize()
            return int((self.held[:count] != value).sum().item())
        return sum(x != value for x in self.held[:count])

    def free(self) -> None:
        self.held = None
        if self.torch:
            self.torch.cuda.empty_cache()


def register(
    crew: crews.Crew, options: argparse.Namespace, session: railmux.Session, comm: railmux.Comm, phase: str
) -> dict[str, Any]:
    """Until all is done, or rank 0 of this half finds that the time is over. Phase "used": all but the registrations."""
    end = time.monotonic() + options.seconds / 2
    rank = crew.rank - options.clients
    go, over = pathlib.Path(crew.folder) / f"go-{phase}", pathlib.Path(crew.folder) / f"over-{phase}"
    use = 65536 if options.backend == "hip" else 2048  # elements, of which each gets its rank's value
    memory: Memory | None = None
    wrong = done = 0
    while not go.exists():
        if time.monotonic() > end:
            raise RuntimeError("the clients do not begin")
        time.sleep(0.002)
    begin = time.monotonic()
    while done < options.registrations:
        if done % RENEW_EVERY == 0:
            if memory:
                memory.free()
            memory = Memory(options.backend, SIZES[done // RENEW_EVERY % len(SIZES)])
        assert memory
        if phase == "registered":
            session.register(memory.address, memory.size)
        done += 1
        if done % USE_EVERY == 0:
            memory.fill(rank + 1 + done % 7, use)
            comm.all_reduce(memory.address, memory.address, use, railmux.FLOAT32)
            wrong += memory.wrong(options.clients * (options.clients + 1) / 2 + done % 7 * options.clients, use)
            if rank == 0 and time.monotonic() > end:
                over.write_text(str(done + USE_EVERY))  # nobody is beyond that: the next call needs us
        if phase == "registered":
            session.unregister(memory.address)
        if done % USE_EVERY == 0 and over.exists() and done >= int(over.read_text() or options.registrations):
            break
    (pathlib.Path(crew.folder) / f"done-{phase}-{rank}").touch()
    return {"registrations": done, "seconds": time.monotonic() - begin, "wrong": wrong}


def call(crew: crews.Crew, options: argparse.Namespace, one: small.Small) -> dict[str, Any]:
    """A sum that is not 0 tells all after the same call that it is the last of a phase."""
    folder = pathlib.Path(crew.folder)
    patience = time.monotonic() + options.seconds + WAIT_S

    def measured() -> float:
        start = time.perf_counter()
        one.call()
        return 1e6 * (time.perf_counter() - start)

    for _ in range(50):
        one.call()
    found = {"quiet": [measured() for _ in range(QUIET_CALLS)]}
    for phase in PHASES:
        if crew.rank == 0:
            (folder / f"go-{phase}").touch()
        times: list[float] = []
        told = False
        while not times or one.first() == 0:
            times.append(measured())
            if crew.rank == 0 and not told and len(times) % LOOK_EVERY == 0:
                told = all((folder / f"done-{phase}-{rank}").exists() for rank in range(options.clients))
                told = told or time.monotonic() > patience
                if told:
                    one.give(1)
        found[phase] = times[:-1] or times
        if crew.rank == 0:
            one.give(0)
        one.call()
    return found


def describe(times: list[float]) -> dict[str, float]:
    return {
        "calls": len(times),
        "p50_us": crews.percentile(times, 50),
        "p99_us": crews.percentile(times, 99),
        "max_us": max(times),
    }


def rank_main(crew: crews.Crew, options: argparse.Namespace) -> None:
    os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "8"  # as hostile.py: MPS has no room for more of so many processes
    session = railmux.Session(name="bench-churn")
    calling = crew.rank < options.clients
    gpu = crew.rank % options.clients % session.gpus
    small.device_of(session, gpu, options.backend)
    made = crew.gather(session.new_id().hex() if crew.rank in (0, options.clients) else "", "ids")
    first = 0 if calling else options.clients
    comm = session.comm(bytes.fromhex(made[first]), options.clients, crew.rank - first, gpu)
    crew.barrier()
    if calling:
        found = call(crew, options, small.Small(comm, session, options.backend))
    else:
        phases = [register(crew, options, session, comm, phase) for phase in PHASES]
        found = {**phases[-1], "wrong": sum(phase["wrong"] for phase in phases)}
    everybody = crew.gather({**found, "error": comm.error()}, "end")
    if crew.rank:
        return
    callers, registrars = everybody[: options.clients], everybody[options.clients :]
    quiet = describe([max(column) for column in zip(*(c["quiet"] for c in callers))])
    used, during = (describe([max(column) for column in zip(*(c[phase] for c in callers))]) for phase in PHASES)
    rate = min(r["registrations"] / r["seconds"] for r in registrars)
    errors = [entry["error"] for entry in everybody if entry["error"]]
    less = min(r["registrations"] for r in registrars) < options.registrations
    detail = f"{rate:.0f} a second by each; calls beside it: p50 {during['p50_us']:.0f} us, p99 {during['p99_us']:.0f}, "
    detail += f"longest {during['max_us']:.0f}; without registrations: {used['p50_us']:.0f}, {used['p99_us']:.0f}, "
    detail += f"{used['max_us']:.0f}; alone: {quiet['p50_us']:.0f}, {quiet['p99_us']:.0f}, {quiet['max_us']:.0f}"
    name = f"{registrars[0]['registrations']} registrations by each of {options.clients} processes"
    document: dict[str, Any] = {
        "version": 1,
        "quiet": quiet,
        "used": used,
        "during": during,
        "registrations_per_second": rate,
        "wrong": sum(r["wrong"] for r in registrars),
        "events": [{"name": name, "outcome": "error" if errors else "time was over" if less else "done", "detail": detail}],
    }
    if errors:
        document["error"] = ", ".join(errors)
    options.json.write_text(json.dumps(document))


if __name__ == "__main__":
    crews.main(rank_main, parse())
