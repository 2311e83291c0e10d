#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""bench/gpu on a machine without a GPU: test_bench.py BENCH-FOLDER BUILD-TREE SCRATCH-FOLDER C-COMPILER

The whole orchestration runs on the host backend; then with programs that are wrong, missing or never end, which a run
must report and survive.
"""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import types
from typing import Any

BENCH, TREE, SCRATCH = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
COMPILER = sys.argv[4]
# What hostile.py knows of headers, which no machine without a GPU would see it use.
HOSTILE_KNOWS = """
BELL_MAGIC == MAGIC; BELL_DEPTH == DEPTH; BELL_LINES == LINES; BELL_HANDLES == HANDLES; BELL_RANKS == RANKS
BELL_LANES == LANES; BELL_ARGUMENT_BYTES == ARGUMENT_BYTES; BELL_OFFSET_INBOX == BYTES
offsetof(struct bell_header, magic) == 0; offsetof(struct bell_header, counter) == COUNTER_AT
BELL_OFFSET_RELEASED == RELEASED_AT; BELL_OFFSET_SEQUENCE == SEQUENCE_AT; BELL_OFFSET_PAIR == PAIR_AT
BELL_OFFSET_LINES == LINES_AT; BELL_OFFSET_DONE == DONE_AT; BELL_OFFSET_ARGUMENT == ARGUMENT_AT
RING_WORDS == WORDS; RING_W_HEAD == W_HEAD; RING_W_COUNT_LO == W_COUNT; RING_W_ARGUMENT == W_ARGUMENT
RING_W_FLAGS == W_FLAGS; RING_W_SEQUENCE == W_SEQUENCE; RING_OP_COUNT == OPERATIONS; RING_OP_GROUP == GROUP
RING_OP_ALL_TO_ALL_V == ALL_TO_ALL_V; RMX_DEVICE_VERSION == DEVICE_VERSION
sizeof(struct rmx_device_call) == CALL_BYTES; sizeof(struct rmx_device_handle) == HANDLE_BYTES
offsetof(struct rmx_device_handle, area) == HANDLE_AREA; offsetof(struct rmx_device_handle, word) == HANDLE_WORD
"""
SCRIPTS = (
    "nodes.py",
    "nodes_comms.py",
    "peers.py",
    "layer.py",
    "overlap.py",
    "interference.py",
    "comms.py",
    "soak.py",
    "churn.py",
    "segments.py",
    "bell.py",
    "kills.py",
    "hostile.py",
    "dist.py",
    "compare.py",
    "variant.py",
)
NEED_GPUS = ("peers", "torch", "nccl", "blocks", "layer", "overlap", "hostile", "interference")
failures = 0


def check(what: str, good: bool, why: Any = "") -> None:
    global failures
    print(f"{'ok' if good else 'FAILED'}: {what}{'' if good else f': {why}'}", flush=True)
    failures += not good


def run(arguments: list[str], timeout_s: float = 180) -> subprocess.CompletedProcess[str]:
    # What finds itself in torch's place says what it is: nothing here may need it.
    env = dict(os.environ, PYTHONPATH=str(SCRATCH / "no-torch"), PYTHONDONTWRITEBYTECODE="1")
    return subprocess.run(arguments, capture_output=True, text=True, timeout=timeout_s, env=env, check=False)


def bench(name: str, binaries: pathlib.Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    out = SCRATCH / name
    fixed = ["--host", "--quick", "--ranks", "2", "--binaries", str(binaries), "--out", str(out)]
    done = run([sys.executable, str(BENCH / "run"), *fixed, *arguments])
    try:
        return done, json.loads((out / "result.json").read_text())["steps"]
    except (OSError, ValueError):
        return done, {}


def command_lines() -> None:
    for script in ("run", *SCRIPTS):
        done = run([sys.executable, str(BENCH / script), "--help"])
        check(f"{script} --help", done.returncode == 0 and "usage:" in done.stdout, done.stderr)
    base = [sys.executable, str(BENCH / "run"), "--out", str(SCRATCH / "none"), "--binaries", str(TREE)]
    for wrong in (
        ["--only", "nothing"],
        ["--ranks", "65"],
        ["--policies", "slow"],
        ["--max", "lots"],
        ["--binaries", "/nowhere"],
    ):
        done = run([*base, "--host", *wrong])
        check(f"refuses {' '.join(wrong)}", done.returncode == 2 and "error:" in done.stderr, done.stderr)
    done = run([*base, "--host", "--print", "--only", "collectives"])
    check("--print", done.returncode == 0 and "railmux-perf all_reduce" in done.stdout, done.stdout + done.stderr)
    check("writes nothing then", not (SCRATCH / "none").exists())


def everything() -> None:
    done, steps = bench("all", TREE, "--time", "150")
    check("exit status", done.returncode == 0, f"{done.returncode}\n{done.stdout}{done.stderr}")
    check("all steps are there", len(steps) == 16, list(steps))
    for name, found in steps.items():
        wanted = "left out: needs GPUs" if name in NEED_GPUS else "done"
        check(f"{name}: {wanted}", found["outcome"] == wanted and not found.get("left_over"), json.dumps(found)[-2000:])
    check(
        "all events were as they should be",
        all(
            event["outcome"] in ("done", "as expected")
            for name in ("soak", "kills")
            for event in steps.get(name, {}).get("events", [])
        ),
    )
    text = (SCRATCH / "all" / "result.md").read_text()
    check("tables", all(f"### {title}" in text for title in ("all_reduce, 2 ranks", "Communicators", "Soak", "Kills")), text)


def spoilt(name: str, perf: str) -> pathlib.Path:
    """A build tree with another railmux-perf."""
    tree = SCRATCH / name / "tree"
    (tree / "bin").mkdir(parents=True)
    for program in ("railmuxd", "railmux-executor", "railmuxctl"):
        (tree / "bin" / program).symlink_to(TREE / "bin" / program)
    (tree / "lib").symlink_to(TREE / "lib")
    (tree / "bin" / "railmux-perf").write_text(f"#!/bin/sh\n{perf}\n")
    (tree / "bin" / "railmux-perf").chmod(0o755)
    return tree


def faults() -> None:
    done, steps = bench("fails", spoilt("fails", "echo planted; exit 3"), "--only", "smoke,comms", "--time", "40")
    check("a failure is told", done.returncode == 1 and steps["smoke"]["outcome"] == "failed", done.stdout)
    check("with its output", "planted" in done.stdout and "planted" in json.dumps(steps["smoke"]), done.stdout)
    check("and the rest is done", steps["comms"]["outcome"] == "done", done.stdout)

    start = time.monotonic()
    done, steps = bench("hangs", spoilt("hangs", "sleep 1000 & wait"), "--only", "smoke", "--time", "20")
    took = time.monotonic() - start
    check("what never ends is ended", done.returncode == 1 and steps["smoke"]["commands"][0]["status"] is None, done.stdout)
    check("in time", took < 20, took)
    check("with all that it started", not steps["smoke"].get("left_over"), steps["smoke"].get("left_over"))


def tables() -> None:
    """Those of steps that no machine without a GPU takes."""
    import report

    lines = [{"blocks": n, "bytes": size, "ranks": 2, "p50_us": 3.5 * n + size, "wrong": n == 2} for n in (2, 16) for size in (512, 8)]
    text = "\n".join(report.blocks_table({"results": lines}))
    check("resident blocks as a table", "| bytes | 2 | 16 |" in text and "| 8 | - | 64.00 |\n| 512 | - | 568 |" in text, text)
    check("of nothing there is none", report.blocks_table({}) == [])
    import peers

    for op in peers.OPS:  # options.c and pattern_blocks() have the same
        blocks = 1 if op in ("all_reduce", "broadcast", "sendrecv") else 4
        check(f"count of {op}", peers.count_of(op, 1024, 4) == 512 // blocks)


def headers() -> None:
    import hostile

    known = {name: value for name, value in vars(hostile).items() if name.isupper() and isinstance(value, int)}
    known |= {"CALL_BYTES": ctypes.sizeof(hostile._Call), "HANDLE_BYTES": ctypes.sizeof(hostile._Handle)}
    known |= {"HANDLE_AREA": hostile._Handle.area.offset, "HANDLE_WORD": hostile._Handle.word.offset}
    root = BENCH.parents[1]
    for spoil in (None, "MAGIC", "HANDLE_WORD"):
        lines = ['#include "gpu/device/bell.h"', '#include "railmux/railmux.h"', '#include "ring/line.h"']
        lines += [f"enum {{ {name} = {value + (name == spoil)} }};" for name, value in known.items()]
        lines += [f'_Static_assert({one.strip()}, "as hostile.py has it");' for one in re.split("[;\n]", HOSTILE_KNOWS.strip())]
        argv = [COMPILER, "-std=gnu17", "-fsyntax-only", f"-I{root}", f"-I{root}/include", "-xc", "-"]
        done = subprocess.run(argv, input="\n".join(lines), capture_output=True, text=True, check=False)
        if spoil:
            check(f"hostile.py with another {spoil} is found", done.returncode != 0)
        else:
            check("hostile.py knows the headers", done.returncode == 0, done.stderr)


def settings() -> None:
    """Churn and garbage are tried where the executors carry out everything, too, and the results say which is which."""
    import steps

    daemons: list[Any] = []
    began: list[tuple[str, Any]] = []

    def script(name: str, *arguments: Any, **env: str) -> Any:
        began.append((name, daemons[-1]))
        return types.SimpleNamespace(record=lambda: {}, document={"events": [{"name": "x", "outcome": "done"}], "wrong": 1})

    answer = {"status": {"executors": [{"pid": 7}]}}
    known = {"policies": ["latency:exchange=1K"], "ranks": 2, "backend": "hip", "operations": 1, "replays": 1, "multiuser": False}
    run = types.SimpleNamespace(hip=True, quick=True, options=types.SimpleNamespace(**known), need_gpus=lambda: None)
    run.left = lambda most: min(most, 1000.0)
    run.daemon = lambda policy=None: daemons.append(policy)
    run.node = types.SimpleNamespace(script=script, ctl=lambda what: answer)
    off = "latency:exchange=off"
    for step, names in ((steps.step_soak, ["churn", "churn-exchange=off"]), (steps.step_hostile, ["hostile-default", "hostile-exchange=off"])):
        began.clear()
        found = step(run)
        tried = sorted(entry for entry in began if entry[0] in names)
        check(f"{names[0]} in both settings", tried == [(names[0], None), (names[1], off)], began)
        named = {event["name"].split(":")[0].removeprefix("hostile-") for event in found["events"]}
        check("and the results say so", {name.removeprefix("hostile-") for name in names} <= named, named)
        check("and count both", found["wrong"] == len(began), found["wrong"])


def ends() -> None:
    """kills.py lets nobody pass who hangs or crashes, and the hub nobody wait for who has left."""
    import crew
    import kills

    well, told = {"error": "", "over": True}, {"error": "RMX_E_LOST: x", "over": True}
    check("clients that end as they should", not kills.bad_ends([well, told], {}))
    for what, report, failed in (("crash", {"error": ""}, {1: 5}), ("hang", {**told, "error": "hang"}, {}), ("late crash", well, {1: -11})):
        found = kills.bad_ends([well, report], failed)
        check(f"a client's {what} is told", len(found) == 1 and "client 1" in found[0], found)
    (SCRATCH / "hub").mkdir()
    hub = crew._Hub(2, str(SCRATCH / "hub" / "hub"))
    one, other = (crew.Crew(rank, 2, str(SCRATCH / "hub" / "hub")) for rank in range(2))
    one._socket.settimeout(30)
    one._send({"key": "", "value": None})
    while not hub.waiting:
        time.sleep(0.001)
    other.leave()
    try:
        check("who waits for one that has left is told", one._file.readline() == b"")
    except OSError as error:
        check("who waits for one that has left is told", not isinstance(error, TimeoutError), error)


class FakeComm:
    """Of one rank, on the host. The call of the number `lost` ends and has done nothing."""

    def __init__(self, lost: int = 0) -> None:
        self.lost, self.calls = lost, 0

    def all_reduce(self, source: int, to: int, count: int, kind: int) -> None:
        self.calls += 1
        if self.calls != self.lost:
            ctypes.memmove(to, source, 4 * count)

    def destroy(self) -> None:
        pass


class FakeSession:
    gpus = 1
    lost = 0

    def __init__(self, name: str = "") -> None:
        self.memory: list[Any] = []

    def new_id(self) -> bytes:
        return b""

    def comm(self, *arguments: Any) -> FakeComm:
        return FakeComm(self.lost)

    def alloc(self, size: int) -> int:
        self.memory.append(ctypes.create_string_buffer(size))
        return ctypes.addressof(self.memory[-1])

    def close(self) -> None:
        pass


class FakeCrew:
    rank, ranks = 0, 1

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = str(folder)
        folder.mkdir(exist_ok=True)

    def gather(self, value: Any, key: str = "") -> list[Any]:
        return [value]

    def barrier(self) -> None:
        pass

    def slowest(self, samples: list[float]) -> list[float]:
        return samples

    def total(self, number: int) -> int:
        return number

    def from_first(self, value: Any) -> Any:
        return value


def lost_calls() -> None:
    """Scripts that make one call again and again see a single one that did nothing."""
    import bell
    import hostile
    import railmux
    import small

    crew, kept = FakeCrew(SCRATCH / "lost"), railmux.Session
    path = SCRATCH / "lost" / "result.json"
    options = types.SimpleNamespace(clients=1, seconds=0.05, backend="host", json=path, rounds=4, pauses=[0], awake=False)
    # 50 calls come before the first phase, and each fifth one after them is looked at; bell makes 23 before the first it times
    for lost, bad in ((0, False), (50 + hostile.LOOK_EVERY + 1, True), (50 + 100 * (hostile.LOOK_EVERY + 1), True)):
        session = FakeSession()
        found = hostile.call(crew, options, small.Small(FakeComm(lost), session, "host"))
        check(f"hostile.py, call {lost or 'none'} is lost", (found["wrong"] == small.COUNT) == bad and found["looks"] > 100, found["wrong"])
    railmux.Session = FakeSession
    for lost, bad in ((0, False), (24, True), (27, True)):
        FakeSession.lost = lost
        bell.rank_main(crew, options)
        wrong = json.loads(path.read_text())["wrong"]
        check(f"bell.py, call {lost or 'none'} is lost", (wrong == small.COUNT) == bad, wrong)
    railmux.Session = kept


def first_calls() -> None:
    """comms.py: the first call on a communicator is part of what it costs, and its result is looked at."""
    import comms
    import railmux

    class Late(FakeComm):
        def all_reduce(self, *arguments: Any) -> None:
            end = time.monotonic() + 0.005
            while time.monotonic() < end:
                pass
            super().all_reduce(*arguments)

    class Session(FakeSession):
        def comm(self, *arguments: Any) -> FakeComm:
            return Late()

    crew, kept, path = FakeCrew(SCRATCH / "first"), railmux.Session, SCRATCH / "first" / "result.json"
    railmux.Session = Session
    comms.rank_main(crew, types.SimpleNamespace(ranks=1, backend="host", further=3, json=path))
    crew.ranks = 2  # the sum should be another one then
    found = json.loads(path.read_text())
    check("comms.py times the first call", min(found["libraries"][0][key] for key in ("first_ms", "p50_ms")) >= 5, found)
    comms.rank_main(crew, types.SimpleNamespace(ranks=2, backend="host", further=3, json=path))
    wrong = json.loads(path.read_text())["wrong"]
    check("and looks at its result", found["wrong"] == 0 and wrong == 4 * comms.COUNT, (found["wrong"], wrong))
    railmux.Session = kept


def comparison() -> None:
    """Of the library with itself, and with what is none."""
    soname = "librailmux.so.0"
    none = SCRATCH / "none.so"
    none.write_text("not a library\n")
    fixed = [sys.executable, str(BENCH / "compare.py"), "--host", "--binaries", str(TREE), "--ranks", "2", "--file", soname]
    fixed += ["--calls", "3", "--time", "60", "--out", str(SCRATCH / "compare"), "--variant", f"a={TREE / 'lib' / soname}"]
    done = run([*fixed, "--variant", f"b={TREE / 'lib' / soname}", "--what", "all_reduce:4K:8K,broadcast:4K", "--check"])
    rows = json.loads((SCRATCH / "compare" / "compare.json").read_text())["rows"]
    check("two builds beside each other", done.returncode == 0 and len(rows) == 3, done.stdout + done.stderr)
    check("with a ratio", all(set(r["ratio"]) == {"a", "b"} and len(r["all_us"]["b"]) == 2 for r in rows), rows)
    done = run([*fixed, "--variant", f"b={none}", "--what", "all_reduce:4K", "--turns", "1"])
    rows = json.loads((SCRATCH / "compare" / "compare.json").read_text())["rows"]
    check("a variant is what runs", done.returncode == 1 and "FAILED: time-b-all_reduce-0" in done.stdout, done.stdout)
    check("and the other one, too", [set(r["us"]) for r in rows] == [{"a"}], rows)
    for wrong in (["--what", "all_reduce"], ["--what", "sum:4K"], ["--what", "all_reduce:8K:4K"], ["--variant", "a=/nowhere"], []):
        done = run([*fixed, *wrong])
        check(f"compare.py refuses {' '.join(wrong) or 'one variant'}", done.returncode == 2 and "error:" in done.stderr, done.stderr)


def variants() -> None:
    """A library of a tree, built once more."""
    target, out = "lib/libdaemon_preload.so", SCRATCH / "variant.so"
    fixed = [sys.executable, str(BENCH / "variant.py"), str(TREE), str(out), "--target", target]
    before = (TREE / target).read_bytes()
    done = run([*fixed, "-DVARIANT_OF_ITS_OWN=1"])
    check("variant.py", done.returncode == 0 and out.read_bytes()[:4] == b"\x7fELF", done.stderr)
    done = run([*fixed, "-Dint=no_type"])
    check("with macros", done.returncode == 1 and "no_type" in done.stderr, done.stderr)
    check("the tree stays as it is", (TREE / target).read_bytes() == before)
    copy = SCRATCH / "sources"
    (copy / "tests").mkdir(parents=True)
    (copy / "CMakeLists.txt").touch()
    done = run([*fixed, "--source", str(copy)])
    check("of other sources, which are not there", done.returncode == 1 and str(copy) in done.stderr, done.stderr)
    for wrong in (["--target", "lib/none.so"], ["--target", "all"]):
        done = run([*fixed, *wrong])
        check(f"variant.py refuses {' '.join(wrong)}", done.returncode == 1 and "variant.py: " in done.stderr, done.stderr)


def virtual_nodes() -> None:
    script = [sys.executable, str(BENCH / "nodes.py"), "--host", "--quick", "--binaries"]
    bad_words = (["--layouts", "1x4"], ["--layouts", "2x"], ["--only", "nothing"], ["--delays", "long"], ["--ops", "sum"], ["--min", "M"], ["--min", "4M"])
    for wrong in bad_words:
        done = run([*script, str(TREE), "--out", str(SCRATCH / "none"), *wrong])
        check(f"nodes.py refuses {' '.join(wrong)}", done.returncode == 2 and "error:" in done.stderr, done.stderr)
    out = SCRATCH / "nodes"
    done = run([*script, str(TREE), "--out", str(out), "--layouts", "2x2,3x1", "--only", "correctness,latency,nccl,comms", "--ops", "all_reduce,all_gather", "--time", "150"])
    check("virtual nodes", done.returncode == 0, done.stdout + done.stderr)
    delays = SCRATCH / "delays"
    done = run([*script, str(TREE), "--out", str(delays), "--layouts", "2x1", "--relay", "--rate", "1G", "--only", "delay", "--delays", "0,2", "--max", "128K", "--time", "150"])
    check("delays", done.returncode == 0, done.stdout + done.stderr)
    us = json.loads((delays / "nodes.json").read_text())["layouts"].get("2x1", {}).get("delay", {}).get("us", {}) if done.returncode == 0 else {}
    check("what is delayed takes at least that", list(us) == ["0.0", "2.0"] and us["2.0"].get("131072", 0) >= 2000, us)
    dropin = SCRATCH / "dropin"
    done = run([*script, str(TREE), "--out", str(dropin), "--layouts", "2x1", "--only", "dropin,torch", "--time", "150"])
    there = (TREE / "nccl" / "libnccl.so.2").exists() and (TREE / "bin" / "nccl_conformance").exists()
    check("the drop-in over virtual nodes", done.returncode == (0 if there else 1), done.stdout + done.stderr)
    written = (dropin / "nodes.json").exists()
    steps = json.loads((dropin / "nodes.json").read_text())["layouts"].get("2x1", {}) if written else {}
    suite = steps.get("dropin", {})
    check("its cases", suite.get("cases", 0) > 50 if there else "left out" in suite, steps)
    check("without torch", steps.get("torch", {}).get("left out") == "there are no GPUs", steps)
    found = json.loads((out / "nodes.json").read_text())["layouts"] if (out / "nodes.json").exists() else {}
    for name, daemons in (("2x2", 2), ("3x1", 3)):
        steps = found.get(name, {})
        carried = steps.get("correctness", {}).get("carried_bytes", [])
        check(f"{name}: all daemons' rails have carried something", len(carried) == daemons and min(carried) > 0, carried)
        times = steps.get("latency", {}).get("us", {})
        check(f"{name}: times", [(op, len(us)) for op, us in times.items()] == [("all_reduce", 3), ("all_gather", 3)], steps)
        made = steps.get("comms", {}).get("ms", {})
        check(f"{name}: communicators", [len(ms) for ms in made.values()] == [20, 20] and min(map(min, made.values())) > 0, steps)
        check(f"{name}: without NCCL", steps.get("nccl", {}).get("left out") == "there are no GPUs", steps)
    done = run([*script, str(spoilt("nodes-fails", "echo planted; exit 3")), "--out", str(out), "--layouts", "2x1", "--only", "latency"])
    text = (out / "nodes.json").read_text()
    hangs = str(spoilt("nodes-hang", "sleep 1000 & wait"))
    hang = run([*script, hangs, "--out", str(SCRATCH / "nodes-h"), "--layouts", "2x1", "--only", "correctness,delay", "--time", "12"])
    found = json.loads((SCRATCH / "nodes-h" / "nodes.json").read_text())["layouts"]["2x1"]
    check("what hangs is ended once", hang.returncode == 1 and len(found["correctness"]["commands"]) == 1, hang.stdout + hang.stderr)
    check("and the tables are written", (SCRATCH / "nodes-h" / "nodes.md").exists() and "left out" in found["delay"], found)
    check("a failure between nodes is told", done.returncode == 1 and "planted" in text and "railmuxd" in text, text[-2000:])


def nodes_alone() -> None:
    """NCCL is measured before there are daemons."""
    import nodes

    seen: list[str] = []

    class Still(nodes.Cluster):
        def start(self) -> None:
            seen.append("start")

        def stop(self) -> None:
            seen.append("stop")

    def step(name: str) -> Any:
        return lambda cluster, options: seen.append(name) or {}

    node = types.SimpleNamespace(deadline=time.monotonic() + 60, cluster=None)
    for only, wanted in (("latency,nccl,comms", "nccl,start,latency,comms,stop"), ("nccl", "nccl,stop")):
        options = types.SimpleNamespace(only=only.split(","), host=True, each=1)
        kept = nodes.Cluster, nodes.STEPS
        nodes.Cluster, nodes.STEPS = Still, {name: step(name) for name in options.only}
        nodes.run_layout(node, options, 2, 1)
        nodes.Cluster, nodes.STEPS = kept
        check(f"NCCL is alone in {only}", ",".join(seen) == wanted, seen)
        seen.clear()


def torch_parts() -> None:
    """A part of dist.py that had no time is not taken for one that was right; nor is a daemon that keeps what is over."""
    import nodes_dropin
    from node import Finished

    ours, parts = str(SCRATCH / "no-torch" / "torch.py"), {part: {"outcome": "done"} for part in nodes_dropin.TORCH_PARTS}
    options = types.SimpleNamespace(host=False, quick=True)
    kept = nodes_dropin.preloads, nodes_dropin.importlib, nodes_dropin.LEFT_S
    nodes_dropin.LEFT_S = 0
    clean = {"comms": [], "sessions": []}
    nodes_dropin.preloads = lambda node: [ours]
    nodes_dropin.importlib = types.SimpleNamespace(util=types.SimpleNamespace(find_spec=lambda name: name))
    good = {"parts": parts, "nccl_file": ours}
    for what, document, second, wanted in (
        ("all parts", good, clean, []),
        ("no time", good | {"parts": parts | {"ddp": {"outcome": "left out: no time"}}}, clean, ["ddp: left out: no time"]),
        ("a part is missing", good | {"parts": {k: v for k, v in parts.items() if k != "exit"}}, clean, ["exit: missing"]),
        ("another library", good | {"nccl_file": __file__}, clean, [f"torch used {__file__}"]),
        ("no library", good | {"nccl_file": ""}, clean, ["torch used a library that it does not name"]),
        ("a communicator stays", good, clean | {"comms": [7]}, ['left in daemon 1: {"comms": 7}']),
        ("a daemon says nothing", good, {"comms": []}, ['left in daemon 1: "no answer about sessions"']),
    ):
        finished = Finished("torch", [], 0, 1.0, "", document)
        node = types.SimpleNamespace(run_folder=SCRATCH, script=lambda *words, **env: finished)
        answers = [clean, second]
        cluster = types.SimpleNamespace(node=node, name="2x1", daemons=2, gpus=1, each=1, sockets="")
        cluster.ctl = lambda i, kind, answers=answers: answers[i]
        found = nodes_dropin.torch_step(cluster, options)
        check(f"torch over nodes, {what}", found["failed"] == wanted, found)
    nodes_dropin.preloads, nodes_dropin.importlib, nodes_dropin.LEFT_S = kept


def not_there() -> None:
    """A step that lacks something is left out, and a failure if it was asked for."""
    import nodes

    node = types.SimpleNamespace(bin=SCRATCH / "nothing" / "bin", deadline=time.monotonic() + 60)
    cluster = types.SimpleNamespace(node=node, name="2x1", daemons=2, gpus=1, each=1)
    for asked in (False, True):
        steps: dict[str, Any] = {}
        nodes.take_step(cluster, types.SimpleNamespace(asked=asked, host=True), "dropin", steps)
        good = bool(steps["dropin"].get("left out")) and nodes.is_bad(steps["dropin"]) == asked
        check(f"what is not there, {'asked' if asked else 'not asked'} for", good, steps)


def main() -> int:
    shutil.rmtree(SCRATCH, ignore_errors=True)
    (SCRATCH / "no-torch").mkdir(parents=True)
    (SCRATCH / "no-torch" / "torch.py").write_text('raise ImportError("torch is not for this machine")\n')
    sys.path.insert(0, str(BENCH))
    sys.dont_write_bytecode = True
    command_lines()
    tables()
    headers()
    everything()
    faults()
    ends()
    settings()
    lost_calls()
    first_calls()
    nodes_alone()
    torch_parts()
    not_there()
    virtual_nodes()
    comparison()
    variants()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
