# SPDX-License-Identifier: MIT
"""What a run found, as JSON and as tables for docs/benchmarks.md."""

from __future__ import annotations

import json
import os
import pathlib
import platform
import shutil
import tarfile
import time
from typing import Any

BEGIN, END = "<!-- gpu tables: begin -->", "<!-- gpu tables: end -->"


def parse_size(text: str) -> int:
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1].upper()] if text[-1].upper() in units else int(text)


def format_size(size: int) -> str:
    for unit, shift in (("G", 30), ("M", 20), ("K", 10)):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift} {unit}"
    return str(size)


def plain(values: dict[str, Any]) -> dict[str, Any]:
    return {key: str(value) if isinstance(value, pathlib.Path) else value for key, value in values.items()}


def machine(gpus: list[str]) -> dict[str, Any]:
    cpu = "unknown"
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return {
        "cpu": cpu,
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "gpus": gpus,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def brief(found: dict[str, Any]) -> str:
    """One line for the terminal."""
    words = [f"{found['seconds']} s"] if "seconds" in found else []
    commands = found.get("commands", [])
    failed = [c for c in commands if c["status"] != 0]
    if commands:
        words.append(f"{len(commands) - len(failed)} of {len(commands)} commands")
    for key in ("lines", "operations", "cases", "wrong"):
        if key in found:
            words.append(f"{key} {found[key]}")
    if found.get("error"):
        words.append(found["error"].strip().splitlines()[-1][:200])
    elif failed:
        how = "did not end" if failed[0]["status"] is None else f"status {failed[0]['status']}"
        last = failed[0].get("output", "").strip().splitlines()[-1:] if failed[0]["status"] is not None else []
        words.append(f"first: {failed[0].get('name', '')} ({how}) {' '.join(last)[:200]}".strip())
    return ", ".join(words)


# ---- tables -------------------------------------------------------------------------------------------------------
def table(head: list[str], rows: list[list[Any]]) -> list[str]:
    def cell(value: Any) -> str:
        if value is None:
            return "-"
        if isinstance(value, float):
            return f"{value:.2f}" if value < 100 else f"{value:.0f}"
        return str(value).replace("|", "\\|")

    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(cell(value) for value in row) + " |" for row in rows] + [""]


def best(lines: list[dict[str, Any]], **wanted: Any) -> float | None:
    times = [line["p50_us"] for line in lines if all(line.get(k) == v for k, v in wanted.items()) and not line.get("wrong")]
    return min(times) if times else None


def times_tables(steps: dict[str, Any]) -> list[str]:
    ours = steps.get("bell", {}).get("results", []) + steps.get("latency", {}).get("results", [])
    others = steps.get("peers", {}).get("results", [])
    out = []
    groups = sorted(
        {(line["op"], line["mode"], line["ranks"]) for line in ours + others}, key=lambda g: (g[0] != "all_reduce", g)
    )
    for op, mode, ranks in groups:
        mine = [line for line in ours if (line["op"], line["mode"], line["ranks"]) == (op, mode, ranks)]
        theirs = [line for line in others if (line["op"], line["mode"], line["ranks"]) == (op, mode, ranks)]
        policies = sorted({line["policy"] for line in mine})
        libraries = sorted({line["library"] for line in theirs})
        head = ["bytes", *(f"railmux {p}".strip() for p in policies), *libraries]
        head += ["ratio"] if policies and libraries else []
        rows = []
        for size in sorted({line["bytes"] for line in mine + theirs}):
            here = [best(mine, bytes=size, policy=p) for p in policies]
            there = [best(theirs, bytes=size, library=name) for name in libraries]
            row: list[Any] = [format_size(size), *here, *there]
            if policies and libraries:
                a, b = [t for t in here if t is not None], [t for t in there if t is not None]
                row.append(min(a) / min(b) if a and b else None)
            rows.append(row)
        how = "CUDA graph of 20 calls" if mode == "graph" else "launched one by one"
        out += [f"### {op}, {ranks} ranks, {how}", "", "us per call, median of the slowest rank.", "", *table(head, rows)]
    return out


