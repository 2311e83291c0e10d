# SPDX-License-Identifier: MIT
"""The steps of a run: what each one starts, and what it makes of the results."""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import re
import sys
import time
from collections.abc import Callable
from typing import Any

import report
from node import Finished, Node
from railmux import DEPENDENCIES

OPS = (
    "all_reduce",
    "reduce",
    "broadcast",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "all_to_all_v",
    "gather",
    "scatter",
    "sendrecv",
)
REDUCING = ("all_reduce", "reduce", "reduce_scatter")
TORCH_PARTS = "collectives,graphs,tp,ddp,times,token"
PYNCCL = pathlib.Path(__file__).resolve().parents[2] / "tests" / "nccl" / "pynccl.py"
RESIDENT = (1, 2, 4, 8, 16, 32)  # blocks
TIMED = ("all_gather", "reduce_scatter", "broadcast", "all_to_all", "all_to_all_v", "sendrecv")


class Skip(Exception):
    """The step cannot be done here; why."""


@dataclasses.dataclass
class Run:
    """What the steps know."""

    node: Node
    options: argparse.Namespace
    deadline: float = 0.0  # of the step under way

    @property
    def hip(self) -> bool:
        return self.options.backend == "hip"

    def left(self, at_most: float) -> float:
        """Of the step's time."""
        return max(min(at_most, self.deadline - time.monotonic()), 0.0)

    def daemon(self, policy: str | None = None, keep: bool = False) -> dict[str, Any]:
        """Running and ready; RuntimeError if it cannot be."""
        chosen = self.options.policies[0] if policy is None else policy
        try:
            return self.node.daemon_start(chosen, self.options.blocks, keep, self.left(60))
        except RuntimeError:
            if not self.node.mps_running or self.left(60) < 20:
                raise
        self.node.end_strays()
        self.node.mps_renew(self.options.multiuser)
        return self.node.daemon_start(chosen, self.options.blocks, keep, self.left(60))

    @property
    def quick(self) -> bool:
        return self.options.quick

    def least(self, step: Step) -> float:
        """Below that it is not begun."""
        return step.least_s / 8 if self.quick else step.least_s

    def need_gpus(self) -> None:
        if not self.hip:
            raise Skip("needs GPUs")


def perf_summary(finished: Finished) -> dict[str, Any]:
    results = (finished.document or {}).get("results", [])
    return {
        **finished.record(),
        "lines": len(results),
        "wrong": sum(r["wrong"] or 0 for r in results),
    }


