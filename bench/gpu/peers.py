#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Collectives of other libraries, measured the way railmux-perf measures ours (tools/perf/bench.c).

    peers.py --library nccl|symm --ranks N --json FILE [--modes graph,eager] [--min BYTES] [--max BYTES] [--ops ...]

One process per GPU, bf16, sum. Per line: a call is verified; a graph of 20 calls is replayed, warm-up first, then
measured replays back to back with an event after each; a sample is the time of a replay divided by its calls, taken at
its slowest rank; a call is verified again. Sizes are those of nccl-tests (the whole of all ranks but for all_reduce,
broadcast and sendrecv).

symm: symmetric memory of torch, its one-shot and two-shot all-reduce through peer mappings. What needs NVLink multicast
is not used, and NCCL's use of it is switched off by the environment.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

import crew as crews

GRAPH_CALLS = 20
PERIOD = 13  # of the data: sums of 16 ranks stay exact in bf16
ONE_SHOT_MAX = 8 << 20
OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "all_to_all_v", "sendrecv")


def bus_factor(op: str, ranks: int) -> float:
    """As railmux-perf has it."""
    if op in ("broadcast", "sendrecv"):
        return 1.0
    return (2 if op == "all_reduce" else 1) * (ranks - 1) / ranks


def count_of(op: str, size: int, ranks: int) -> int:
    """Elements of bf16, as railmux-perf has them: the argument of the call."""
    return size // 2 if op in ("all_reduce", "broadcast", "sendrecv") else size // 2 // ranks


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", choices=("nccl", "symm"), required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--json", type=pathlib.Path, required=True)
    parser.add_argument("--modes", default="graph,eager")
    parser.add_argument("--ops", default=",".join(OPS))
    parser.add_argument("--min", type=int, default=1 << 10)
    parser.add_argument("--max", type=int, default=64 << 20)
    parser.add_argument("--factor", type=int, default=2)
    parser.add_argument("--replays", type=int, default=40)
    parser.add_argument("--warmup", type=int, default=5)
    return parser.parse_args()


class Case:
    """An operation at one size: how to call it, how to prepare and to check it."""

    def __init__(self, name: str, op: str, size: int, call: Callable[[], Any], inputs: Any, outputs: Any, expected: Any) -> None:
        self.name = name  # "nccl", "one_shot", "two_shot"
        self.op = op
        self.size = size
        self.call = call
        self.inputs = inputs
        self.outputs = outputs
        self.expected = expected  # of the outputs, after one call on fresh inputs
        self.fresh = inputs.clone()

    def wrong(self, call: Callable[[], Any]) -> int:
        if self.outputs.data_ptr() != self.inputs.data_ptr():
            self.outputs.fill_(-1)
        self.inputs.copy_(self.fresh)
        call()
        return int((self.outputs != self.expected).sum().item())


