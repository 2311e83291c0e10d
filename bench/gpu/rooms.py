#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Large calls of more communicators than a GPU has room for, begun in other orders by each rank.

For railmuxd with gpu.exchange on. In each round every rank calls one all_reduce on each of several communicators, each
on a stream of its own: rank 0 from the first communicator on, the others from another one on. Nothing but the order is
different, so it must end, with right results; how long a round takes says whether kernels had to leave for each other
(client/hip/exchange_leave.h). Beside it the time of a call for which the other ranks are late.

Then transfers, whose kernels leave much later: rank 0 begins large ones with all others on several communicators and makes a
call on another one, the others make that call first. It must find room for its blocks beside those that wait, and so
must be over long before the others begin with the transfers.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import time
from typing import Any

import crew as crews
import railmux

PERIOD = 13  # sums of 8 ranks are exact in bf16
COUNT = 8 << 20  # elements of bf16: 16 MiB, which go in chunks, of 128 blocks
LATE_S = 0.2
TRANSFER = 32 << 20  # elements of bf16 for each rank: more than what fits into the areas
STUCK_S = 3.0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--backend", choices=("hip",), default="hip")
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--comms", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--turns", type=int, default=4, help="of each kind of call beside transfers")
    parser.add_argument("--json", type=pathlib.Path, required=True)
    return parser.parse_args()


class One:
    """A communicator, with its stream and tensors."""

    def __init__(self, torch: Any, comm: railmux.Comm, seed: int, rank: int, ranks: int, count: int = COUNT) -> None:
        self.torch, self.comm, self.seed, self.count = torch, comm, seed, count
        self.stream = torch.cuda.Stream()
        at = torch.arange(count, dtype=torch.int32, device="cuda")
        self.input = ((at + 5 * rank + seed) % PERIOD).to(torch.bfloat16)
        self.expected = torch.zeros_like(self.input)
        for other in range(ranks):
            self.expected += ((at + 5 * other + seed) % PERIOD).to(torch.bfloat16)
        self.out = torch.empty_like(self.input)
        torch.cuda.synchronize()

    def call(self) -> None:
        self.comm.all_reduce(self.input.data_ptr(), self.out.data_ptr(), self.count, railmux.BFLOAT16, stream=self.stream.cuda_stream)

    def wrong(self) -> int:
        wrong = int((self.out != self.expected).sum().item())
        self.out.fill_(-1)
        return wrong


class Transfers:
    """To and from each other rank, on communicators with a stream each."""

    def __init__(self, torch: Any, crew: crews.Crew, session: railmux.Session, gpu: int, comms: int) -> None:
        self.torch, self.rank, self.ranks = torch, crew.rank, crew.ranks
        self.comms, self.streams = [], [torch.cuda.Stream() for _ in range(comms)]
        for _ in range(comms):
            made = crew.from_first(session.new_id() if crew.rank == 0 else None)
            self.comms.append(session.comm(made, crew.ranks, crew.rank, gpu, railmux.ORDERED_TRANSFERS))
        at = torch.arange(TRANSFER, dtype=torch.int32, device="cuda")
        self.data = [((at * 3 + 5 * r) % PERIOD).to(torch.bfloat16) for r in range(crew.ranks)]  # of each sender
        self.out = torch.empty((comms, crew.ranks, TRANSFER), dtype=torch.bfloat16, device="cuda")
        torch.cuda.synchronize()

    def call(self) -> None:
        for k, comm in enumerate(self.comms):
            stream = self.streams[k].cuda_stream
            with railmux.group():
                for other in range(self.ranks):
                    if other != self.rank:
                        comm.send(self.data[self.rank].data_ptr(), TRANSFER, railmux.BFLOAT16, other, stream)
                        comm.recv(self.out[k][other].data_ptr(), TRANSFER, railmux.BFLOAT16, other, stream)

    def wrong(self) -> int:
        wrong = 0
        for out in self.out:
            wrong += sum(int((out[r] != self.data[r]).sum().item()) for r in range(self.ranks) if r != self.rank)
        self.out.fill_(-1)
        return wrong


def ended(stream: Any) -> bool:
    """In STUCK_S."""
    end = time.monotonic() + STUCK_S
    while not stream.query():
        if time.monotonic() > end:
            return False
    return True


