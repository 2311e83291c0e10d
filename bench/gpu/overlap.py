#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Decoder layers in two half-batches, in a CUDA graph: the sums of one half beside the matrix products of the other.

The GEMMs are those of layer.py, for each half; a half's sum is asked for when its GEMM is there, and waited for when the
half's next GEMM is to begin. In line (`serial`) the stream does one after the other; started (`overlap`) the sum goes
beside what follows. What is hidden is (serial - overlap) / (serial - none), with `none` the same without communication
and `serial` that of the same library with all the processors it wants. railmux also with fewer thread blocks
(max_blocks of rmx_comm_options), which leave more of the GPU to the GEMMs, if these can use what is left: with --leave
they are told to leave as many processors as the sums have blocks (cublasSetSmCountTarget).
"""

from __future__ import annotations

import argparse
import ctypes
import os
import pathlib
from collections.abc import Callable
from typing import Any

import crew as crews
import layer

ROWS = (128, 512, 1024, 4096)  # of a half


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--modes", default="none,nccl,railmux")
    parser.add_argument("--blocks", default="0,8,16,32,64", help="of railmux, 0: no bound")
    parser.add_argument("--leave", action="store_true", help="also with GEMMs that leave processors to that many blocks")
    parser.add_argument("--rows", default=",".join(str(n) for n in ROWS), help="of a half")
    parser.add_argument("--models", default=",".join(model.name for model in layer.MODELS))
    parser.add_argument("--replays", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--json", type=pathlib.Path, required=True)
    return parser.parse_args()


Start = Callable[[Any], Any]  # gives what Wait is called with
Wait = Callable[[Any], None]


class Halves(layer.Layers):
    """One rank."""

    def __init__(self, crew: crews.Crew, options: argparse.Namespace) -> None:
        super().__init__(crew, options)
        self.comms: dict[int, Any] = {}
        self.bits: dict[tuple[str, int, str, int], set[Any]] = {}
        if self.comm:
            self.comms[0] = self.comm
            for blocks in (int(word) for word in options.blocks.split(",") if int(word)):
                gpu = crew.rank % self.session.gpus
                made = crew.from_first(self.session.new_id() if crew.rank == 0 else None)
                self.comms[blocks] = self.session.comm(made, crew.ranks, crew.rank, gpu, max_blocks=blocks)

    def leave(self, processors: int) -> None:
        """To others, by this process's GEMMs from now on; 0: none."""
        library = next(line.split()[-1] for line in open("/proc/self/maps") if "/libcublas.so" in line)
        target = self.torch.cuda.get_device_properties(self.device).multi_processor_count - processors if processors else 0
        handle = ctypes.c_void_p(self.torch.cuda.current_blas_handle())
        if status := ctypes.CDLL(library).cublasSetSmCountTarget(handle, target):
            raise RuntimeError(f"cublasSetSmCountTarget: {status}")

    def ways(self, mode: str) -> list[tuple[str, int, Start, Wait]]:
        """Name, blocks, and the two functions."""
        torch = self.torch

        def nothing(_: Any) -> None:
            return None

        def stream() -> int:
            return torch.cuda.current_stream().cuda_stream

        if mode == "none":
            return [("none", 0, nothing, nothing)]
        if mode == "nccl":

            def in_line(memory: Any) -> None:
                torch.distributed.all_reduce(memory)

            def beside(memory: Any) -> Any:
                return torch.distributed.all_reduce(memory, async_op=True)

            return [("serial", 0, in_line, nothing), ("overlap", 0, beside, lambda work: work.wait())]

        def ours(comm: Any) -> Start:
            def call(memory: Any) -> None:
                comm.all_reduce(memory.data_ptr(), memory.data_ptr(), memory.numel(), self.railmux.BFLOAT16, stream=stream())

            return call

        def started(comm: Any) -> Start:
            def start(memory: Any) -> Any:
                address = memory.data_ptr()
                return comm.all_reduce_start(address, address, memory.numel(), self.railmux.BFLOAT16, stream=stream())

            return start

        found: list[tuple[str, int, Start, Wait]] = []
        for blocks, comm in self.comms.items():
            found.append(("serial", blocks, ours(comm), nothing))
            found.append(("overlap", blocks, started(comm), lambda request: request.wait_stream(stream())))
        return found

    def measure(self, model: layer.Model, weights: list[Any], rows: int, mode: str) -> None:
        torch, n = self.torch, self.crew.ranks
        w_qkv, w_out, w_up, w_down = weights
        torch.manual_seed(rows)
        x = [torch.randn(rows, model.hidden, dtype=torch.bfloat16, device=self.device) for _ in range(2)]
        columns = (w_qkv.shape[1], model.hidden, w_up.shape[1], model.hidden)
        qkv, first, up, second = ([self.buffer(rows, n_columns, False) for _ in range(2)] for n_columns in columns)
        ways = [(*way, 0) for way in self.ways(mode)]
        if self.options.leave:
            ways += [(*way[:4], way[1]) for way in ways if way[1] and way[0] == "overlap"]
            ways += [(*way[:4], int(n)) for way in ways if mode == "none" for n in self.options.blocks.split(",") if int(n)]
        for name, blocks, start, wait, left in ways:

            def layers(count: int, start: Start = start, wait: Wait = wait) -> list[Any]:
                here, pending = list(x), [None, None]
                for turn in range(count):
                    for h in range(2):
                        if turn:
                            wait(pending[h])
                        torch.mm(here[h], w_qkv, out=qkv[h])
                        torch.mm(qkv[h][:, : model.query // n], w_out, out=first[h])
                        pending[h] = start(first[h])
                    for h in range(2):
                        wait(pending[h])
                        torch.mm(first[h], w_up, out=up[h])
                        torch.mm(up[h][:, : model.inner // n], w_down, out=second[h])
                        pending[h] = start(second[h])
                        here[h] = second[h]
                for h in range(2):
                    wait(pending[h])
                return here

            if self.options.leave:
                self.leave(left)
            with torch.cuda.stream(self.stream):
                layers(1)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                last = layers(layer.LAYERS)
            times = self.replay(graph)
            self.results.append(
                {
                    "model": model.name,
                    "rows": rows,
                    "bytes": rows * model.hidden * 2,
                    "ranks": n,
                    "mode": mode,
                    "way": name,
                    "max_blocks": blocks,
                    "left": left,
                    "p50_us": crews.percentile(times, 50),
                    "min_us": min(times),
                    "wrong": self.crew.total(0 if mode == "none" else self.wrong_layers(last, model, rows, mode, left)),
                }
            )
            del graph
            self.write()

    def wrong_layers(self, last: list[Any], model: layer.Model, rows: int, mode: str, left: int) -> int:
        """Halves with a NaN, ranks that have different bits, or bits that another way with the same GEMMs had not."""
        torch = self.torch
        finite = all(bool(torch.isfinite(half).all().item()) for half in last)
        weight = torch.arange(last[0].numel(), device=self.device).view_as(last[0]) % 8191 + 1
        sums = [int((half.view(torch.int16).to(torch.int64) * weight).sum().item()) for half in last]
        everywhere = {tuple(words) for words in self.crew.gather(sums)}
        known = self.bits.setdefault((model.name, rows, mode, left), everywhere)
        return int(not finite) + int(len(everywhere) != 1) + int(known != everywhere)


def rank_main(crew: crews.Crew, options: argparse.Namespace) -> None:
    os.environ.setdefault("RAILMUX_GPU_CLUSTERS", "1")  # nothing here sends
    Halves(crew, options).run()


if __name__ == "__main__":
    crews.main(rank_main, parse())