def step_start(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if run.hip:
        found["mps"] = run.node.mps_start(run.options.multiuser)
        if not run.node.mps_running:
            found["error"] = f"MPS: {found['mps']}"
    starts = []
    for policy in run.options.policies:  # each once, so that a policy that cannot start is known
        try:
            starts.append({"policy": policy, **run.daemon(policy)})
        except RuntimeError as error:
            found["error"] = str(error)
    found["starts"] = starts
    found["gpus"] = (run.node.ctl("gpus") or {}).get("gpus")
    found["version"] = run.node.ctl("version")
    commit = run.options.binaries / "commit"  # of a packed tree
    found["commit"] = commit.read_text().strip() if commit.exists() else ""
    return found


def step_smoke(run: Run) -> dict[str, Any]:
    run.daemon()
    commands = []
    for ranks in sorted({2, run.options.ranks}):
        for extra in [[], ["-G", "5"]] if run.hip else [[]]:
            name = f"smoke-{ranks}{'-graph' if extra else ''}"
            arguments = ["all_reduce", "--ranks", str(ranks), "-b", "1K", "-e", "1M", "-f", "8", "-w", "2", "-n", "5", *extra]
            commands.append(perf_summary(run.node.perf(name, arguments, run.left(45))))
    return {"commands": commands, "wrong": sum(c["wrong"] for c in commands)}


def correctness_commands(run: Run) -> list[tuple[str, list[str]]]:
    """Name and arguments, the most telling first."""
    if run.quick:
        few = ["--ranks", str(run.options.ranks), "-w", "0", "-n", "1", "--odd", "-b", "8", "-e", "4K", "-f", "512"]
        return [(f"{op}-quick", [op, *few]) for op in OPS]
    widths = [run.options.ranks]
    if run.options.oversubscribe and 8 not in widths:
        widths.append(8)
    widths += [n for n in range(2, run.options.ranks) if n not in widths]
    commands = []
    for ranks in widths:
        few = ["--ranks", str(ranks), "-w", "0", "-n", "1"]
        for op in OPS:
            odd = ["-d", "bf16", "--odd", "-b", "8", "-e", "1M" if run.hip else "256K", "-f", "16"]
            commands.append((f"{op}-{ranks}-odd", [op, *few, *odd]))
        for op in OPS:
            redops = ["-o", "all"] if op in REDUCING else []
            commands.append((f"{op}-{ranks}-types", [op, *few, "-d", "all", *redops, "-b", "200", "-e", "50K", "-f", "250"]))
        if run.hip:
            for op in OPS:
                graph = ["-G", "3", "-d", "bf16", "-b", "64", "-e", "4M", "-f", "16"]
                commands.append((f"{op}-{ranks}-graph", [op, *few, *graph]))
            commands.append(
                (f"all_reduce-{ranks}-large", ["all_reduce", *few, "-d", "fp32", "-b", "16M", "-e", "256M", "-f", "4"])
            )
        commands.append((f"barrier-{ranks}", ["barrier", "--ranks", str(ranks), "-n", "50"]))
    return commands


def step_correctness(run: Run) -> dict[str, Any]:
    run.daemon()
    commands: list[dict[str, Any]] = []
    left_out = []
    for name, arguments in correctness_commands(run):
        if run.left(40) < 3 or len(commands) >= 3 and all(c["status"] is None for c in commands[-3:]):
            left_out.append(name)
            continue
        try:
            run.daemon()
        except RuntimeError as error:
            commands.append({"command": "railmuxd", "status": None, "seconds": 0, "lines": 0, "wrong": 0, "output": str(error)})
            break
        commands.append({**perf_summary(run.node.perf(f"check-{name}", [*arguments, "-c", "1"], run.left(40)))})
    return {
        "commands": commands,
        "lines": sum(c["lines"] for c in commands),
        "wrong": sum(c["wrong"] for c in commands),
        "failed": [c.get("name", c["command"]) for c in commands if c["status"] != 0],
        "left_out": left_out,
    }


def operation(op: str) -> list[str]:
    """As peers.py has it: all_to_all_v with equal parts."""
    return [op, "--equal"] if op == "all_to_all_v" else [op]


def latency_commands(run: Run) -> list[tuple[str, list[str], str, str]]:
    """Name, arguments, mode, policy."""
    ranks = ["--ranks", str(run.options.ranks), "-d", "bf16", "--in-place", "0"]
    if not run.hip:
        small = [*ranks, "-b", "1K", "-e", "1M", "-f", "32" if run.quick else "4", "-w", "10", "-n", "20" if run.quick else "100"]
        return [(op, [*operation(op), *small], "eager", "") for op in ("all_reduce", *TIMED)]
    if run.quick:
        few = [*ranks, "-b", "1K", "-e", "4M", "-f", "16", "-G", "20", "-w", "2", "-n", "10"]
        return [(f"{op}-graph", [*operation(op), *few], "graph", run.options.policies[0]) for op in ("all_reduce", *TIMED)]
    sizes = ["-b", "1K", "-e", run.options.max, "-f", "2"]
    graph = [*ranks, *sizes, "-G", "20", "-w", "5", "-n", "40"]
    eager = [*ranks, "-b", "1K", "-e", "16M", "-f", "4", "-w", "20", "-n", "200"]
    commands = []
    for policy in run.options.policies:
        commands.append((f"all_reduce-graph-{policy}", ["all_reduce", *graph], "graph", policy))
        commands.append((f"all_reduce-eager-{policy}", ["all_reduce", *eager], "eager", policy))
        commands += [(f"{op}-graph-{policy}", [*operation(op), *graph], "graph", policy) for op in TIMED]
    if run.options.ranks > 2:
        two = ["--ranks", "2", "-d", "bf16", "--in-place", "0", *sizes, "-G", "20", "-w", "5", "-n", "40"]
        commands.append(("all_reduce-graph-2", ["all_reduce", *two], "graph", run.options.policies[0]))
    return commands


def bell_commands(run: Run) -> list[tuple[str, list[str], str, str]]:
    """What a request costs before any data is moved: one rank alone, and ranks that only meet."""
    small = ["-d", "bf16", "--in-place", "0", "-b", "8", "-e", "8K", "-f", "32"]
    eager = ["-w", "20", "-n", "50" if run.quick else "500"]
    graph = ["-G", "20", "-w", "5", "-n", "20" if run.quick else "100"]
    commands = []
    for policy in run.options.policies:
        for mode, how in (("graph", graph), ("eager", eager)) if run.hip else (("eager", eager),):
            end = "-".join(filter(None, (mode, policy)))
            commands.append((f"alone-{end}", ["all_reduce", "--ranks", "1", *small, *how], mode, policy))
            commands.append((f"barrier-{end}", ["barrier", "--ranks", str(run.options.ranks), *how], mode, policy))
    return commands


def step_bell(run: Run) -> dict[str, Any]:
    found = timed(run, "bell", bell_commands(run))
    for policy in run.options.policies:  # the first calls after a silence, in which kernels may park
        try:
            run.daemon(policy)
        except RuntimeError as error:
            found["error"] = str(error)
            continue
        arguments = [*common(run), *(["--rounds", "2"] if run.quick else [])]
        finished = run.node.script("-".join(filter(None, ("wake", policy))), "bell.py", arguments, run.left(60))
        found["commands"].append(finished.record())
        found["wrong"] += (finished.document or {}).get("wrong", 0)
        found.setdefault("pauses", []).extend({"policy": policy, **line} for line in (finished.document or {}).get("results", []))
    return found


def step_latency(run: Run) -> dict[str, Any]:
    return timed(run, "time", latency_commands(run))


def timed(run: Run, prefix: str, wanted: list[tuple[str, list[str], str, str]]) -> dict[str, Any]:
    commands: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for name, arguments, mode, policy in wanted:
        try:
            run.daemon(policy)
        except RuntimeError as error:
            commands.append({"command": name, "status": None, "seconds": 0, "lines": 0, "wrong": 0, "output": str(error)})
            continue
        finished = run.node.perf(f"{prefix}-{name}", arguments, run.left(75))
        commands.append(perf_summary(finished))
        for line in (finished.document or {}).get("results", []):
            results.append({"library": "railmux", "mode": mode, "policy": policy, **line})
    return {"commands": commands, "results": results, "wrong": sum(r["wrong"] or 0 for r in results)}


def step_blocks(run: Run) -> dict[str, Any]:
    """What resident blocks do by themselves: nothing is exchanged by the ranks' own kernels."""
    run.need_gpus()
    end = "1M" if run.quick else "16M"
    arguments = ["all_reduce", "--ranks", str(run.options.ranks), "-d", "bf16", "--in-place", "0", "-b", "1K", "-e", end, "-f", "4"]
    arguments += ["-G", "20", "-w", "2", "-n", "20"]
    found: dict[str, Any] = {"commands": [], "results": []}
    for blocks in RESIDENT:
        run.node.daemon_start("latency:exchange=off", blocks, False, run.left(60))
        finished = run.node.perf(f"blocks-{blocks}", arguments, run.left(60))
        found["commands"].append(perf_summary(finished))
        found["results"] += [{"blocks": blocks, **line} for line in (finished.document or {}).get("results", [])]
    found["wrong"] = sum(line["wrong"] or 0 for line in found["results"])
    return found


def step_peers(run: Run) -> dict[str, Any]:
    """Without the daemon: its resident kernels would take their SMs."""
    run.need_gpus()
    run.node.daemon_stop()
    found: dict[str, Any] = {"commands": [], "results": []}
    size = report.parse_size("1M" if run.quick else run.options.max)
    for library, modes in (("nccl", "graph"), ("symm", "graph"), ("nccl", "eager"), ("symm", "eager")):
        arguments = ["--library", library, "--ranks", str(run.options.ranks), "--modes", modes, "--max", str(size)]
        if modes == "eager":
            arguments += ["--ops", "all_reduce", "--factor", "4"]
        finished = run.node.script(f"peers-{library}-{modes}", "peers.py", arguments, run.left(90), CUDA_MODULE_LOADING="LAZY")
        found["commands"].append(finished.record())
        document = finished.document or {}
        found["results"] += document.pop("results", [])
        found[library] = document
    found["wrong"] = sum(r["wrong"] for r in found["results"])
    return found


def preloads(node: Node) -> list[str]:
    """Ours in NCCL's place. What it needs lies, in a packed tree, where Python's loader does not look: it is loaded first."""
    library = node.bin.parent / "nccl" / "libnccl.so.2"
    if not library.exists():
        raise Skip(f"there is no {library}")
    needed = [node.sys / name for name in DEPENDENCIES] + [node.lib / "librailmux.so.0"]
    return [str(path) for path in (*needed, library) if path.exists()]


def left_in(ctl: Callable[[str], Any], end: float) -> list[Any]:
    """What the daemon still has of clients when they have had time until then: their communicators and sessions."""
    while True:
        answers = {kind: (ctl(kind) or {}).get(kind) for kind in ("comms", "sessions")}
        left: list[Any] = [f"no answer about {kind}" for kind, rows in answers.items() if rows is None]
        left += [{kind: row} for kind, rows in answers.items() for row in rows or []]
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.05)


