#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Builds of one library beside each other, on one machine and in one run.

    compare.py --binaries DIR --out DIR --variant base=lib/a.so --variant new=lib/b.so [--what all_reduce:4M:64M,...]

A change of a kernel is a change of one file (librailmux-hip.so has those of the ranks). Each variant is put in the place
of that file, and every measurement is made with all of them, one after the other, as many times as --turns says and from
the other end each time, so that what the machine does by itself meets all alike. The daemon stays. Times are medians
over the turns of a turn's median, of the slowest rank, and their ratio to those of the first variant. A file may be
compressed (.xz). Before any time counts, --check has each variant verify all that it moves, at the same sizes and odd
ones.

Needs neither torch nor other libraries. Writes compare.json into the folder of results. Exit status: 0, 1 if something
was wrong or did not end, 2 for a wrong command line.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import pathlib
import shutil
import statistics
import sys
import time
from typing import Any

sys.dont_write_bytecode = True

from node import Node
from report import parse_size
from steps import OPS

USUAL = "all_reduce:4M:64M,reduce_scatter:4M:64M,all_gather:4M:64M,broadcast:4M:64M,all_to_all:4M:64M"
RESERVE_S = 10.0


def variant_of(text: str) -> tuple[str, pathlib.Path]:
    name, found, path = text.partition("=")
    if not found or not name or not path:
        raise argparse.ArgumentTypeError(f"{text}: a variant is NAME=FILE")
    if not pathlib.Path(path).is_file():
        raise argparse.ArgumentTypeError(f"{path}: no such file")
    return name, pathlib.Path(path).resolve()


def what_of(text: str) -> tuple[str, str, str]:
    operation, *sizes = text.split(":")
    if operation not in OPS or not 1 <= len(sizes) <= 2:
        raise argparse.ArgumentTypeError(f"{text}: OPERATION:BYTES or OPERATION:FROM:TO, of {', '.join(OPS)}")
    try:
        if parse_size(sizes[0]) > parse_size(sizes[-1]):
            raise argparse.ArgumentTypeError(f"{text}: from more to less")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return operation, sizes[0], sizes[-1]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binaries", type=pathlib.Path, required=True, help="a build tree, or what pack made of one")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for results and logs")
    parser.add_argument("--variant", type=variant_of, action="append", default=[], help="NAME=FILE; two or more")
    parser.add_argument("--file", default="librailmux-hip.so", help="what they stand for, in lib/ (default %(default)s)")
    parser.add_argument("--what", default=USUAL, help="OPERATION:FROM:TO, separated by commas; sizes double (default %(default)s)")
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--gpus", type=int, default=0, help="default: one for each rank")
    parser.add_argument("--host", action="store_true", help="emulated GPUs")
    parser.add_argument("--policy", default="adaptive", help="of resident kernels, with :KEY=VALUE for other keys of gpu")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--calls", type=int, default=20, help="in a graph, and as many replays (default %(default)s)")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--time", type=float, default=500, help="seconds for all (default %(default)s)")
    options = parser.parse_args()
    names = [name for name, _ in options.variant]
    if len(names) < 2 or len(set(names)) < len(names):
        parser.error("two or more --variant, with names of their own")
    if options.ranks < 1 or options.turns < 1 or options.calls < 1:
        parser.error("--ranks, --turns and --calls are 1 or more")
    try:
        options.whats = [what_of(text) for text in options.what.split(",")]
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
    options.binaries, options.out = options.binaries.resolve(), options.out.resolve()
    if not (options.binaries / "lib" / options.file).is_file():
        parser.error(f"{options.binaries}/lib has no {options.file}")
    return options