def beside(torch: Any, crew: crews.Crew, transfers: Transfers, one: One, turns: int) -> dict[str, Any]:
    """Calls beside transfers that wait: the longest, in ms, how many were stuck, how much was wrong."""
    longest, stuck, wrong = 0.0, 0, 0
    for _ in range(turns):
        if crew.rank == 0:
            transfers.call()
        crew.barrier()
        begin = time.monotonic()
        one.call()
        stuck += not ended(one.stream)
        longest = max(longest, 1000 * (time.monotonic() - begin))
        crew.barrier()
        if crew.rank:
            transfers.call()
        torch.cuda.synchronize()
        wrong += one.wrong() + transfers.wrong()
        torch.cuda.synchronize()
        crew.barrier()
    return {"longest": max(crew.gather(longest)), "stuck": max(crew.gather(stuck)), "wrong": crew.total(wrong)}


def beside_all(torch: Any, crew: crews.Crew, session: railmux.Session, gpu: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Of calls in chunks, in long chunks by few blocks and in lines, and one or two communicators with transfers."""
    events = []
    for comms in (1, 2):
        transfers = Transfers(torch, crew, session, gpu, comms)
        for name, count, blocks in (("chunks", COUNT, 0), ("long chunks", COUNT, 16), ("lines", 1 << 18, 0)):
            made = crew.from_first(session.new_id() if crew.rank == 0 else None)
            comm = session.comm(made, crew.ranks, crew.rank, gpu, max_blocks=blocks)
            one = One(torch, comm, comms, crew.rank, crew.ranks, count)
            found = beside(torch, crew, transfers, one, options.turns)
            comm.destroy()
            bad = found["stuck"] or found["wrong"]
            detail = "longest call {longest:.2f} ms, {stuck} stuck, {wrong} wrong".format(**found)
            events.append({"name": f"{name} beside transfers of {comms} that wait", "outcome": "error" if bad else "done", "detail": detail})
        for comm in transfers.comms:
            comm.destroy()
    return events


def rank_main(crew: crews.Crew, options: argparse.Namespace) -> None:
    import torch

    session = railmux.Session(name="bench-rooms")
    gpu = crew.rank % session.gpus
    torch.cuda.set_device(railmux.torch_device(session, gpu))
    ones = []
    for i in range(options.comms):
        made = crew.from_first(session.new_id() if crew.rank == 0 else None)
        ones.append(One(torch, session.comm(made, crew.ranks, crew.rank, gpu), i, crew.rank, crew.ranks))
    times: list[float] = []
    late: list[float] = []
    wrong, end = 0, time.monotonic() + options.seconds
    for turn in range(options.rounds):
        if crew.total(time.monotonic() > end):
            break
        begin = time.monotonic()
        for i in range(options.comms):
            ones[(i + crew.rank * options.comms // crew.ranks) % options.comms].call()
        torch.cuda.synchronize()
        times.append(1000 * (time.monotonic() - begin))
        wrong += sum(one.wrong() for one in ones)
        torch.cuda.synchronize()
        crew.barrier()
    for turn in range(min(10, len(times))):  # the others come so late that what waits has left; then in time
        for pause in (LATE_S, 0.0):
            crew.barrier()
            if crew.rank:
                time.sleep(pause)
            begin = time.monotonic()
            ones[0].call()
            torch.cuda.synchronize()
            late.append(1000 * (time.monotonic() - begin))
            wrong += ones[0].wrong()
            torch.cuda.synchronize()
    events = beside_all(torch, crew, session, gpu, options)
    rounds, last, total = crew.gather(times), crew.gather(late), crew.total(wrong)
    errors = [error for one in ones for error in crew.gather(one.comm.error()) if error]
    if crew.rank == 0:
        slowest = sorted(max(t) for t in zip(*rounds, strict=True))
        first = last[1]  # of a rank that came late
        detail = (
            f"rounds of {options.comms} calls of {COUNT * 2 >> 20} MiB: median {slowest[len(slowest) // 2]:.1f} ms, "
            f"longest {slowest[-1]:.1f}; a call that others wait for since {LATE_S} s: "
            f"{sorted(first[0::2])[len(first) // 4]:.2f} ms, in time {sorted(first[1::2])[len(first) // 4]:.2f}"
        )
        name = f"{len(slowest)} rounds of {options.comms} communicators in other orders"
        document = {
            "wrong": total,
            "operations": len(slowest) * options.comms,
            "events": [{"name": name, "outcome": "error" if total or errors else "done", "detail": detail}, *events],
        }
        if errors:
            document["error"] = ", ".join(errors)
        options.json.write_text(json.dumps(document))
    for one in ones:
        one.comm.destroy()
    session.close()


if __name__ == "__main__":
    crews.main(rank_main, parse())