def wait_nothing_left(run: Run) -> list[Any]:
    return left_in(run.node.ctl, time.monotonic() + run.left(5))


def step_torch(run: Run) -> dict[str, Any]:
    """dist.py with torch's own NCCL, without the daemon; then with ours in its place; then what differs."""
    run.need_gpus()
    ours, ranks = preloads(run.node), min(run.options.ranks, run.node.gpus)
    if ranks < 2:
        raise Skip("needs two GPUs")
    run.node.daemon_stop()
    found: dict[str, Any] = {"commands": [], "wrong": 0}
    folders = {name: run.node.run_folder / f"torch-{name}" for name in ("stock", "railmux")}
    for name, parts, share in (("stock", TORCH_PARTS, 0.45), ("railmux", f"{TORCH_PARTS},exit", 0.9)):
        seconds, env = run.left(share * run.left(1e9)), {"CUDA_MODULE_LOADING": "LAZY", "NCCL_DEBUG": "WARN"}
        if name == "railmux":
            run.daemon()
            env = {
                "LD_PRELOAD": ":".join(ours),
                "NCCL_DEBUG": "WARN",
            }  # and all kernels loaded at the start, as docs/gpu.md has it
        arguments = ["--ranks", str(ranks), "--parts", parts, "--save", str(folders[name])]
        arguments += ["--seconds", f"{max(seconds - 20, 1):.0f}", *(["--quick"] if run.quick else [])]
        finished = run.node.script(f"torch-{name}", "dist.py", arguments, seconds, **env)
        document = found[name] = finished.document or {}
        found["commands"].append(finished.record())
        found["wrong"] += document.get("wrong", 0)
    used = found["railmux"].get("nccl_file")
    if used and not os.path.samefile(used, ours[-1]):
        found["error"] = f"torch used {used}"
    if run.node.daemon:  # else it was stopped for what had gone wrong
        found["left"] = wait_nothing_left(run)
        found["wrong"] += len(found["left"])
    compared = run.node.script(
        "torch-compare", "dist.py", ["--compare", str(folders["stock"]), str(folders["railmux"])], run.left(60)
    )
    found["commands"].append(compared.record())
    found["comparison"] = compared.document or {}
    found["wrong"] += len(found["comparison"].get("bad", []))
    return found