def blocks_table(found: dict[str, Any]) -> list[str]:
    lines = found.get("results", [])
    counts = sorted({line["blocks"] for line in lines})
    if not counts:
        return []
    sizes = sorted({line["bytes"] for line in lines})
    rows = [[format_size(size), *(best(lines, bytes=size, blocks=n) for n in counts)] for size in sizes]
    title = f"### all_reduce, {lines[0]['ranks']} ranks, by resident blocks"
    text = "us per call in a graph, median of the slowest rank; nothing is exchanged."
    return [title, "", text, "", *table(["bytes", *map(str, counts)], rows)]


def layer_table(found: dict[str, Any]) -> list[str]:
    lines = found.get("results", [])
    if not lines:
        return []
    columns = [("none", False), ("nccl", False), ("symm", False), ("none", True), ("railmux", True)]
    head = ["model, rows", "bytes", "no communication", "NCCL", "torch symm_mem", "no communication, daemon up", "railmux"]
    rows = []
    for model, n_rows in sorted({(line["model"], line["rows"]) for line in lines}, key=lambda k: (k[0] != "70B", k[1])):
        here = [line for line in lines if (line["model"], line["rows"]) == (model, n_rows)]
        row: list[Any] = [f"{model}, {n_rows}", format_size(here[0]["bytes"])]
        rows.append(row + [best(here, mode=mode, daemon=daemon) for mode, daemon in columns])
    return ["### A layer of Llama 3.1 in a graph", "", "us per layer.", "", *table(head, rows)]


def overlap_table(found: dict[str, Any]) -> list[str]:
    lines = found.get("results", [])
    if not lines:
        return []
    head = ["model, rows of a half", "bytes", "max_blocks", "no communication", "in line", "beside", "hidden", "NCCL", "NCCL beside", "hidden"]
    rows = []
    for model, n_rows in sorted({(line["model"], line["rows"]) for line in lines}, key=lambda k: (k[0] != "70B", k[1])):
        here = [line for line in lines if (line["model"], line["rows"]) == (model, n_rows)]
        theirs = [best(here, mode="nccl", way=way) for way in ("serial", "overlap")]
        theirs.append(hidden(best(here, mode="none", daemon=False), *theirs))
        none, serial = best(here, mode="none", daemon=True), best(here, mode="railmux", way="serial", max_blocks=0)
        for blocks in sorted({line["max_blocks"] for line in here if line["mode"] == "railmux"}):
            beside = best(here, mode="railmux", way="overlap", max_blocks=blocks)
            row = [f"{model}, {n_rows}", format_size(here[0]["bytes"]), blocks or "-", none]
            row += [best(here, mode="railmux", way="serial", max_blocks=blocks), beside, hidden(none, serial, beside)]
            rows.append(row + theirs)
    text = "us per layer of two halves. Hidden: of what the sums add in line, with all the blocks they want."
    return ["### Sums beside the GEMMs of the other half-batch", "", text, "", *table(head, rows)]


def hidden(none: float | None, serial: float | None, beside: float | None) -> str | None:
    if none is None or serial is None or beside is None or serial <= none:
        return None
    return f"{100 * (serial - beside) / (serial - none):.0f} %"


def interference_table(found: dict[str, Any]) -> list[str]:
    lines = found.get("results", [])
    if not lines:
        return []
    states = list(dict.fromkeys(line["state"] for line in lines))
    rows = []
    for shape in dict.fromkeys(line["shape"] for line in lines):
        times = [best(lines, shape=shape, state=state) for state in states]
        base = times[0]
        rows.append([shape, base, *(f"{t:.2f} ({t / base:.2f})" if t and base else t for t in times[1:])])
    return ["### GEMMs beside the daemon", "", "us (in relation to the first column).", "", *table(["shape", *states], rows)]


