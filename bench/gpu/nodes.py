#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Virtual nodes: several daemons on this machine, each with a part of the GPUs, which talk over TCP on the loopback only.

    nodes.py --binaries DIR --out DIR [--layouts 2x1,2x2,2x4,4x2] [--rails 4] [--delays 0,0.1,0.5,1,5] [--time SECONDS]
    nodes.py --host ...           the same with emulated GPUs, as far as it goes: needs no GPU and no torch

For each layout (daemons x GPUs of each), in this order:

    nccl          the operations and sizes of latency by NCCL through torch, before the daemons are started, whose kernels stay
                  on the GPUs. NCCL is told that the GPUs are on as many hosts (NCCL_HOSTID) and finds sockets on the loopback
                  between them. Twice: GPUs of one virtual node talk as they like; and everything goes through sockets
                  (NCCL_P2P_DISABLE, NCCL_SHM_DISABLE)
    correctness   every operation over all nodes, odd sizes, every type, exact; with GPUs also in graphs. And the daemons'
                  rails have carried something
    latency       all_reduce of 128 KiB to 2 MiB, or the operations and sizes that --ops, --min and --max say
    comms         twenty communicators, one after the other and all at once there, and then again in the memory of the first
    delay         latency of an all_reduce of ours for each of the delays, in milliseconds, which tc puts on the loopback interface
                  (netem). It is on everything that goes there, so a round trip has it twice. Where tc may not do that, this is left
                  out, and the table says so; it fails if --only asks for it. With --relay all that goes over rails goes through
                  a program that delays it (bench/nodes/relay.c), in all steps: it needs nothing of
                  the kernel, and takes some 50 us and a processor itself
    dropin        the drop-in for NCCL: its suite (tests/nccl) and a client as inference engines have it, over all nodes, exact
    torch         dist.py's parts that need nothing to compare with, with the drop-in in NCCL's place
                  After either no daemon may have communicators or sessions of what has ended

Each daemon has as many rails as --rails says, each with an address, a thread and a connection to each other daemon of its
own; --rate bounds what each of them sends. (NCCL takes what it takes by itself: several sockets and threads for each of its channels.)

With --share a GPU may belong to several nodes, and stand for several of one, where there are too few: for correctness, and
not for times. NCCL does not do that. What does not fit this machine, or the time, is left out and named. Writes nodes.json
and nodes.md into the folder of results, everything's output into its folder logs. Exit status: 0 if all that was done is as
it should be, 1 if not, or if a program or library is missing for what --only asks for, 2 for a wrong command line. NVLink
multicast is not used, by any library; GPU settings are not touched.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import traceback
from typing import Any

sys.dont_write_bytecode = True

import report
from node import Finished, Node, tail
from nodes_dropin import dropin_step, torch_step, without
from steps import OPS, REDUCING, operation

