# SPDX-License-Identifier: MIT
"""What nodes.py does with the drop-in for NCCL: its suite, a client as inference engines have it, and torch.distributed, with
the ranks dealt out to the daemons in rows."""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import os
import pathlib
import re
import sys
import time
from typing import Any

from node import Finished
from steps import PYNCCL, Skip, left_in, preloads

LEFT_S = 5.0
SUITE_S = 120.0
TORCH_S = 180.0
TORCH_PARTS = ("collectives", "graphs", "tp", "ddp", "exit")  # those that tell by themselves what is wrong


def without(what: str, options: argparse.Namespace) -> dict[str, Any]:
    """A step that cannot be done, which is a failure if it was asked for."""
    return {"left out": what, "failed": [what] if options.asked else []}


def left_behind(cluster: Any) -> list[str]:
    """What any daemon still has of clients that have ended, on whichever node they were."""
    end = time.monotonic() + LEFT_S
    left = [(i, row) for i in range(cluster.daemons) for row in left_in(functools.partial(cluster.ctl, i), end)]
    return [f"left in daemon {i}: {json.dumps(row)}" for i, row in left]


def dropin_step(cluster: Any, options: argparse.Namespace) -> dict[str, Any]:
    """tests/nccl, as processes and, of a process for each node, as threads."""
    suite = cluster.node.bin / "nccl_conformance"
    try:
        *needed, library = preloads(cluster.node)
    except Skip as skip:
        return without(str(skip), options)
    if not suite.exists():
        return without(f"there is no {suite}", options)
    ranks = cluster.daemons * cluster.gpus * cluster.each
    memory = "host" if options.host else "device"
    every: list[str | pathlib.Path] = [suite, "--library", library, "--sockets", cluster.sockets, "--memory", memory]
    every += ["--ranks", str(ranks), "-v", *(["--cases", "1"] if options.quick else [])]
    python: list[str | pathlib.Path] = [sys.executable, PYNCCL, library, str(ranks), "--sockets", cluster.sockets]
    python += [] if options.host else ["--device"]
    ours, theirs = cluster.node.our_env(), dict(cluster.node.env, LD_PRELOAD=":".join(needed))
    few = {"CUDA_DEVICE_MAX_CONNECTIONS": cluster.queues(cluster.daemons, 32)} if options.share else {}  # processes of many streams
    commands: list[tuple[str, list[str | pathlib.Path], dict[str, str]]] = [
        ("client", python, theirs),
        ("processes", [*every, "--ways", "processes", "--only", "calls,large"], ours),
        ("threads", [*every, "--ways", "threads", "--only", "calls"], ours | few),
        ("checks", [*every, "--ways", "processes", "--only", "comm,group,redop,config"], ours),
    ]
    found: dict[str, Any] = {"commands": [], "failed": [], "wrong": 0, "cases": 0}
    for name, argv, env in commands:
        finished: Finished = cluster.node.command(f"{cluster.name}-nccl-{name}", argv, SUITE_S, env=env)
        found["commands"].append(finished.record())
        for cases, wrong in re.findall(r"^(?:rank \d+: )?(\d+) cases, (\d+) wrong$", finished.output, re.MULTILINE):
            found["cases"] += int(cases)
            found["wrong"] += int(wrong)
        if not finished.good:
            found["failed"].append(finished.name)
        if finished.status is None:
            break
    found["failed"] += left_behind(cluster)
    return found


def torch_step(cluster: Any, options: argparse.Namespace) -> dict[str, Any]:
    """dist.py, with ours in NCCL's place."""
    if options.host:
        return {"left out": "there are no GPUs"}
    if not importlib.util.find_spec("torch"):
        return without("there is no torch", options)
    try:
        ours = preloads(cluster.node)
    except Skip as skip:
        return without(str(skip), options)
    arguments = ["--ranks", str(cluster.daemons * cluster.gpus * cluster.each), "--parts", ",".join(TORCH_PARTS)]
    arguments += ["--save", str(cluster.node.run_folder / f"torch-{cluster.name}"), "--seconds", f"{TORCH_S - 20:.0f}"]
    env = {"LD_PRELOAD": ":".join(ours), "BENCH_SOCKETS": cluster.sockets, "BENCH_EACH": str(cluster.each)}
    finished = cluster.node.script(
        f"{cluster.name}-torch", "dist.py", [*arguments, *(["--quick"] if options.quick else [])], TORCH_S, **env
    )
    document = finished.document or {}
    used = document.get("nccl_file")
    failed = [] if finished.good else [finished.name]
    if document:
        if not (used and os.path.samefile(used, ours[-1])):
            failed.append(f"torch used {used or 'a library that it does not name'}")
        # What had no time is no failure of dist.py.
        outcomes = {part: document["parts"].get(part, {}).get("outcome", "missing") for part in TORCH_PARTS}
        failed += [f"{part}: {outcome}" for part, outcome in outcomes.items() if outcome != "done"]
    failed += left_behind(cluster)
    return {"commands": [finished.record()], "failed": failed, "wrong": document.get("wrong", 0), "torch": document}