def comms_table(found: dict[str, Any]) -> list[str]:
    if not found.get("libraries"):
        return []
    head = [
        "library",
        "first (ms)",
        "further ones",
        "p50 (ms)",
        "p99 (ms)",
        "GPU memory of the first (MiB)",
        "of a further one (MiB)",
    ]
    keys = ("library", "first_ms", "further", "p50_ms", "p99_ms", "first_mib", "further_mib")
    rows = [[entry[key] for key in keys] for entry in found["libraries"]]
    return ["### Communicators", "", "Until a first all_reduce on it has ended.", "", *table(head, rows)]


def events_table(title: str, found: dict[str, Any]) -> list[str]:
    if not found.get("events"):
        return []
    rows = [[e["name"], e["outcome"], e.get("detail", "")] for e in found["events"]]
    return [f"### {title}", "", *table(["what", "outcome", "detail"], rows)]


def torch_tables(found: dict[str, Any]) -> list[str]:
    stock, ours, compared = (found.get(name) or {} for name in ("stock", "railmux", "comparison"))
    if not stock and not ours:
        return []

    def of(document: Any, *keys: str) -> Any:
        for key in keys:
            document = (document or {}).get(key)
        return document

    def told(part: dict[str, Any]) -> str:
        counts = [f"{part[key]} {key}" for key in ("checks", "replays", "wrong") if key in part]
        more = [part["error"].strip().splitlines()[-1][:200]] if part.get("error") else part.get("failed", [])[:1]
        return ", ".join([part.get("outcome", "-"), *counts, *more, *(place for place in part.get("places", [])[:1] if place)])

    parts = dict.fromkeys([*stock.get("parts", {}), *ours.get("parts", {})])
    rows = [[part, *(told(document.get("parts", {}).get(part) or {}) for document in (stock, ours))] for part in parts]
    tensors = compared.get("tensors", [])
    for part in dict.fromkeys(tensor["part"] for tensor in tensors):
        here = [tensor for tensor in tensors if tensor["part"] == part]
        share, same = max(tensor.get("share", 1.0) for tensor in here), sum(tensor.get("identical", False) for tensor in here)
        rows.append(
            [f"{part}: results", f"{len(here)} tensors", f"{same} the same, others at most {share:.1e} of the largest off"]
        )
    for bad in compared.get("bad", [])[:10]:
        rows.append(["differs", "", bad])
    if "left" in found:
        rows.append(["left in the daemon", "-", len(found["left"])])
    out = ["### torch.distributed with railmux in NCCL's place", "", *table(["part", "NCCL", "railmux"], rows)]

    wanted = [
        ("first init_process_group (ms)", "init_ms"),
        ("init_process_group and a first all_reduce (ms)", "first_all_reduce_ms"),
    ]
    figures = [[name, of(stock, key), of(ours, key)] for name, key in wanted]
    times = [("group_made_ms", "new_group (ms)"), ("group_ready_ms", "new_group and its first all_reduce (ms)")]
    times += [("group_mib", "GPU memory of a group (MiB)")]
    figures += [[name, of(stock, "parts", "times", key), of(ours, "parts", "times", key)] for key, name in times]
    figures.append(["destroy_process_group (ms)", of(stock, "destroy_ms"), of(ours, "destroy_ms")])
    calls = dict.fromkeys([*(of(stock, "parts", "times", "us") or {}), *(of(ours, "parts", "times", "us") or {})])
    figures += [[f"all_reduce, {call} (us)", *(of(d, "parts", "times", "us", call) for d in (stock, ours))] for call in calls]
    for batch in ("4", "1"):
        for key, name in (("p50_us", "median"), ("p99_us", "p99")):
            row = [of(document, "parts", "tp", "batches", batch, key) for document in (stock, ours)]
            figures.append([f"a token of the decoder, batch {batch}, {name} (us)", *row])
    ways = dict.fromkeys([*(of(stock, "parts", "token", "us") or {}), *(of(ours, "parts", "token", "us") or {})])
    for way in ways:
        if ": " not in way:  # the others are kernels
            row = [of(document, "parts", "token", "us", way) for document in (stock, ours)]
            figures.append([f"a token of the decoder, {way} (us)", *row])
    ratios = [[*row, row[2] / row[1] if row[1] and row[2] is not None else None] for row in figures if row[1:] != [None, None]]
    return [*out, *table(["what", "NCCL", "railmux", "ratio"], ratios)]