class Peers:
    """One rank."""

    def __init__(self, crew: crews.Crew, options: argparse.Namespace) -> None:
        import torch
        import torch.distributed as dist

        self.crew = crew
        self.options = options
        self.torch = torch
        self.dist = dist
        torch.cuda.set_device(crew.rank % torch.cuda.device_count())
        self.device = torch.device("cuda", torch.cuda.current_device())
        dist.init_process_group(
            "nccl", init_method=f"file://{crew.folder}/store", rank=crew.rank, world_size=crew.ranks, device_id=self.device
        )
        self.stream = torch.cuda.Stream()
        self.results: list[dict[str, Any]] = []
        self.errors: list[str] = []

    def data(self, rank: int, count: int) -> Any:
        torch = self.torch
        position = torch.arange(count, device=self.device, dtype=torch.int32)
        return ((position + 7 * rank) % PERIOD).to(torch.bfloat16)

    def total(self, count: int) -> Any:
        whole = self.torch.zeros(count, device=self.device, dtype=self.torch.float32)
        for rank in range(self.crew.ranks):
            whole += self.data(rank, count)
        return whole.to(self.torch.bfloat16)

    # ---- cases ---------------------------------------------------------------------------------------------------
    def nccl_case(self, op: str, size: int) -> Case:
        torch, dist, n, rank = self.torch, self.dist, self.crew.ranks, self.crew.rank
        count = max(size // 2 // n, 1) * n
        block = count // n
        part = slice(rank * block, (rank + 1) * block)
        whole = self.data(rank, count)
        if op == "all_reduce":
            return Case("nccl", op, size, lambda: dist.all_reduce(whole), whole, whole, self.total(count))
        if op == "broadcast":
            return Case("nccl", op, size, lambda: dist.broadcast(whole, 0), whole, whole, self.data(0, count))
        if op == "all_gather":
            mine, out = self.data(rank, block), torch.empty_like(whole)
            expected = torch.cat([self.data(r, block) for r in range(n)])
            return Case("nccl", op, size, lambda: dist.all_gather_into_tensor(out, mine), mine, out, expected)
        if op == "reduce_scatter":
            out = torch.empty(block, device=self.device, dtype=torch.bfloat16)
            expected = self.total(count)[part].clone()
            return Case("nccl", op, size, lambda: dist.reduce_scatter_tensor(out, whole), whole, out, expected)
        if op == "all_to_all":
            out = torch.empty_like(whole)
            expected = torch.cat([self.data(r, count)[part] for r in range(n)])
            return Case("nccl", op, size, lambda: dist.all_to_all_single(out, whole), whole, out, expected)
        if op == "all_to_all_v":  # of equal parts, but told so in numbers
            out = torch.empty_like(whole)
            expected = torch.cat([self.data(r, count)[part] for r in range(n)])
            parts = [block] * n
            return Case("nccl", op, size, lambda: dist.all_to_all_single(out, whole, parts, parts), whole, out, expected)
        if op == "sendrecv":  # to the next rank, from the one before
            out = torch.empty_like(whole)

            def both() -> None:
                sends = [dist.P2POp(dist.isend, whole, (rank + 1) % n), dist.P2POp(dist.irecv, out, (rank - 1) % n)]
                for work in dist.batch_isend_irecv(sends):
                    work.wait()

            return Case("nccl", op, size, both, whole, out, self.data((rank - 1) % n, count))
        raise ValueError(f"no operation {op}")

    def symm_cases(self, size: int) -> list[Case]:
        import torch.distributed._symmetric_memory as symm_mem

        torch, count = self.torch, size // 2
        group = self.dist.group.WORLD.group_name
        shared = symm_mem.empty(count, dtype=torch.bfloat16, device=self.device)
        symm_mem.rendezvous(shared, group)
        shared.copy_(self.data(self.crew.rank, count))
        expected = self.total(count)
        cases = []
        if size <= ONE_SHOT_MAX:
            out = torch.empty_like(expected)
            one = lambda: torch.ops.symm_mem.one_shot_all_reduce_out(shared, "sum", group, out)
            cases.append(Case("one_shot", "all_reduce", size, one, shared, out, expected))
        if count % (8 * self.crew.ranks) == 0:
            two = lambda: torch.ops.symm_mem.two_shot_all_reduce_(shared, "sum", group)
            cases.append(Case("two_shot", "all_reduce", size, two, shared, shared, expected))
        return cases

    # ---- measuring -----------------------------------------------------------------------------------------------
    def samples(self, issue: Callable[[], Any], warmup: int, n: int, calls: int) -> list[float]:
        """us per call."""
        torch = self.torch
        events = [torch.cuda.Event(enable_timing=True) for _ in range(n + 1)]
        for _ in range(warmup):
            issue()
        torch.cuda.synchronize()
        self.crew.barrier()
        events[0].record()
        for event in events[1:]:
            issue()
            event.record()
        torch.cuda.synchronize()
        return [1e3 * a.elapsed_time(b) / calls for a, b in itertools.pairwise(events)]

    def capture(self, call: Callable[[], Any], calls: int) -> Any:
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
            for _ in range(calls):
                call()
        return graph

    def synced(self, call: Callable[[], Any]) -> Callable[[], None]:
        """All ranks begin with fresh data: another rank may read ours as soon as it calls."""

        def run() -> None:
            self.torch.cuda.synchronize()
            self.crew.barrier()
            call()
            self.torch.cuda.synchronize()
            self.crew.barrier()

        return run

    def measure(self, case: Case, mode: str) -> None:
        replays, warmup = self.options.replays, self.options.warmup
        wrong = case.wrong(self.synced(case.call))
        if mode == "graph":
            single, many = self.capture(case.call, 1), self.capture(case.call, GRAPH_CALLS)
            times = self.samples(many.replay, warmup, replays, GRAPH_CALLS)
            wrong += case.wrong(self.synced(single.replay))
        else:
            times = self.samples(case.call, 20, 5 * replays, 1)
            wrong += case.wrong(self.synced(case.call))
        case.inputs.copy_(case.fresh)  # in place, sums of sums would leave the range of the type
        times = self.crew.slowest(times)
        wrong = self.crew.total(wrong)
        algorithm_gbs = 1e-3 * case.size / crews.percentile(times, 50)
        self.results.append(
            {
                "library": self.options.library,
                "algorithm": case.name,
                "mode": mode,
                "op": case.op,
                "ranks": self.crew.ranks,
                "type": "bf16",
                "redop": "sum" if "reduce" in case.op else "none",
                "bytes": case.size,
                "count": count_of(case.op, case.size, self.crew.ranks),
                "in_place": int(case.inputs.data_ptr() == case.outputs.data_ptr()),
                "p50_us": crews.percentile(times, 50),
                "p99_us": crews.percentile(times, 99),
                "min_us": min(times),
                "algbw_gbs": algorithm_gbs,
                "busbw_gbs": algorithm_gbs * bus_factor(case.op, self.crew.ranks),
                "wrong": wrong,
            }
        )

    def write(self) -> None:
        if self.crew.rank:
            return
        torch = self.torch
        document = {
            "version": 1,
            "library": self.options.library,
            "torch": torch.__version__,
            "nccl": ".".join(str(v) for v in torch.cuda.nccl.version()),
            "results": self.results,
            "errors": self.errors,
        }
        part = self.options.json.with_suffix(".part")
        part.write_text(json.dumps(document, indent=1))
        os.replace(part, self.options.json)

    def run(self) -> None:
        options = self.options
        ops = options.ops.split(",") if options.library == "nccl" else ["all_reduce"]
        for op in ops:
            size = options.min
            while size <= options.max:
                cases = [self.nccl_case(op, size)] if options.library == "nccl" else self.symm_cases(size)
                for case in cases:
                    for mode in options.modes.split(","):
                        self.measure(case, mode)
                        self.write()  # whatever comes later, this is kept
                size *= options.factor
        print(f"{len(self.results)} lines, {sum(r['wrong'] for r in self.results)} wrong elements")


def rank_main(crew: crews.Crew, options: argparse.Namespace) -> None:
    Peers(crew, options).run()


if __name__ == "__main__":
    crews.main(rank_main, parse())