def step_nccl(run: Run) -> dict[str, Any]:
    """The suite for NCCL's interface (tests/nccl) on memory of GPUs: a client as inference engines have it, then ranks as
    threads, as one thread and as processes."""
    run.need_gpus()
    suite, ranks = run.node.bin / "nccl_conformance", min(run.options.ranks, run.node.gpus)
    *needed, library = preloads(run.node)
    if not suite.exists():
        raise Skip(f"there is no {suite}")
    if ranks < 2:
        raise Skip("needs two GPUs")
    run.daemon()
    found: dict[str, Any] = {"commands": [], "wrong": 0, "cases": 0}
    client: list[str | pathlib.Path] = [sys.executable, PYNCCL, library, str(ranks), "--device"]
    every = [suite, "--library", library, "--memory", "device", "--ranks", f"1,{ranks}", "-v"]
    few = ["--cases", "2"] if run.quick else []
    parts: list[tuple[str, list[str | pathlib.Path], dict[str, str]]] = [
        ("client", client, dict(run.node.env, LD_PRELOAD=":".join(needed))),
        ("one-thread", [*every, *few, "--ways", "grouped,all", "--only", "calls,large"], run.node.our_env()),
        ("threads", [*every, *few, "--ways", "threads", "--only", "calls,large"], run.node.our_env()),
        ("processes", [*every, *few, "--ways", "processes", "--only", "calls,large"], run.node.our_env()),
        ("checks", [*every, "--only", "failure,group,comm,config,redop,memory,thread,argument"], run.node.our_env()),
    ]
    for i, (name, argv, env) in enumerate(parts):
        share = run.left(1e9) - 5 - 15 * (len(parts) - i - 1)  # something is kept for those that come, and for the end
        finished = run.node.command(f"nccl-{name}", argv, share, env=env)
        found["commands"].append(finished.record())
        for cases, wrong in re.findall(r"^(?:rank \d+: )?(\d+) cases, (\d+) wrong$", finished.output, re.MULTILINE):
            found["cases"] += int(cases)
            found["wrong"] += int(wrong)
    found["left"] = wait_nothing_left(run)
    found["wrong"] += len(found["left"])
    return found


