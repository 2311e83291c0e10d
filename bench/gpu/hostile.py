#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A session that writes garbage from its GPU, beside clients that need short times.

Half of the processes make small calls all the time and look at the results. The other half is another tenant, with
--uid even another user. It writes into its own bell areas what its kernels should not: lines of random words, lines that
are nearly right, with the numbers that are awaited and without, argument blocks, counters, answers and places given
back. Before that it does the same work on memory of its own, which is what the first half's times are compared with.

Nothing that it can write there may reach anybody else: the first half's results are right and none of its calls fails.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import ctypes
import json
import os
import pathlib
import random
import shutil
import time
from typing import Any

import churn
import crew as crews
import railmux
import small

# gpu/device/bell.h, ring/line.h and railmux.h; tests/e2e/test_bench.py sees whether it is still so.
DEPTH, LINES, HANDLES, RANKS, LANES, WORDS = 64, 4096, 256, 64, 136, 16
MAGIC, COUNTER_AT, RELEASED_AT, SEQUENCE_AT, PAIR_AT = 0x334C4542, 8, 4096, 4096 + 4 * DEPTH, 8192
LINES_AT = PAIR_AT + HANDLES * 2 * RANKS * 4
DONE_AT = LINES_AT + LINES * WORDS * 8
ARGUMENT_AT = DONE_AT + DEPTH * LANES * 8
ARGUMENT_BYTES = 4096
BYTES = ARGUMENT_AT + DEPTH * ARGUMENT_BYTES
W_HEAD, W_COUNT, W_ARGUMENT, W_FLAGS, W_SEQUENCE = 0, 2, 11, 13, 14
OPERATIONS, ALL_TO_ALL_V, GROUP = 14, 7, 13
DEVICE_VERSION = 2
ODD = (0, 1, 2, 3, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFF, 0x10000, 1 << 24, 15 << 16, 256)
LOOK_EVERY = 4
OVER = 1 << 20  # more than any sum of the usual values
RENEW_EVERY = 10  # communicators, in turns of garbage
PHASES = ("elsewhere", "garbage")
# How often there is which.
KINDS = {"near": 50, "random": 15, "unawaited": 10, "lines": 10, "arguments": 7, "answers": 3, "places": 5, "lonely": 5, "nothing": 0}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, required=True, help="of each half")
    parser.add_argument("--seconds", type=float, default=60, help="of garbage, and as long before")
    parser.add_argument("--uid", type=int, help="what the second half becomes")
    parser.add_argument("--kinds", default=",".join(kind for kind, share in KINDS.items() if share), help="default %(default)s")
    parser.add_argument("--renew", type=int, default=RENEW_EVERY, help="turns until another communicator (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path, required=True)
    options = parser.parse_args()
    options.kinds = options.kinds.split(",")
    if unknown := [kind for kind in options.kinds if kind not in KINDS]:
        parser.error(f"--kinds: {unknown[0]} is none of {', '.join(KINDS)}")
    options.clients = options.ranks
    options.ranks *= 2
    return options


class _Call(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("version", ctypes.c_uint32),
        ("operation", ctypes.c_uint32),
        ("source", ctypes.c_void_p),
        ("to", ctypes.c_void_p),
        ("count", ctypes.c_size_t),
        ("kind", ctypes.c_uint32),
        ("redop", ctypes.c_uint32),
        ("root", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


class _Handle(ctypes.Structure):
    _fields_ = [
        ("area", ctypes.c_void_p),
        ("host", ctypes.c_void_p),
        ("counter", ctypes.c_void_p),
        ("source", ctypes.c_void_p),
        ("to", ctypes.c_void_p),
        ("numbers", ctypes.c_uint32 * 6),
        ("word", ctypes.c_uint32 * WORDS),
        ("reserved", ctypes.c_uint32 * 4),
    ]


class _Foreign:
    """Memory for torch that is not torch's."""

    def __init__(self, address: int, count: int, kind: str) -> None:
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": kind, "data": (address, False), "version": 3}


class Area:
    """A bell area, or memory that is as large."""

    def __init__(self, torch: Any, address: int | None) -> None:
        self.torch = torch
        self.own = torch.zeros(BYTES, dtype=torch.uint8, device="cuda") if address is None else None
        address = self.own.data_ptr() if self.own is not None else address
        self.words = torch.as_tensor(_Foreign(address, BYTES // 4, "<i4"), device="cuda")
        self.cells = torch.as_tensor(_Foreign(address, BYTES // 8, "<i8"), device="cuda")
        if self.own is None and int(self.words[0].item()) != MAGIC:
            raise RuntimeError("bell areas are not as they were")

    def counter(self) -> int:
        return int(self.words[COUNTER_AT // 4].item()) & 0xFFFFFFFF

    def garbage(self, at: int, size: int) -> None:
        cells = self.cells[at // 8 : (at + size) // 8]
        cells.copy_(self.torch.randint(-(1 << 63), (1 << 63) - 1, cells.shape, dtype=self.torch.int64, device="cuda"))

    def lines(self, first: int, lines: list[list[int]]) -> None:
        """With the numbers from `first` on, and what the counter then is."""
        place = self.cells[LINES_AT // 8 : DONE_AT // 8].view(LINES, WORDS)
        for i, line in enumerate(lines):
            sequence = (first + i) & 0xFFFFFFFF
            high = sequence << 32 if sequence < 1 << 31 else (sequence << 32) - (1 << 64)
            place[sequence % LINES].copy_(self.torch.tensor([high | word for word in line], dtype=self.torch.int64, device="cuda"))
        last = (first + len(lines) - 1) & 0xFFFFFFFF
        self.words[COUNTER_AT // 4] = last - (1 << 32) if last >> 31 else last


def templates(comm: railmux.Comm, memory: Any) -> list[list[int]]:
    """Lines as they would be."""
    prepare = railmux.library().rmx_device_prepare
    prepare.argtypes = [ctypes.c_void_p] * 3
    found, handle = [], _Handle()
    for operation in (1, 2, 3, 4, 5, 6, 12):
        for count in (16, 100000):
            a, b = (memory.data_ptr(), memory.data_ptr() + memory.numel() * 2) if operation != 12 else (None, None)
            call = _Call(ctypes.sizeof(_Call), DEVICE_VERSION, operation, a, b, count if a else 0, railmux.FLOAT32 if a else 0)
            railmux.check(prepare(comm.handle, ctypes.byref(call), ctypes.byref(handle)))
            found.append(list(handle.word))
    found.append([handle.area])  # for the caller alone
    return found


def spoil(dice: random.Random, line: list[int], number: int) -> list[int]:
    """Nearly right."""
    line = list(line)
    line[W_SEQUENCE] = number
    if dice.random() < 0.3:
        operation = dice.choice((ALL_TO_ALL_V, GROUP, dice.randrange(256)))
        line[W_HEAD] = line[W_HEAD] & 0xFF00FFFF | operation << 16
        line[W_ARGUMENT] = dice.randrange(DEPTH) * ARGUMENT_BYTES + dice.choice((0, 8, 4, 4088, 1))
        line[W_COUNT] = dice.choice((1, 2, 63, 64, 512, 513))
    for _ in range(dice.choice((0, 1, 1, 2, 5))):
        line[dice.randrange(WORDS)] = dice.choice((dice.getrandbits(32), dice.choice(ODD)))
    return line


def turn(dice: random.Random, kind: str, area: Area, lines: list[list[int]], awaited: int, number: int) -> tuple[int, int]:
    """Some garbage; how many lines it was, and how many of these had the numbers that are awaited."""
    n = dice.randrange(1, 24)
    if kind == "near":
        area.lines(awaited, [spoil(dice, dice.choice(lines), number + i) for i in range(n)])
        return n, n
    if kind == "lonely":  # right, if the other rank called the same
        mine = dice.choices(lines[: len(lines) // 2], k=n)
        area.lines(awaited, [[*line[:W_SEQUENCE], number + i, 0] for i, line in enumerate(mine)])
        return n, n
    if kind == "random":
        area.lines(awaited, [[dice.getrandbits(32) for _ in range(WORDS)] for _ in range(n)])
        return n, n
    if kind == "unawaited":
        area.lines(dice.getrandbits(32), [spoil(dice, dice.choice(lines), number) for _ in range(n)])
        return n, 0
    at, size = {
        "lines": (LINES_AT, DONE_AT - LINES_AT),
        "arguments": (ARGUMENT_AT, BYTES - ARGUMENT_AT),
        "answers": (DONE_AT, ARGUMENT_AT - DONE_AT),
        "places": (RELEASED_AT, LINES_AT - RELEASED_AT),
    }[kind]
    area.garbage(at, size)
    return LINES if kind == "lines" else 0, 0


class Writer:
    """A session, and a communicator of two ranks of it, for as long as it is served."""

    def __init__(self, torch: Any, gpu: int, options: argparse.Namespace) -> None:
        self.torch = torch
        self.gpu = gpu
        self.kinds = options.kinds
        self.renew_every = options.renew
        self.memory = torch.zeros(1 << 20, dtype=torch.float32, device="cuda")
        self.session: railmux.Session | None = None
        self.area: Area | None = None
        self.comms: list[railmux.Comm] = []
        self.lines: list[list[int]] = []
        self.awaited = self.number = 1
        self.counts = {"sessions": 0, "comms": 0, "turns": 0, "lines": 0, "awaited": 0}
        self.refused = ""

    def renew(self) -> None:
        """Another communicator. RailmuxError."""
        for comm in self.comms:
            comm.abort()
        for comm in self.comms:
            comm.destroy()
        self.comms, self.lines, self.number = [], [], 1
        if self.session is None:
            self.session = railmux.Session(name="bench-hostile")
            self.counts["sessions"] += 1
        session, made = self.session, self.session.new_id()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            joins = [pool.submit(session.comm, made, 2, rank, self.gpu, railmux.DEVICE_CALLS) for rank in range(2)]
        self.comms = [join.result() for join in joins]
        self.counts["comms"] += 1
        for comm in self.comms:
            *lines, [address] = templates(comm, self.memory)
            self.lines += lines
        if not self.area:
            self.area = Area(self.torch, address)
            self.awaited = self.area.counter() + 1

    def turn(self, dice: random.Random, elsewhere: Area | None) -> None:
        if not self.comms or self.counts["turns"] % self.renew_every == 0:
            try:
                self.renew()
            except railmux.RailmuxError as error:  # nobody serves that session any more
                self.refused = str(error)
                self.session, self.area, self.comms = None, None, []  # (not closed: that may wait)
                time.sleep(0.5)
                return
        assert self.area
        kind = dice.choices(self.kinds, [KINDS[kind] or 1 for kind in self.kinds])[0]
        if kind == "nothing":
            written, heard = 1, 0
        else:
            written, heard = turn(dice, kind, elsewhere or self.area, self.lines, self.awaited, self.number)
        self.number += written
        if not elsewhere:
            self.awaited += heard
            self.counts["awaited"] += heard
        self.counts["turns"] += 1
        self.counts["lines"] += 0 if elsewhere else written
        self.torch.cuda.synchronize()


def write(crew: crews.Crew, options: argparse.Namespace, gpu: int) -> dict[str, Any]:
    import torch

    torch.cuda.set_device(gpu)
    dice = random.Random(options.seed * 1000 + crew.rank)
    folder = pathlib.Path(crew.folder)
    own, writer = Area(torch, None), Writer(torch, gpu, options)
    writer.turn(dice, own)  # what has to be loaded and compiled, before it counts
    (folder / f"ready-{crew.rank}").touch()
    for phase in PHASES:
        while not (folder / f"go-{phase}").exists():
            time.sleep(0.002)
        while not (folder / f"over-{phase}").exists():
            writer.turn(dice, own if phase == "elsewhere" else None)
    return {**writer.counts, "refused": writer.refused}


def look(crew: crews.Crew, options: argparse.Namespace, one: small.Small, more: int) -> int:
    one.give(crew.rank + 1 + more)
    one.clear()
    one.call()
    return one.wrong(options.clients * (options.clients + 1) / 2 + options.clients * more)


def call(crew: crews.Crew, options: argparse.Namespace, one: small.Small) -> dict[str, Any]:
    """As in churn.py: a sum that is larger than it may be tells all after the same call that it is the last of a phase.

    Before a call that is looked at, the inputs change and the output is cleared, so that neither an old result nor one that
    comes after the call's end passes for its own. Ranks are apart after that: such a call is not timed."""
    folder = pathlib.Path(crew.folder)
    wrong = looks = 0
    found: dict[str, Any] = {}
    while not all((folder / f"ready-{rank}").exists() for rank in range(options.clients, crew.ranks)):
        time.sleep(0.01)
    for _ in range(50):
        one.call()
    for phase in ("quiet", *PHASES):
        times: list[float] = []
        end = time.monotonic() + (options.seconds if phase in PHASES else 3)
        if crew.rank == 0:
            (folder / f"go-{phase}").touch()
        one.give(crew.rank + 1)
        crew_over = False
        while not times or one.first() < OVER:
            start = time.perf_counter()
            one.call()
            times.append(1e6 * (time.perf_counter() - start))
            if len(times) % LOOK_EVERY == 0 and one.first() < OVER:
                wrong += look(crew, options, one, len(times) // LOOK_EVERY % 7)
                looks += 1
            elif crew.rank == 0 and not crew_over and time.monotonic() > end:
                crew_over = True
                (folder / f"over-{phase}").touch()
                one.give(OVER)
        found[phase] = times[50:-1] or times
    return {**found, "wrong": wrong, "looks": looks}


def become(crew: crews.Crew, options: argparse.Namespace) -> None:
    """Another user, who may not see the folders that the libraries are in."""
    import torch  # noqa: F401

    railmux.library()
    plugin = pathlib.Path(crew.folder) / f"plugin-{crew.rank}.so"
    shutil.copy(pathlib.Path(os.environ["BENCH_LIB"]) / "librailmux-hip.so", plugin)
    plugin.chmod(0o755)
    os.environ["RAILMUX_CLIENT_PLUGIN"] = str(plugin)
    os.setgroups([])  # the group stays: it is that of the daemon's socket
    os.setresuid(options.uid, options.uid, options.uid)
    os.environ["HOME"] = "/"


def rank_main(crew: crews.Crew, options: argparse.Namespace) -> None:
    os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "8"  # or MPS has no room for so many processes on a GPU
    calling = crew.rank < options.clients
    if crew.rank == 0:
        for folder in (pathlib.Path(crew.folder), pathlib.Path(crew.folder).parent):
            if folder.name.startswith("rmx-"):
                folder.chmod(0o755)
    crew.barrier()
    if not calling and options.uid is not None:
        become(crew, options)
    gpu = crew.rank % options.clients
    if calling:
        session = railmux.Session(name="bench-beside")
        gpu %= session.gpus
        small.device_of(session, gpu, "hip")
    made = crew.gather(session.new_id().hex() if crew.rank == 0 else "", "ids")[0]
    served = crew.gather(session.gpus if calling else 0, "gpus")[0]
    if calling:
        comm = session.comm(bytes.fromhex(made), options.clients, crew.rank, gpu)
        found = call(crew, options, small.Small(comm, session, "hip"))
        found["error"] = comm.error()
    else:
        found = write(crew, options, gpu % served)
    everybody = crew.gather(found, "end")
    if crew.rank:
        return
    callers, writers = everybody[: options.clients], everybody[options.clients :]
    times = {
        phase: churn.describe([max(column) for column in zip(*(c[phase] for c in callers))]) for phase in ("quiet", *PHASES)
    }
    errors = [c["error"] for c in callers if c["error"]]
    errors += [f"nothing was written: {w['refused']}" for w in writers if not w["lines"]]
    detail = "; ".join(
        f"{phase}: p50 {t['p50_us']:.1f} us, p99 {t['p99_us']:.1f}, longest {t['max_us']:.0f}" for phase, t in times.items()
    )
    lines, awaited = (sum(w[key] for w in writers) for key in ("lines", "awaited"))
    name = f"{lines} lines of garbage, {awaited} with the number that is awaited"
    name += f", {min(c['looks'] for c in callers)} calls looked at"
    name += f", by uid {options.uid}" if options.uid is not None else ""
    document: dict[str, Any] = {
        "version": 1,
        **times,
        "writers": writers,
        "wrong": sum(c["wrong"] for c in callers),
        "events": [{"name": name, "outcome": "error" if errors else "as expected", "detail": detail}],
    }
    if errors:
        document["error"] = ", ".join(errors)
    options.json.write_text(json.dumps(document))


if __name__ == "__main__":
    crews.main(rank_main, parse())
