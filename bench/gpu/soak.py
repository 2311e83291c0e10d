#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Many operations on several communicators at once, each checked bit for bit.

On GPUs a communicator is a lane: a body of operations whose inputs are made on the GPU from a counter in its memory, so
that a captured body has other inputs at each replay, at the same addresses; the body also compares the outputs and counts
what is wrong. First a graph of two small all_reduces is replayed many times: its inputs and what is expected are rows of
tables, so that a replay is short. Then, in each round, every rank launches the bodies of all
lanes in an order of its own, eagerly or as a graph, on one of the lane's two streams, and waits. On the host backend a
lane is a thread.

What does not end is told as a hang, with the communicators' errors.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import pathlib
import random
import threading
import time
from typing import Any

import crew as crews
import railmux

LANES = 3
STEPS = 4  # of a lane in a round: what is launched without waiting must fit the stream's queue
REPLAYS = 64  # without waiting
HANG_S = 20.0
PERIOD = 17  # sums of 15 ranks are exact in bf16


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--backend", choices=("hip", "host"), default="hip")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--replays", type=int, default=1000, help="of one graph (default %(default)s)")
    parser.add_argument("--operations", type=int, default=100_000, help="in rounds, of a rank (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="default: a fresh one, which is printed")
    parser.add_argument("--json", type=pathlib.Path, required=True)
    return parser.parse_args()


class GpuLane:
    """One rank of a communicator, with its buffers and graphs. The device is current."""

    # operation and elements of each rank's block: inlined, one-shot, two-shot, odd
    WORK = (
        (("all_reduce", 500), ("all_reduce", 32768), ("all_gather", 4096), ("all_reduce", 1 << 20)),
        (("all_reduce", 1), ("broadcast", 100_003), ("reduce_scatter", 8192), ("all_reduce", 131_071)),
        (("all_to_all", 4096), ("all_reduce", 2048), ("all_gather", 77_777), ("all_reduce", 8 << 20)),
    )

    def __init__(self, comm: railmux.Comm, rank: int, ranks: int, number: int) -> None:
        import torch

        self.torch = torch
        self.comm, self.rank, self.ranks, self.number = comm, rank, ranks, number
        self.work = self.WORK[number % len(self.WORK)]
        self.streams = [torch.cuda.Stream(), torch.cuda.Stream()]
        self.turn = torch.zeros(1, dtype=torch.int32, device="cuda")
        self.wrong = torch.zeros(len(self.work), dtype=torch.int64, device="cuda")
        self.bodies = 0
        self.buffers = []
        for op, count in self.work:
            whole = count * (1 if op in ("all_reduce", "broadcast") else ranks)
            n_in = count if op == "all_gather" else whole
            n_out = count if op == "reduce_scatter" else whole
            make = lambda n: torch.empty(n, dtype=torch.bfloat16, device="cuda")
            positions = torch.arange(whole, dtype=torch.int32, device="cuda")
            self.buffers.append((make(n_in), make(n_out), positions))
        self.last = self.streams[0]
        torch.cuda.synchronize()  # what was made on the default stream
        with torch.cuda.stream(self.last):
            self.body()  # makes the buffers known to the daemon, which a capture could not
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=self.streams[0], capture_error_mode="thread_local"):
            self.body()

    def data(self, rank: int, positions: Any) -> Any:
        """Of one rank in this turn."""
        return ((positions + 7 * rank + self.number) * (self.turn % 11 + 1) + 3 * self.turn) % PERIOD

    def expected(self, op: str, count: int, positions: Any) -> Any:
        mine = slice(self.rank * count, (self.rank + 1) * count)
        everyone = range(self.ranks)
        if op == "all_reduce":
            return sum(self.data(r, positions) for r in everyone)
        if op == "broadcast":
            return self.data(0, positions)
        if op == "reduce_scatter":
            return sum(self.data(r, positions[mine]) for r in everyone)
        if op == "all_gather":
            return self.torch.cat([self.data(r, positions[:count]) for r in everyone])
        return self.torch.cat([self.data(r, positions[mine]) for r in everyone])

    def call(self, op: str, count: int, source: Any, out: Any) -> None:
        stream = self.torch.cuda.current_stream().cuda_stream
        a, b, kind = source.data_ptr(), out.data_ptr(), railmux.BFLOAT16
        if op == "broadcast":
            self.comm.broadcast(a, b, count, kind, 0, stream)
        else:
            getattr(self.comm, op)(a, b, count, kind, stream=stream)

    def body(self) -> None:
        self.turn.add_(1)
        for index, ((op, count), (source, out, positions)) in enumerate(zip(self.work, self.buffers)):
            source.copy_(self.data(self.rank, positions[: source.numel()]))
            out.fill_(-1)
            self.call(op, count, source, out)
            self.wrong[index] += (out != self.expected(op, count, positions)).sum()

    def step(self, stream: int, captured: bool) -> None:
        """Launches a body; the same number of times on all ranks."""
        here = self.streams[stream]
        here.wait_stream(self.last)
        self.last = here
        self.bodies += 1
        with self.torch.cuda.stream(here):
            if captured:
                self.graph.replay()
            else:
                self.body()

    def wait(self, seconds: float) -> bool:
        """False: not over by then."""
        event = self.torch.cuda.Event()
        event.record(self.last)
        end = time.monotonic() + seconds
        while not event.query():
            if time.monotonic() > end:
                return False
            time.sleep(0.0002)
        return True

    def operations(self) -> int:
        return self.bodies * len(self.work)

    def wrong_elements(self) -> int:
        return int(self.wrong.sum().item())