def common(run: Run, share: float = 1.0) -> list[str]:
    """The time that a script plans with is less than that after which it is killed."""
    seconds = max(share * run.left(1e9) - 5, 1)
    return ["--ranks", str(run.options.ranks), "--backend", run.options.backend, "--seconds", f"{seconds:.0f}"]


def step_comms(run: Run) -> dict[str, Any]:
    policy = run.options.policies[0]
    run.daemon(f"{policy}:staging=2G" if run.hip else policy)  # the default has no room for so many
    arguments = [*common(run), *(["--further", "10"] if run.quick else [])]
    finished = run.node.script("comms", "comms.py", arguments, run.left(1e9))
    return {"commands": [finished.record()], **(finished.document or {})}


def step_soak(run: Run) -> dict[str, Any]:
    """soak.py twice, the second time in expandable segments, and segments.py there; rooms.py; then churn.py."""
    found: dict[str, Any] = {"commands": [], "events": [], "wrong": 0, "operations": 0}
    count = ["--operations", "200" if run.quick else str(run.options.operations)]
    count += ["--replays", "20" if run.quick else str(run.options.replays)]
    scripts: list[tuple[str, str, list[str], float, dict[str, str]]] = [("soak", "soak.py", count, 0.6, {})]
    if run.hip:
        expandable = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "PYTORCH_ALLOC_CONF": "expandable_segments:True"}
        less = ["--operations", "2000", "--replays", "2000"]
        scripts.append(("soak-expandable", "soak.py", less, 0.5, expandable))
        turns = ["--rounds", "5" if run.quick else "40"]
        scripts.append(("segments", "segments.py", turns, 0.6, expandable))
        scripts.append(("rooms", "rooms.py", ["--rounds", "5" if run.quick else "40"], 0.5, {}))
    churn = ["--registrations", "50" if run.quick else "1000"]
    if run.hip:
        scripts.append(("churn", "churn.py", churn, 0.6, {}))
    # Small calls are exchanged by default, and do not feel what executors do for others; here they go through them.
    scripts.append(("churn-exchange=off" if run.hip else "churn", "churn.py", churn, 1.0, {}))
    for name, script, arguments, share, env in scripts:
        if run.left(1e9) < 5:
            found["error"] = f"{name}: no time was left for it"
            break
        run.daemon(without_exchange(run) if name.endswith("exchange=off") else None)
        finished = run.node.script(name, script, [*common(run, share), *arguments], run.left(share * run.left(1e9) + 10), **env)
        document = finished.document or {}
        found["commands"].append(finished.record())
        found["events"] += [{**event, "name": f"{name}: {event['name']}"} for event in document.get("events", [])]
        found["wrong"] += document.get("wrong", 0)
        found["operations"] += document.get("operations", 0)
        if document.get("error"):
            found["error"] = f"{name}: {document['error']}"
        found[name] = document
    return found