def versions(steps: dict[str, Any]) -> str:
    peers = steps.get("peers", {})
    ours = ((steps.get("start", {}).get("version") or {}).get("versions") or {}) if steps.get("start") else {}
    commit = steps.get("start", {}).get("commit") or ""
    found = [f"railmux {ours.get('railmuxd', '')} {commit[:12]}".strip()]
    for document in (peers.get("nccl") or {}, peers.get("symm") or {}):
        if document.get("torch"):
            return ", ".join([*found, f"torch {document['torch']}", f"NCCL {document['nccl']}"])
    return ", ".join(found)


def bell_table(found: dict[str, Any]) -> list[str]:
    lines = found.get("pauses", [])
    if not lines:
        return []
    rows = [[line["policy"] or "-", line["way"], line["pause_ms"], line["p50_us"], line["max_us"]] for line in lines]
    head = ["policy", "by", "silence (ms)", "p50 (us)", "longest (us)"]
    return ["### The first call after a silence", "", "From the call until the host knows the result.", "", *table(head, rows)]


def markdown(document: dict[str, Any]) -> str:
    steps, here = document["steps"], document["machine"]
    gpus = here["gpus"]
    kind = f"{len(gpus)} x {gpus[0]} (name, address of the first, memory, driver)" if gpus else "no GPU"
    out = [f"Measured {here['time']}: {kind}; {here['cpus']} CPUs ({here['cpu']}), Linux {here['kernel']}.", ""]
    out += [f"{versions(steps)}. NVLink multicast is off in all libraries.", "", f"    {document['command']}", ""]
    head = ["step", "outcome", "found"]
    out += table(head, [[name, found["outcome"], brief(found)] for name, found in steps.items()])
    out += times_tables(steps)
    out += bell_table(steps.get("bell", {}))
    out += comms_table(steps.get("comms", {}))
    out += torch_tables(steps.get("torch", {}))
    out += blocks_table(steps.get("blocks", {}))
    out += layer_table(steps.get("layer", {}))
    out += overlap_table(steps.get("overlap", {}))
    out += interference_table(steps.get("interference", {}))
    out += events_table("Soak", steps.get("soak", {}))
    out += events_table("Kills", steps.get("kills", {}))
    out += events_table("Garbage", steps.get("hostile", {}))
    return "\n".join(out).rstrip() + "\n"


def write(document: dict[str, Any], folder: pathlib.Path) -> None:
    def put(name: str, text: str) -> None:
        part = folder / (name + ".part")
        part.write_text(text)
        os.replace(part, folder / name)

    put("result.json", json.dumps(document, indent=1))
    put("result.md", markdown(document))


def pack(folder: pathlib.Path) -> None:
    with tarfile.open(folder / "logs.tar.gz", "w:gz") as archive:
        archive.add(folder / "logs", "logs", filter=lambda entry: entry if entry.isfile() or entry.isdir() else None)
    shutil.rmtree(folder / "logs")


def write_docs(document: dict[str, Any], path: pathlib.Path) -> None:
    """Replaces what stands between the marks; adds them at the end if there are none."""
    text = path.read_text()
    if BEGIN not in text:
        text += f"\n{BEGIN}\n{END}\n"
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    path.write_text(f"{before}{BEGIN}\n{markdown(document)}{END}{after}")
