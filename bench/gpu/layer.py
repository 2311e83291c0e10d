#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A decoder layer under tensor parallelism, in a CUDA graph, with different communication.

The GEMMs of a layer of Llama 3.1 (70B, 405B), each rank with its share of the weights, and an all-reduce after the output
projection and after the down projection. What lies between the GEMMs (attention, norms, activations) is left out: it is
the same for all. A graph holds several layers, each fed by the one before; a sample is a replay's time per layer, at its
slowest rank. Modes: none (no communication), nccl, symm (torch symmetric memory, the better of its two algorithms),
railmux.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import pathlib
import time
from collections.abc import Callable
from typing import Any

import crew as crews

LAYERS = 8
ROWS = (1, 16, 64, 256, 2048)


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    hidden: int
    query: int  # heads times their size
    keys: int  # the same for keys and for values
    inner: int


MODELS = (Model("70B", 8192, 8192, 1024, 28672), Model("405B", 16384, 16384, 1024, 53248))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--modes", default="none,nccl,symm,railmux")
    parser.add_argument("--rows", default=",".join(str(n) for n in ROWS))
    parser.add_argument("--models", default=",".join(model.name for model in MODELS))
    parser.add_argument("--replays", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--json", type=pathlib.Path, required=True)
    return parser.parse_args()


class Layers:
    """One rank."""

    def __init__(self, crew: crews.Crew, options: argparse.Namespace) -> None:
        import torch

        self.crew = crew
        self.options = options
        self.torch = torch
        self.modes = options.modes.split(",")
        self.end = time.monotonic() + options.seconds
        self.results: list[dict[str, Any]] = []
        self.comm: Any = None
        if "railmux" in self.modes:
            import railmux

            self.railmux = railmux
            self.session = railmux.Session(name="bench-layer")
            gpu = crew.rank % self.session.gpus
            torch.cuda.set_device(railmux.torch_device(self.session, gpu))
            made = crew.from_first(self.session.new_id() if crew.rank == 0 else None)
            self.comm = self.session.comm(made, crew.ranks, crew.rank, gpu)
        else:
            torch.cuda.set_device(crew.rank % torch.cuda.device_count())
        self.device = torch.device("cuda", torch.cuda.current_device())
        self.stream = torch.cuda.Stream()
        if {"nccl", "symm"} & set(self.modes):
            torch.distributed.init_process_group(
                "nccl", init_method=f"file://{crew.folder}/store", rank=crew.rank, world_size=crew.ranks, device_id=self.device
            )

    # ---- what a layer is made of ---------------------------------------------------------------------------------
    def weights(self, model: Model) -> list[Any]:
        """Random, of other values on each rank; the outputs keep about the size of the inputs."""
        torch, n = self.torch, self.crew.ranks
        torch.manual_seed(1000 + self.crew.rank)
        shapes = (
            (model.hidden, (model.query + 2 * model.keys) // n, model.hidden),
            (model.query // n, model.hidden, model.query),
            (model.hidden, 2 * model.inner // n, model.hidden),
            (model.inner // n, model.hidden, model.inner),
        )
        return [torch.randn(k, m, dtype=torch.bfloat16, device=self.device) * whole**-0.5 for k, m, whole in shapes]

    def buffer(self, rows: int, columns: int, shared: bool) -> Any:
        torch = self.torch
        if not shared:
            return torch.zeros(rows, columns, dtype=torch.bfloat16, device=self.device)
        import torch.distributed._symmetric_memory as symm_mem

        memory = symm_mem.empty(rows, columns, dtype=torch.bfloat16, device=self.device)
        symm_mem.rendezvous(memory, torch.distributed.group.WORLD.group_name)
        return memory.zero_()

    def reducers(self, mode: str, rows: int, columns: int) -> dict[str, tuple[Any, Any, Callable[[Any], Any]]]:
        """By algorithm: two buffers for the GEMMs' outputs, and what turns one into the sum of all ranks."""
        torch = self.torch
        if mode == "symm":
            one, two = self.buffer(rows, columns, True), self.buffer(rows, columns, True)
            outs = {one.data_ptr(): self.buffer(rows, columns, False), two.data_ptr(): self.buffer(rows, columns, False)}
            group = torch.distributed.group.WORLD.group_name

            def one_shot(memory: Any) -> Any:
                out = outs[memory.data_ptr()]
                torch.ops.symm_mem.one_shot_all_reduce_out(memory, "sum", group, out)
                return out

            def two_shot(memory: Any) -> Any:
                torch.ops.symm_mem.two_shot_all_reduce_(memory, "sum", group)
                return memory

            return {"one_shot": (one, two, one_shot), "two_shot": (one, two, two_shot)}
        one, two = self.buffer(rows, columns, False), self.buffer(rows, columns, False)

        def nothing(memory: Any) -> Any:
            return memory

        def nccl(memory: Any) -> Any:
            torch.distributed.all_reduce(memory)
            return memory

        def ours(memory: Any) -> Any:
            stream = torch.cuda.current_stream().cuda_stream
            address = memory.data_ptr()
            self.comm.all_reduce(address, address, memory.numel(), self.railmux.BFLOAT16, stream=stream)
            return memory

        return {mode: (one, two, {"none": nothing, "nccl": nccl, "railmux": ours}[mode])}

    # ---- measuring -----------------------------------------------------------------------------------------------
    def wrong_sum(self, memory: Any, reduce: Callable[[Any], Any]) -> int:
        """One sum of whole numbers, which is exact."""
        torch = self.torch
        position = torch.arange(memory.numel(), device=self.device, dtype=torch.int32).view_as(memory)
        memory.copy_((position + 7 * self.crew.rank) % 13)
        torch.cuda.synchronize()
        self.crew.barrier()
        found = reduce(memory).clone()
        torch.cuda.synchronize()
        self.crew.barrier()
        expected = sum(((position + 7 * rank) % 13).float() for rank in range(self.crew.ranks))
        return int((found.float() != expected).sum().item())

    def measure(self, model: Model, weights: list[Any], rows: int, mode: str) -> None:
        torch, n = self.torch, self.crew.ranks
        w_qkv, w_out, w_up, w_down = weights
        torch.manual_seed(rows)
        x = torch.randn(rows, model.hidden, dtype=torch.bfloat16, device=self.device)
        qkv, up = self.buffer(rows, w_qkv.shape[1], False), self.buffer(rows, w_up.shape[1], False)
        for algorithm, (first, second, reduce) in self.reducers(mode, rows, model.hidden).items():

            def layers(count: int, first: Any = first, second: Any = second, reduce: Callable[[Any], Any] = reduce) -> Any:
                here = x
                for _ in range(count):
                    torch.mm(here, w_qkv, out=qkv)
                    torch.mm(qkv[:, : model.query // n], w_out, out=first)
                    torch.mm(reduce(first), w_up, out=up)
                    torch.mm(up[:, : model.inner // n], w_down, out=second)
                    here = reduce(second)
                return here

            wrong = self.wrong_sum(first, reduce) if mode != "none" else 0
            with torch.cuda.stream(self.stream):
                layers(1)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                last = layers(LAYERS)
            times = self.replay(graph)
            bits = last.view(torch.int16).to(torch.int64)
            weight = torch.arange(bits.numel(), device=self.device).view_as(bits) % 8191 + 1
            same = len(set(self.crew.gather(int((bits * weight).sum().item())))) == 1
            finite = bool(torch.isfinite(last).all().item())
            self.results.append(
                {
                    "model": model.name,
                    "rows": rows,
                    "bytes": rows * model.hidden * 2,
                    "ranks": n,
                    "mode": mode,
                    "algorithm": algorithm,
                    "p50_us": crews.percentile(times, 50),
                    "min_us": min(times),
                    "wrong": self.crew.total(wrong + (mode == "railmux" and not (same and finite))),
                    "same_bits": same,
                }
            )
            del graph
            self.write()

    def replay(self, graph: Any) -> list[float]:
        """us per layer, of the slowest rank."""
        torch, n = self.torch, self.options.replays
        events = [torch.cuda.Event(enable_timing=True) for _ in range(n + 1)]
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
        self.crew.barrier()
        events[0].record()
        for event in events[1:]:
            graph.replay()
            event.record()
        torch.cuda.synchronize()
        return self.crew.slowest([1e3 * a.elapsed_time(b) / LAYERS for a, b in itertools.pairwise(events)])

    def write(self) -> None:
        if self.crew.rank == 0:
            part = self.options.json.with_suffix(".part")
            part.write_text(json.dumps({"version": 1, "layers": LAYERS, "results": self.results}))
            os.replace(part, self.options.json)

    def run(self) -> None:
        for model in (m for m in MODELS if m.name in self.options.models.split(",")):
            weights = self.weights(model)
            for rows in (int(word) for word in self.options.rows.split(",")):
                for mode in self.modes:
                    if self.crew.gather(time.monotonic() > self.end)[0]:
                        print("the time is over")
                        return
                    self.measure(model, weights, rows, mode)
            del weights
            self.torch.cuda.empty_cache()


def rank_main(crew: crews.Crew, options: argparse.Namespace) -> None:
    Layers(crew, options).run()


if __name__ == "__main__":
    crews.main(rank_main, parse())