def beside_others(run: Run, name: str, modes: str, quick: list[str]) -> dict[str, Any]:
    """NAME.py with these modes first, without a daemon, then with ours; what nothing costs in both."""
    run.need_gpus()
    run.node.daemon_stop()
    found: dict[str, Any] = {"commands": [], "results": []}
    for whose, chosen in (("others", modes), ("railmux", "none,railmux")):
        if whose == "railmux":
            run.daemon()
        share = run.left(1e9) / (2 if whose == "others" else 1)
        arguments = ["--ranks", str(run.options.ranks), "--modes", chosen, "--seconds", f"{max(share - 15, 1):.0f}"]
        finished = run.node.script(f"{name}-{whose}", f"{name}.py", arguments + (quick if run.quick else []), share)
        found["commands"].append(finished.record())
        for line in (finished.document or {}).get("results", []):
            found["results"].append({"daemon": whose == "railmux", **line})
    return found


def step_layer(run: Run) -> dict[str, Any]:
    return beside_others(run, "layer", "none,nccl,symm", ["--rows", "1,16", "--models", "70B"])


def step_overlap(run: Run) -> dict[str, Any]:
    return beside_others(run, "overlap", "none,nccl", ["--rows", "128", "--models", "70B", "--blocks", "0,16"])


def wait_parked(run: Run) -> None:
    """Until all kernels have ended for want of work, or long enough."""
    end = time.monotonic() + run.left(5)
    while time.monotonic() < end:
        gpus = (run.node.ctl("gpus") or {}).get("gpus") or []
        if gpus and all(gpu.get("parked") for gpu in gpus):
            return
        time.sleep(0.05)


def step_interference(run: Run) -> dict[str, Any]:
    """interference.py measures a GPU; the states of the daemon are made here."""
    run.need_gpus()
    found: dict[str, Any] = {"commands": [], "results": []}
    states: list[tuple[str, str | None, list[str]]] = [("no daemon", None, [])]
    states += [(f"{policy}, idle", policy, []) for policy in run.options.policies]
    states += [(f"{policy}, bells", policy, ["--bells"]) for policy in run.options.policies]
    for state, policy, extra in states:
        if policy is None:
            run.node.daemon_stop()
        else:
            run.daemon(policy)
            if policy == "adaptive" and not extra:
                wait_parked(run)
        arguments = ["--ranks", str(run.options.ranks), *extra, *(["--replays", "6"] if run.quick else [])]
        name = "interference-" + state.replace(", ", "-").replace(" ", "-")
        finished = run.node.script(name, "interference.py", arguments, run.left(60))
        found["commands"].append(finished.record())
        gpus = (run.node.ctl("gpus") or {}).get("gpus") if policy is not None else None
        for line in (finished.document or {}).get("results", []):
            found["results"].append({"state": state, "gpus": gpus, **line})
    return found