TREE = pathlib.Path(__file__).resolve().parents[2]
READY_S = 60.0
COMMAND_S = 150.0
CHECK_S = 45.0
TIMED = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "all_to_all_v", "sendrecv")  # peers.py has them
COMMS = 20
RAIL_PORT = 7600  # of all rails, with --relay; they have addresses of their own
QUEUES = 90  # of a GPU, for all of its processes (128, less what the runtime keeps; with 104 ranks of 2x4 on one found no room)
EXECUTOR_QUEUES = 8
MODES = {
    "nccl": {},
    "nccl, sockets only": {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"},
}


def layout_of(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([2-8])x([1-8])", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text}: a layout is DAEMONSxGPUS, as 2x4, with 2 to 8 daemons of 1 to 8 GPUs")
    return int(found[1]), int(found[2])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binaries", type=pathlib.Path, default=TREE / "build" / "release", help="default: build/release")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for results and logs")
    parser.add_argument("--host", action="store_true", help="emulated GPUs")
    parser.add_argument("--layouts", default="2x1,2x2,2x4,4x2", help="default %(default)s")
    parser.add_argument("--delays", default="0,0.1,0.5,1,5", help="milliseconds (default %(default)s)")
    parser.add_argument("--policy", default="latency", help="of the resident kernels (default %(default)s)")
    parser.add_argument("--rails", type=int, default=4, choices=range(1, 17), metavar="N", help="1 to 16 (default %(default)s)")
    parser.add_argument("--rate", default="", metavar="BYTES", help="a second, of each rail, with K, M or G (default: no limit)")
    parser.add_argument("--relay", action="store_true", help="rails go through a program that delays what passes")
    parser.add_argument("--share", action="store_true", help="nodes share GPUs if there are too few")
    parser.add_argument("--each", type=int, default=1, metavar="N", help="ranks on each GPU (default %(default)s)")
    parser.add_argument("--staging", default="default", metavar="BYTES", help="gpu.staging, for many ranks on a GPU")
    parser.add_argument("--only", default=",".join(STEPS), help="steps (default: all)")
    parser.add_argument("--ops", default="all_reduce", help=f"of latency and nccl: {', '.join(TIMED)} (default %(default)s)")
    parser.add_argument("--min", default="128K", metavar="BYTES", help="of latency, nccl and delay (default %(default)s)")
    parser.add_argument("--max", default="2M", metavar="BYTES", help="(default %(default)s)")
    parser.add_argument("--time", type=float, default=540, help="seconds for all (default %(default)s)")
    parser.add_argument("--quick", action="store_true", help="a little of everything, to see that it works")
    options = parser.parse_args()
    options.binaries, options.out = options.binaries.resolve(), options.out.resolve()
    options.backend = "host" if options.host else "hip"
    try:
        options.layouts = [layout_of(text) for text in options.layouts.split(",")]
        options.delays = [float(text) for text in options.delays.split(",")]
        if not options.min or not options.max or report.parse_size(options.min) > report.parse_size(options.max):
            raise ValueError(f"sizes from {options.min or 'nothing'} to {options.max or 'nothing'}")
    except (ValueError, argparse.ArgumentTypeError) as error:
        parser.error(str(error))
    options.asked = options.only != parser.get_default("only")
    options.only = options.only.split(",")
    wrong = [step for step in options.only if step not in STEPS]
    if wrong:
        parser.error(f"no such step: {', '.join(wrong)}; there are {', '.join(STEPS)}")
    options.ops = options.ops.split(",")
    wrong = [op for op in options.ops if op not in TIMED]
    if wrong:
        parser.error(f"not timed: {', '.join(wrong)}; there are {', '.join(TIMED)}")
    programs = ("railmuxd", "railmux-executor", "railmux-perf", "railmuxctl")
    programs += ("relay",) if options.relay else ()
    missing = [p for p in programs if not (options.binaries / "bin" / p).exists()]
    if missing:
        parser.error(f"{options.binaries}/bin has no {', '.join(missing)}")
    return options


# ---- the daemons ------------------------------------------------------------------------------------------------------
class Machine(Node):
    """Owner of all processes of the run; the daemons of one layout at a time are in `cluster`."""

    cluster: Cluster | None = None

    def diagnosis(self) -> str:
        return self.cluster.diagnosis() if self.cluster else super().diagnosis()