class ReplayLane(GpuLane):
    """The same with short bodies: one all_reduce goes inline, one in two hops."""

    TURNS = 11 * PERIOD  # after which the data repeats
    WORK = ((("all_reduce", 500), ("all_reduce", 32768)),)

    def prepare(self) -> None:
        turns = self.torch.arange(self.TURNS, dtype=self.torch.int32, device="cuda")[:, None]
        self.tables = []
        for _, _, positions in self.buffers:
            mine, whole = (self.of_turn(turns, r, positions) for r in (self.rank, range(self.ranks)))
            self.tables.append((mine, whole))
        self.row = self.torch.zeros(1, dtype=self.torch.int64, device="cuda")

    def of_turn(self, turns: Any, ranks: Any, positions: Any) -> Any:
        self.turn = turns
        each = [self.data(r, positions[None, :]) for r in (ranks if isinstance(ranks, range) else [ranks])]
        return sum(each).to(self.torch.bfloat16)

    def body(self) -> None:
        if not hasattr(self, "tables"):
            self.prepare()
        self.row.add_(1).remainder_(self.TURNS)
        for index, ((op, count), (source, out, _)) in enumerate(zip(self.work, self.buffers)):
            mine, whole = self.tables[index]
            self.torch.index_select(mine, 0, self.row, out=source.view(1, -1))
            out.fill_(-1)
            self.call(op, count, source, out)
            self.wrong[index] += (out != whole.index_select(0, self.row)[0]).sum()


class HostLane:
    """The same for host memory, smaller; a step is done when it returns."""

    COUNTS = (1, 100, 3001)

    def __init__(self, session: railmux.Session, comm: railmux.Comm, rank: int, ranks: int, number: int) -> None:
        self.comm, self.rank, self.ranks, self.number = comm, rank, ranks, number
        size = max(self.COUNTS)
        self.source = (ctypes.c_int32 * size).from_address(session.alloc(4 * size))
        self.out = (ctypes.c_int32 * size * ranks).from_address(session.alloc(4 * size * ranks))
        self.turn = self.done = self.bad = 0

    def data(self, rank: int, count: int) -> list[int]:
        return [((i + 7 * rank + self.number) * (self.turn % 11 + 1) + 3 * self.turn) % PERIOD for i in range(count)]

    def step(self, stream: int = 0, captured: bool = False) -> None:
        del stream, captured
        a, b, kind = ctypes.addressof(self.source), ctypes.addressof(self.out), railmux.INT32
        for count in self.COUNTS:
            self.turn += 1
            each = [self.data(rank, count) for rank in range(self.ranks)]
            self.source[:count] = each[self.rank]
            if self.turn % 2:
                self.comm.all_reduce(a, b, count, kind)
                expected = [sum(column) for column in zip(*each)]
            else:
                self.comm.all_gather(a, b, count, kind)
                expected = [value for one in each for value in one]
            found = (ctypes.c_int32 * len(expected)).from_address(b)
            self.bad += sum(x != y for x, y in zip(found, expected))
            self.done += 1

    def wait(self, seconds: float) -> bool:
        return seconds > 0

    def operations(self) -> int:
        return self.done

    def wrong_elements(self) -> int:
        return self.bad