class Comparison:
    """A copy of the binaries, whose library is each variant in turn."""

    def __init__(self, options: argparse.Namespace, deadline: float) -> None:
        self.options = options
        self.tree = options.out / "tree"
        shutil.rmtree(self.tree, ignore_errors=True)
        shutil.copytree(options.binaries, self.tree, symlinks=True, ignore=lambda d, names: self.left_out(d, names))
        self.place = self.tree / "lib" / options.file
        self.ready: dict[str, pathlib.Path] = {}
        for name, path in options.variant:
            self.ready[name] = options.out / f"variant-{name}.so"
            data = path.read_bytes()
            self.ready[name].write_bytes(lzma.decompress(data) if path.suffix == ".xz" else data)
        self.node = Node(self.tree, options.out, "host" if options.host else "hip", options.gpus or options.ranks, deadline)
        self.results: dict[tuple[str, int], dict[str, list[float]]] = {}
        self.failures: list[str] = []

    def left_out(self, directory: str, names: list[str]) -> set[str]:
        """A build tree has more than its programs and libraries."""
        top = pathlib.Path(directory).resolve() == self.options.binaries
        return set(names) - {"bin", "lib", "sys"} if top else set()

    def put(self, name: str) -> None:
        """By another name first: who has the one before mapped keeps it."""
        fresh = self.place.with_suffix(".fresh")
        shutil.copyfile(self.ready[name], fresh)
        os.replace(fresh, self.place)

    def run(self, title: str, arguments: list[str]) -> list[dict[str, Any]]:
        finished = self.node.perf(title, arguments, 120)
        results = (finished.document or {}).get("results", [])
        wrong = sum(r["wrong"] or 0 for r in results)
        if not finished.good or wrong or not results:
            self.failures.append(f"{title}: status {finished.status}, {wrong} wrong: {finished.output[-300:]}")
        return results

    def check(self, what: tuple[str, str, str], name: str) -> None:
        operation, least, most = what
        fixed = [operation, "--ranks", str(self.options.ranks), "-b", least, "-e", most, "-f", "2", "-w", "0", "-n", "1"]
        for extra in ([], ["--odd"]):
            self.run(f"check-{name}-{operation}{'-odd' if extra else ''}", [*fixed, *extra])

    def measure(self, what: tuple[str, str, str], name: str, turn: int) -> None:
        operation, least, most = what
        calls = str(self.options.calls)
        fixed = [operation, "--ranks", str(self.options.ranks), "-b", least, "-e", most, "-f", "2", "-c", "0", "-n", calls, "--in-place", "0"]
        if not self.options.host:
            fixed += ["-d", "bf16", "-G", calls]
        for result in self.run(f"time-{name}-{operation}-{turn}", fixed):
            of = self.results.setdefault((operation, result["bytes"]), {})
            of.setdefault(name, []).append(result["p50_us"])

    def all(self) -> None:
        self.node.daemon_start("" if self.options.host else self.options.policy)
        names = list(self.ready)
        if self.options.check:
            for name in names:
                self.put(name)
                for what in self.options.whats:
                    self.check(what, name)
        for turn in range(self.options.turns):
            for what in self.options.whats:
                for name in names if turn % 2 == 0 else reversed(names):
                    self.put(name)
                    self.measure(what, name, turn)

    def table(self) -> list[dict[str, Any]]:
        rows = []
        for (operation, size), of in self.results.items():
            times = {name: statistics.median(of[name]) for name in self.ready if name in of}
            first = times.get(next(iter(self.ready)))
            ratios = {name: round(us / first, 3) if first else None for name, us in times.items()}
            rows.append({"operation": operation, "bytes": size, "us": times, "ratio": ratios, "all_us": of})
        return rows


def main() -> int:
    options = parse()
    (options.out / "logs").mkdir(parents=True, exist_ok=True)
    comparison = Comparison(options, time.monotonic() + options.time - RESERVE_S)
    try:
        if not options.host:
            comparison.node.mps_start(False)
        comparison.all()
    except RuntimeError as error:
        comparison.failures.append(str(error))
    finally:
        left = comparison.node.close()
    rows = comparison.table()
    document = {"version": 1, "rows": rows, "failures": comparison.failures, "left_over": left}
    (options.out / "compare.json").write_text(json.dumps(document, indent=1))
    for row in rows:
        cells = [f"{name} {us:8.2f} ({row['ratio'][name]})" for name, us in row["us"].items()]
        print(f"{row['operation']:15} {row['bytes']:>10} us: {'  '.join(cells)}")
    for failure in comparison.failures:
        print(f"FAILED: {failure}")
    return 1 if comparison.failures or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
