#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What GEMMs cost while the daemon is in some state, on all its GPUs at once.

Without --bells the daemon is left alone (its kernels are resident or parked, as its policy says). With --bells as many
processes again (or N times as many: on one GPU a communicator of one rank would ring nobody) ring small all-reduces on
the same GPUs, about as often as decoding does. With --plain they add up as much with torch, which asks the daemon for
nothing: what another process's kernels cost by themselves. A sample is the time of a graph of GEMMs, divided by their
number, on the slowest GPU.
"""

from __future__ import annotations

import argparse
import itertools
import json
import pathlib
import time
from typing import Any

import crew as crews

GEMMS = 10
COLUMNS, INNER = 7168, 8192  # up projection of a 70B model, an eighth of it; larger than the cache
SHAPES = [(rows, COLUMNS, INNER) for rows in (1, 16, 256, 2048)] + [(8192, 8192, 8192)]
BELL_COUNT = 8192  # bf16: 16 KiB
BELL_INTERVAL_S = 100e-6  # 160 all-reduces in a step of 16 ms
BELL_ROUND = 64


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--bells", type=int, nargs="?", const=1, default=0, metavar="N", help="processes that ring on each GPU (1)")
    parser.add_argument("--plain", action="store_true", help="those processes launch kernels that are not the library's")
    parser.add_argument("--replays", type=int, default=30)
    parser.add_argument("--json", type=pathlib.Path, required=True)
    options = parser.parse_args()
    if options.plain and not options.bells:
        parser.error("--plain says what is in the place of --bells")
    options.gpus = options.ranks
    options.ranks *= 1 + options.bells
    return options


def ring(crew: crews.Crew, options: argparse.Namespace) -> None:
    """Until the file `stop` is there. Who sees it says so in a sum, so all end after the same round."""
    import torch

    rank = crew.rank - options.gpus
    if options.plain:
        comm = None
        torch.cuda.set_device(rank % options.gpus)
        crew.gather("", "id")
    else:
        import railmux

        session = railmux.Session(name="bench-bells")
        gpu = rank % session.gpus
        torch.cuda.set_device(railmux.torch_device(session, gpu))
        made = crew.gather(session.new_id().hex() if rank == 0 else "", "id")[options.gpus]
        comm = session.comm(bytes.fromhex(made), options.gpus * options.bells, rank, gpu)
    source = torch.zeros(BELL_COUNT, dtype=torch.bfloat16, device="cuda")
    out = torch.zeros_like(source)
    stream = torch.cuda.Stream()
    torch.cuda.set_stream(stream)

    def launch() -> None:
        if comm:
            comm.all_reduce(source.data_ptr(), out.data_ptr(), BELL_COUNT, railmux.BFLOAT16, stream=stream.cuda_stream)
        else:
            torch.add(source, source, out=out)

    stop = pathlib.Path(crew.folder) / "stop"
    rounds, begin, told = 0, 0.0, False
    torch.cuda.synchronize()
    while True:
        for _ in range(BELL_ROUND):
            due = time.perf_counter() + BELL_INTERVAL_S
            launch()
            while time.perf_counter() < due:
                pass
        stream.synchronize()
        rounds += 1
        if rounds == 1:
            begin = time.monotonic()
            crew.barrier()  # they ring
        if out[0].item() > 0:
            break
        if not told and stop.exists():
            told = True
            source.fill_(1)
            torch.cuda.synchronize()
    rate = (rounds - 1) * BELL_ROUND / (time.monotonic() - begin)
    crew.gather({"rate": rate, "error": comm.error() if comm else ""}, "end")


def measure(crew: crews.Crew, options: argparse.Namespace) -> None:
    import torch

    torch.cuda.set_device(crew.rank % torch.cuda.device_count())
    if options.bells:
        crew.gather("", "id")
        crew.barrier()
    results: list[dict[str, Any]] = []
    rows_of: list[tuple[str, list[float]]] = []
    for m, n, k in SHAPES:
        a = torch.randn(m, k, dtype=torch.bfloat16, device="cuda")
        b = torch.randn(k, n, dtype=torch.bfloat16, device="cuda")
        out = torch.empty(m, n, dtype=torch.bfloat16, device="cuda")
        torch.mm(a, b, out=out)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            for _ in range(GEMMS):
                torch.mm(a, b, out=out)
        replays = options.replays if m < 8192 else options.replays // 3
        events = [torch.cuda.Event(enable_timing=True) for _ in range(replays + 1)]
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
        events[0].record()
        for event in events[1:]:
            graph.replay()
            event.record()
        torch.cuda.synchronize()
        rows_of.append((f"{m} x {n} x {k}", [1e3 * s.elapsed_time(e) / GEMMS for s, e in itertools.pairwise(events)]))
    (pathlib.Path(crew.folder) / "stop").touch()
    everybody = crew.gather({"rows": rows_of}, "end")
    bells = [entry for entry in everybody if "rate" in entry]
    for index, (shape, _) in enumerate(rows_of):
        times = [max(column) for column in zip(*(entry["rows"][index][1] for entry in everybody if "rows" in entry))]
        results.append({"shape": shape, "p50_us": crews.percentile(times, 50), "p99_us": crews.percentile(times, 99)})
    if crew.rank == 0:
        errors = [entry["error"] for entry in bells if entry["error"]]
        rate = min((entry["rate"] for entry in bells), default=0.0)
        document = {"version": 1, "results": results, "bells_per_second": rate, "errors": errors}
        options.json.write_text(json.dumps(document))


def rank_main(crew: crews.Crew, options: argparse.Namespace) -> None:
    if crew.rank < options.gpus:
        measure(crew, options)
    else:
        ring(crew, options)


if __name__ == "__main__":
    crews.main(rank_main, parse())