class Soak:
    """One rank."""

    def __init__(self, crew: crews.Crew, options: argparse.Namespace) -> None:
        self.crew = crew
        self.options = options
        begin = time.monotonic()
        self.end = begin + options.seconds
        self.replays_end = begin + 0.45 * options.seconds
        self.session = railmux.Session(name="bench-soak")
        self.gpu = crew.rank % self.session.gpus
        self.hang: list[str] = []
        self.events: list[dict[str, str]] = []  # of rank 0
        self.operations = self.wrong = 0
        self.errors: list[str] = []
        if options.backend == "hip":
            import torch

            torch.cuda.set_device(railmux.torch_device(self.session, self.gpu))
        self.lanes: list[Any] = [self.lane(number) for number in range(LANES)]
        seed = crew.gather(options.seed or random.SystemRandom().randrange(1, 1 << 32))[0]
        self.random = random.Random(seed * 64 + crew.rank)
        self.seed = seed

    def lane(self, number: int, kind: type[GpuLane] = GpuLane) -> Any:
        made = self.crew.from_first(self.session.new_id() if self.crew.rank == 0 else None)
        comm = self.session.comm(made, self.crew.ranks, self.crew.rank, self.gpu)
        if self.options.backend == "hip":
            return kind(comm, self.crew.rank, self.crew.ranks, number)
        return HostLane(self.session, comm, self.crew.rank, self.crew.ranks, number)

    # ---- one graph again and again -------------------------------------------------------------------------------
    def replays(self) -> None:
        lane, done = (self.lane(0, ReplayLane) if self.options.backend == "hip" else self.lanes[0]), 0
        if lane is not self.lanes[0]:
            self.lanes.append(lane)  # so that what it finds counts
        begin = time.monotonic()
        over = False
        while done < self.options.replays and not over:
            batch = min(REPLAYS, self.options.replays - done)
            try:
                for _ in range(batch):
                    lane.step(0, True)
                self.wait(lane)
            except railmux.RailmuxError as error:
                self.hang.append(f"rank {self.crew.rank}: {error}")
            done += batch
            over = any(self.crew.gather(bool(self.hang) or time.monotonic() > self.replays_end, "replays"))
        self.note(f"a graph with other inputs each time, {done} replays, {time.monotonic() - begin:.0f} s")

    # ---- all lanes in any order ----------------------------------------------------------------------------------
    def wait(self, lane: Any) -> None:
        if not lane.wait(HANG_S):
            self.hang.append(f"rank {self.crew.rank}, lane {lane.number}: {lane.comm.error() or 'no error'}")

    def round_gpu(self) -> None:
        order = [lane for lane in self.lanes[:LANES] for _ in range(STEPS)]
        self.random.shuffle(order)
        for lane in order:
            lane.step(self.random.randrange(2), self.random.random() < 0.6)
        for lane in self.lanes:
            self.wait(lane)

    def round_host(self) -> None:
        def run(lane: HostLane) -> None:
            try:
                for _ in range(STEPS):
                    lane.step()
            except railmux.RailmuxError as error:
                self.hang.append(f"rank {self.crew.rank}, lane {lane.number}: {error}")

        threads = [threading.Thread(target=run, args=(lane,)) for lane in self.lanes]
        for thread in self.random.sample(threads, len(threads)):
            thread.start()
        for thread in threads:
            thread.join()

    def orders(self) -> None:
        before = sum(lane.operations() for lane in self.lanes)
        begin = time.monotonic()
        rounds, over = 0, False
        while not over:
            rounds += 1
            if self.options.backend == "hip":
                self.round_gpu()
            else:
                self.round_host()
            done = sum(lane.operations() for lane in self.lanes) - before  # the same on all ranks
            over = any(self.crew.gather(bool(self.hang) or time.monotonic() > self.end, "round"))
            over = over or done >= self.options.operations
        name = f"{LANES} communicators in any order, {rounds} rounds of {self.crew.ranks} ranks, {time.monotonic() - begin:.0f} s"
        self.note(name)

    # ---- what was found ------------------------------------------------------------------------------------------
    def note(self, name: str) -> None:
        """Raises RuntimeError if it cannot go on."""
        states = self.crew.gather(
            {
                "operations": sum(lane.operations() for lane in self.lanes),
                "wrong": 0 if self.hang else sum(lane.wrong_elements() for lane in self.lanes),
                "errors": [error for error in (lane.comm.error() for lane in self.lanes) if error],
                "hang": self.hang,
            },
            "state",
        )
        hangs = [text for state in states for text in state["hang"]]
        errors = [text for state in states for text in state["errors"]]
        operations, wrong = states[0]["operations"], sum(state["wrong"] for state in states)
        detail = f"{operations - self.operations} operations of each rank. {'; '.join(hangs + errors)}".strip()
        outcome = "did not end" if hangs else "error" if errors else "wrong" if wrong > self.wrong else "done"
        self.events.append({"name": name, "outcome": outcome, "detail": detail})
        self.operations, self.wrong, self.errors = operations, wrong, hangs + errors
        self.write()
        if hangs or errors:
            raise RuntimeError(f"{name}: {'; '.join(hangs + errors)}")

    def write(self) -> None:
        if self.crew.rank:
            return
        document = {
            "version": 1,
            "seed": self.seed,
            "operations": self.operations,
            "wrong": self.wrong,
            "events": self.events,
        }
        if self.errors:
            document["error"] = "; ".join(self.errors)
        part = self.options.json.with_suffix(".part")
        part.write_text(json.dumps(document, indent=1))
        os.replace(part, self.options.json)


def rank_main(crew: crews.Crew, options: argparse.Namespace) -> None:
    soak = Soak(crew, options)
    if options.replays:
        soak.replays()
    if options.operations:
        soak.orders()


if __name__ == "__main__":
    crews.main(rank_main, parse())