class Cluster:
    """Daemons of one layout; `node` ends what is left of them."""

    def __init__(self, node: Machine, options: argparse.Namespace, daemons: int, gpus: int) -> None:
        self.node = node
        self.options = options
        self.daemons, self.gpus, self.each = daemons, gpus, options.each
        self.processes: list[subprocess.Popen[bytes]] = []
        self.relay: subprocess.Popen[str] | None = None
        self.name = f"{daemons}x{gpus}"

    def socket(self, i: int) -> pathlib.Path:
        return self.node.run_folder / f"n{i}.sock"

    def control(self, i: int) -> pathlib.Path:
        return self.node.run_folder / f"n{i}.control.sock"

    def log(self, i: int) -> pathlib.Path:
        return self.node.logs / f"railmuxd-{self.name}-{i}.log"

    @property
    def sockets(self) -> str:
        return ",".join(str(self.socket(i)) for i in range(self.daemons))

    def argv(self, i: int) -> list[str]:
        config = self.node.run_folder / "nodes.yaml"
        config.write_text(f"gpu:\n  policy: {self.options.policy}\n  staging: {self.options.staging}\n")
        words = [str(self.node.bin / "railmuxd"), "--gpu", f"{self.options.backend}:{self.gpus}"]
        words += ["--socket", str(self.socket(i)), "--control", str(self.control(i))]
        words += ["--listen", f"127.0.10.{i + 1}:0"]
        for k in range(self.options.rails):
            rail = f"rail{k}=127.0.{10 + k}.{i + 1}" + (f",rate={self.options.rate}" if self.options.rate else "")
            if self.options.relay:
                rail += f",port={RAIL_PORT},advertise=127.0.{10 + k}.{i + 101}:{RAIL_PORT}"
            words += ["--rail", rail]
        return words + ([] if self.options.host else ["--config", str(config)])

    def queues(self, processes: int = 0, most: int = EXECUTOR_QUEUES) -> str:
        """Of each process (0: as many as ranks), where GPUs are shared: a GPU has some 128 for all of them, which hear of too many
        as "busy or unavailable", and executors have their own."""
        processes = processes or self.daemons * self.gpus * self.each
        ranks = -(-processes // max(min(self.node.gpus, self.daemons * self.gpus), 1))
        executors = -(-self.daemons * self.gpus // max(self.node.gpus, 1))
        return str(max(2, min(most, (QUEUES - EXECUTOR_QUEUES * executors) // ranks)))

    def start(self) -> None:
        """RuntimeError, with what the daemon said."""
        if self.options.share:
            self.node.env["CUDA_DEVICE_MAX_CONNECTIONS"] = str(EXECUTOR_QUEUES)
        self.start_daemons()
        if self.options.share:
            self.node.env["CUDA_DEVICE_MAX_CONNECTIONS"] = self.queues()

    def start_relay(self) -> None:
        pairs = [(k, i) for k in range(self.options.rails) for i in range(self.daemons)]
        cables = [f"127.0.{10 + k}.{i + 101}:{RAIL_PORT}=127.0.{10 + k}.{i + 1}:{RAIL_PORT}" for k, i in pairs]
        argv = [str(self.node.bin / "relay"), *cables]
        self.relay = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.relay.stdout.readline() != "ready\n":
            raise RuntimeError(f"the relay does not start: {self.relay.stderr.read()}")

    def delay(self, ms: float) -> str:
        """What was in the way, "" if nothing."""
        if not self.relay:
            return delay_set(ms)
        order = f"{ms * 1000:.0f}\n"
        self.relay.stdin.write(order)
        self.relay.stdin.flush()
        return "" if self.relay.stdout.readline() == order else "the relay has ended"

    def start_daemons(self) -> None:
        if self.options.relay:
            self.start_relay()
        for i in range(self.daemons):
            env = {"RAILMUX_EXECUTOR": str(self.node.bin / "railmux-executor")}
            if not self.options.host:
                devices = dict.fromkeys((i * self.gpus + k) % self.node.gpus for k in range(self.gpus))  # each once
                env["CUDA_VISIBLE_DEVICES"] = ",".join(str(device) for device in devices)
            with self.log(i).open("wb") as file:
                self.processes.append(
                    subprocess.Popen(
                        self.argv(i),
                        stdin=subprocess.DEVNULL,
                        stdout=file,
                        stderr=subprocess.STDOUT,
                        env=self.node.our_env(env),
                        start_new_session=True,
                    )
                )
        end = min(time.monotonic() + READY_S, self.node.deadline)
        for i in range(self.daemons):
            while not self.ready(i):
                if self.processes[i].poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"daemon {i} of {self.name} is not ready:\n{tail(self.log(i))}")
                time.sleep(0.05)

    def ctl(self, i: int, command: str) -> Any:
        argv = [str(self.node.bin / "railmuxctl"), "--control", str(self.control(i)), "--json", command]
        try:
            answer = subprocess.run(argv, env=self.node.our_env(), capture_output=True, timeout=5, check=False)
            return json.loads(answer.stdout)
        except (OSError, ValueError, subprocess.TimeoutExpired):
            return None

    def ready(self, i: int) -> bool:
        status = (self.ctl(i, "status") or {}).get("status")
        if not status or status["state"] != "running":
            return False
        return sum(max(e["gpus"], 1) for e in status["executors"] if e["state"] == "ready") >= self.gpus

    def carried(self, i: int) -> int:
        """Bytes that its rails have brought to others; -1: it does not say."""
        answer = self.ctl(i, "rails")
        return sum(rail["bytes_sent"] for rail in answer["rails"]) if answer else -1

    def diagnosis(self) -> str:
        """For a command that did not end."""
        lines = []
        for i in range(self.daemons):
            answers = {command: self.ctl(i, command) for command in ("status", "comms", "rails")}
            lines += [f"--- daemon {i}", json.dumps(answers)[-1500:], tail(self.log(i), 1500)]
        return "\n".join(lines)

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()
        if self.relay:
            self.relay.kill()
            self.relay.communicate()
            self.relay = None
        self.node.end_strays()

    def perf(self, name: str, arguments: list[str], timeout_s: float = COMMAND_S) -> Finished:
        words = [*arguments, "--ranks", str(self.daemons * self.gpus * self.each), "--socket", self.sockets]
        finished = self.node.perf(f"{self.name}-{name}", words, timeout_s)
        if finished.status not in (0, 1):
            finished.output += "".join(f"\n--- daemon {i}\n{tail(self.log(i), 1500)}" for i in range(self.daemons))
        return finished


# ---- delays -------------------------------------------------------------------------------------------------------------
def delay_set(delay_ms: float) -> str:
    """Puts it on the loopback, 0: takes away what was put there. What was in the way, "" if nothing."""
    tc = shutil.which("tc", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]))
    if not tc:
        return "tc is not installed"
    words = ["replace", "dev", "lo", "root", "netem", "limit", "100000", "delay", f"{delay_ms}ms"]
    if not delay_ms:
        words = ["del", "dev", "lo", "root"]
    done = subprocess.run([tc, "qdisc", *words], capture_output=True, text=True, timeout=10, check=False)
    return (done.stderr.strip() or f"tc ended with {done.returncode}") if done.returncode else ""


# ---- steps ----------------------------------------------------------------------------------------------------------------
def lines_of(finished: Finished) -> list[dict[str, Any]]:
    return (finished.document or {}).get("results", [])


def step_correctness(cluster: Cluster, options: argparse.Namespace) -> dict[str, Any]:
    few = ["-w", "0", "-n", "1", "-c", "1"]
    commands = []
    for op in OPS:
        size = ["-b", "8", "-e", "64K" if options.quick or options.host else "1M", "-f", "64" if options.quick else "16"]
        commands.append((f"{op}-odd", [op, *few, "-d", "bf16", "--odd", *size]))
        redops = ["-o", "all"] if op in REDUCING else []
        if not options.quick:
            commands.append((f"{op}-types", [op, *few, "-d", "all", *redops, "-b", "200", "-e", "50K", "-f", "250"]))
        if not options.host:
            commands.append((f"{op}-graph", [op, *few, "-G", "3", "-d", "bf16", "-b", "64", "-e", "4M", "-f", "64"]))
    found = []
    for name, arguments in commands:
        found.append(cluster.perf(f"check-{name}", arguments, CHECK_S))
        if found[-1].status is None:  # what hangs here hangs in all of them
            break
    wrong = sum(line["wrong"] for finished in found for line in lines_of(finished))
    carried = [cluster.carried(i) for i in range(cluster.daemons)]
    failed = [finished.name for finished in found if not finished.good]
    failed += [f"the rails of daemon {i} have carried nothing" for i, n in enumerate(carried) if n <= 0]
    return {
        "commands": [finished.record() for finished in found],
        "lines": sum(len(lines_of(finished)) for finished in found),
        "wrong": wrong,
        "carried_bytes": carried,
        "failed": failed,
    }


def times_of(lines: list[dict[str, Any]]) -> dict[str, float]:
    """us by bytes."""
    return {str(line["bytes"]): line["p50_us"] for line in lines}


def latency_arguments(op: str, options: argparse.Namespace) -> list[str]:
    words = [*operation(op), "-d", "bf16", "--in-place", "0", "-b", options.min, "-e", options.max, "-f", "4" if options.quick else "2"]
    if options.host:
        return [*words, "-w", "3", "-n", "10"]
    return [*words, "-G", "20", "-w", "2", "-n", "5" if options.quick else "40"]


def step_latency(cluster: Cluster, options: argparse.Namespace) -> dict[str, Any]:
    """Its times, as all of them, are by operation and bytes."""
    done = {op: cluster.perf(f"latency-{op}", latency_arguments(op, options)) for op in options.ops}
    return {
        "commands": [finished.record() for finished in done.values()],
        "failed": [finished.name for finished in done.values() if not finished.good],
        "wrong": sum(line["wrong"] for finished in done.values() for line in lines_of(finished)),
        "us": {op: times_of(lines_of(finished)) for op, finished in done.items()},
    }


def step_nccl(cluster: Cluster, options: argparse.Namespace) -> dict[str, Any]:
    if options.host:
        return {"left out": "there are no GPUs"}
    if cluster.daemons * cluster.gpus > cluster.node.gpus or cluster.each > 1:
        return {"left out": "ranks share GPUs"}
    if not importlib.util.find_spec("torch"):
        return without("there is no torch", options)
    low, high = report.parse_size(options.min), report.parse_size(options.max)
    found: dict[str, Any] = {"commands": [], "failed": [], "us": {}, "wrong": 0}
    for mode, env in MODES.items():
        arguments = ["--library", "nccl", "--ranks", str(cluster.daemons * cluster.gpus), "--ops", ",".join(options.ops)]
        arguments += ["--modes", "graph", "--min", str(low), "--max", str(high), "--replays", "10" if options.quick else "40"]
        name = f"{cluster.name}-{mode.replace(', ', '-').replace(' ', '-')}"
        finished = cluster.node.script(
            name, "nodes_nccl.py", arguments, COMMAND_S, BENCH_NODES=str(cluster.daemons), NCCL_IB_DISABLE="1", **env
        )
        lines = lines_of(finished)
        found["commands"].append(finished.record())
        found["us"][mode] = {op: times_of([line for line in lines if line["op"] == op]) for op in options.ops}
        found["wrong"] += sum(line["wrong"] for line in lines)
        if not finished.good:
            found["failed"].append(finished.name)
    return found


def step_comms(cluster: Cluster, options: argparse.Namespace) -> dict[str, Any]:
    arguments = ["--ranks", str(cluster.daemons * cluster.gpus * cluster.each), "--count", str(COMMS)]
    env = {"BENCH_SOCKETS": cluster.sockets, "BENCH_EACH": str(cluster.each)}
    finished = cluster.node.script(f"{cluster.name}-comms", "nodes_comms.py", arguments, COMMAND_S, **env)
    document = finished.document or {}
    return {
        "commands": [finished.record()],
        "failed": [] if finished.good else [finished.name],
        "wrong": document.get("wrong", 0),
        "ms": document.get("ms", {}),
    }


def step_delay(cluster: Cluster, options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {"commands": [], "failed": [], "us": {}, "wrong": 0}
    delayed = False
    try:
        for delay in options.delays:
            problem = cluster.delay(delay) if delay or delayed else ""
            if problem:
                found["left out"] = f"delays on the loopback: {problem}"
                found["failed"] += [problem] if options.asked else []
                break
            delayed = delay > 0
            finished = cluster.perf(f"delay-{delay}", latency_arguments("all_reduce", options))
            found["commands"].append(finished.record())
            found["us"][str(delay)] = times_of(lines_of(finished))
            found["wrong"] += sum(line["wrong"] for line in lines_of(finished))
            if not finished.good:
                found["failed"].append(finished.name)
    finally:
        if delayed:
            cluster.delay(0)
    return found


STEPS = {
    "correctness": step_correctness,
    "latency": step_latency,
    "nccl": step_nccl,
    "comms": step_comms,
    "delay": step_delay,
    "dropin": dropin_step,
    "torch": torch_step,
}
ALONE = ("nccl",)  # without daemons


# ---- what was found ---------------------------------------------------------------------------------------------------
def table(rows: dict[str, dict[str, float]], first: str) -> list[str]:
    sizes = sorted({int(size) for times in rows.values() for size in times})
    if not sizes:
        return ["(nothing was measured)", ""]
    lines = [f"| {first} | " + " | ".join(report.format_size(size) + "B" for size in sizes) + " |"]
    lines.append("|---" * (len(sizes) + 1) + "|")
    for name, times in rows.items():
        cells = [f"{times[str(size)]:.1f}" if str(size) in times else "" for size in sizes]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def markdown(result: dict[str, Any]) -> str:
    lines = ["# Virtual nodes over the loopback", "", "Microseconds (p50), bf16, out of place (NCCL: in place where it can).", ""]
    through = ", through a relay" if result["relay"] else ""
    rate = f", {result['rate']} bytes a second each" if result["rate"] else ""
    lines += [f"Rails of each daemon: {result['rails']}{rate}{through}.", ""]
    for name, steps in result["layouts"].items():
        lines += [f"## {name}", ""]
        if isinstance(steps, str):
            lines += [f"Left out: {steps}.", ""]
            continue
        for step, found in steps.items():
            for word in ("left out", "error"):
                if word in found:
                    lines += [f"{step}: {word}: {found[word]}", ""]
            if "commands" in found:
                bad = f"; failed: {', '.join(found['failed'])}" if found["failed"] else ""
                lines += [f"{step}: {len(found['commands'])} commands, {found['wrong']} wrong elements{bad}", ""]
        peers = steps.get("nccl", {}).get("us", {})
        for op, ours in steps.get("latency", {}).get("us", {}).items():
            lines += table({"railmux": ours, **{mode: us[op] for mode, us in peers.items()}}, op)
        for name, ms in steps.get("comms", {}).get("ms", {}).items():
            times = ", ".join(f"{one:.1f}" for one in ms)
            lines += [f"Communicators, {name}: {times} ms, slowest but the first {max(ms[1:]):.1f}.", ""]
        if steps.get("delay", {}).get("us"):
            lines += table({f"{d} ms": us for d, us in steps["delay"]["us"].items()}, "delay, each way")
    return "\n".join(lines) + "\n"


def take_step(cluster: Cluster, options: argparse.Namespace, name: str, steps: dict[str, Any]) -> None:
    ours = [found for other, found in steps.items() if other not in ALONE]
    if time.monotonic() + 5 > cluster.node.deadline:
        steps[name] = {"left out": "no time"}
        return
    if any(command["status"] is None for found in ours for command in found.get("commands", [])):
        steps[name] = {"left out": "something did not end before"}
        return
    steps[name] = STEPS[name](cluster, options)
    outcome = "failed" if is_bad(steps[name]) else steps[name].get("left out", "done")
    more = ", ".join([*steps[name].get("failed", []), *(f"{k}: {v}" for k, v in steps[name].get("us", {}).items())])
    print(f"{cluster.name} {name}: {outcome} {more}", flush=True)


def run_layout(node: Machine, options: argparse.Namespace, daemons: int, gpus: int) -> dict[str, Any]:
    cluster = Cluster(node, options, daemons, gpus)
    steps: dict[str, Any] = {}
    alone = [name for name in options.only if name in ALONE]
    try:
        for name in alone:
            take_step(cluster, options, name, steps)
        if any(is_bad(found) for found in steps.values()) and not options.host:
            node.mps_renew(False)
        if alone == options.only:
            return steps
        node.cluster = cluster
        cluster.start()
        for name in options.only:
            if name not in ALONE:
                take_step(cluster, options, name, steps)
    except RuntimeError as error:
        steps["start"] = {"error": str(error)}
        print(f"{cluster.name}: {error}", flush=True)
    except (KeyError, TypeError, ValueError, OSError) as error:  # what is measured before and after is worth keeping
        steps["trouble"] = {"error": traceback.format_exc(limit=4)}
        print(f"{cluster.name}: {error}", flush=True)
    finally:
        cluster.stop()
        node.cluster = None
    if not options.host and any(is_bad(found) for found in steps.values()):
        node.mps_renew(False)  # for the next one
    return steps


def is_bad(found: dict[str, Any]) -> bool:
    return bool(found.get("error") or found.get("failed") or found.get("wrong"))


def gpus_here(options: argparse.Namespace) -> int:
    if options.host:
        return 64
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=True).stdout
        return len(listed.strip().splitlines())
    except (OSError, subprocess.SubprocessError):
        return 0


def main() -> int:
    options = parse()
    (options.out / "logs").mkdir(parents=True, exist_ok=True)
    here = gpus_here(options)
    node = Machine(options.binaries, options.out, options.backend, here, time.monotonic() + options.time)
    result: dict[str, Any] = {"version": 1, "machine": report.machine([]), "gpus": here, "rails": options.rails, "layouts": {}}
    result |= {"relay": options.relay, "rate": options.rate}
    try:
        if not options.host and here:
            result["mps"] = node.mps_start(False)
        for daemons, gpus in options.layouts:
            name = f"{daemons}x{gpus}"
            if daemons * gpus > here and not options.share:
                result["layouts"][name] = f"it needs {daemons * gpus} GPUs, and there are {here}"
                print(f"{name}: left out: {result['layouts'][name]}")
                continue
            result["layouts"][name] = run_layout(node, options, daemons, gpus)
            (options.out / "nodes.json").write_text(json.dumps(result, indent=1))
    finally:
        node.close()
    (options.out / "nodes.json").write_text(json.dumps(result, indent=1))
    (options.out / "nodes.md").write_text(markdown(result))
    found = [step for steps in result["layouts"].values() if isinstance(steps, dict) for step in steps.values()]
    return 1 if not found or any(is_bad(step) for step in found) else 0


if __name__ == "__main__":
    sys.exit(main())