def step_kills(run: Run) -> dict[str, Any]:
    """kills.py starts and kills daemons of its own, beside ours stopped."""
    run.node.daemon_stop()
    argv = [
        *common(run),
        "--gpus",
        str(run.node.gpus),
        "--bin",
        str(run.node.bin.parent),
        "--out",
        str(run.node.out),
        "--policy",
        run.options.policies[0],
        *(["--settle", "0.3"] if run.quick else []),
    ]
    finished = run.node.script("kills", "kills.py", argv, run.left(1e9))
    return {"commands": [finished.record()], **(finished.document or {})}


def executors(run: Run) -> list[int]:
    status = (run.node.ctl("status") or {}).get("status") or {}
    return sorted(entry.get("pid", 0) for entry in status.get("executors", []))


def without_exchange(run: Run) -> str:
    """The policy, for a daemon whose executors carry out everything."""
    keys = [key for key in run.options.policies[0].split(":") if not key.startswith("exchange=")]
    return ":".join([*keys, "exchange=off"])


def step_hostile(run: Run) -> dict[str, Any]:
    """hostile.py; where MPS serves several users, one of them is another one's. Small calls go through the executors, which
    are what is attacked, only where they are not exchanged; so it is done that way first, and then as it is by default."""
    run.need_gpus()
    found: dict[str, Any] = {"commands": [], "events": [], "wrong": 0}
    for name, policy, share in (("exchange=off", without_exchange(run), 0.5), ("default", None, 1.0)):
        run.daemon(policy)
        before = executors(run)
        left = share * run.left(1e9)
        seconds = 2 if run.quick else min(60, max(left - 40, 10) / 2)
        arguments = ["--ranks", str(run.options.ranks), "--seconds", f"{seconds:.0f}"]
        if run.options.multiuser and os.getuid() == 0:
            arguments += ["--uid", "65534"]
        finished = run.node.script(f"hostile-{name}", "hostile.py", arguments, left)
        document = finished.document or {}
        found["commands"].append(finished.record())
        found["events"] += [{**event, "name": f"{name}: {event['name']}"} for event in document.get("events", [])]
        found["wrong"] += document.get("wrong", 0)
        if document.get("error"):
            found["error"] = f"{name}: {document['error']}"
        if not before or executors(run) != before:
            found["error"] = f"{name}: executors were {before} and are {executors(run)}"
        found[name] = document
    return found


@dataclasses.dataclass
class Step:
    name: str
    what: str
    function: Callable[[Run], dict[str, Any]]
    least_s: float  # below that it is not begun
    most_s: float


STEPS = [
    Step("start", "MPS, railmuxd with each policy, the GPUs it serves", step_start, 10, 200),
    Step("smoke", "a few all_reduces", step_smoke, 10, 120),
    Step("bell", "what a request costs before data moves, and after a silence", step_bell, 15, 150),
    Step("latency", "times of our collectives, in graphs and eagerly", step_latency, 20, 420),
    Step("peers", "NCCL and torch symmetric memory, the same way", step_peers, 40, 240),
    Step("torch", "torch.distributed with ours in NCCL's place, against NCCL", step_torch, 60, 300),
    Step("correctness", "all operations, types, reductions, odd sizes, numbers of ranks", step_correctness, 20, 600),
    Step("nccl", "the suite for NCCL's interface, on memory of GPUs", step_nccl, 60, 240),
    Step("comms", "time and GPU memory of further communicators", step_comms, 20, 90),
    Step("blocks", "all_reduce by 1 to 32 resident blocks", step_blocks, 40, 150),
    Step("layer", "a transformer layer in a graph", step_layer, 60, 240),
    Step("overlap", "the sums of one half-batch beside the GEMMs of the other", step_overlap, 60, 240),
    Step("soak", "changing inputs, several comms, streams and orders; registrations", step_soak, 40, 480),
    Step("kills", "SIGKILL of railmuxd, an executor, clients; a planned restart", step_kills, 40, 300),
    Step("hostile", "a session that writes garbage from its GPU, beside others", step_hostile, 40, 240),
    Step("interference", "GEMMs beside the daemon's kernels", step_interference, 40, 240),
]
GROUPS = {"collectives": ("smoke", "latency", "correctness")}
