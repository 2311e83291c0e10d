#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""torch.distributed as it is, to see that it works with railmux in NCCL's place and gives the same.

    dist.py --ranks N --save FOLDER --json FILE [--parts a,b,c]     with whatever NCCL the process loads
    dist.py --compare FOLDER FOLDER --json FILE                     the stock library's folder, then the other's

Rank r is on GPU r. Which library it is, the environment says: LD_PRELOAD puts another one in NCCL's place. The parts:

    collectives  every operation, type and way of calling, exact
    graphs       collectives and GEMMs in CUDA graphs, replayed with other inputs, exact
    tp           a decoder under tensor parallelism: a prompt, then tokens from a graph
    ddp          a few steps of DistributedDataParallel
    times        of calls, graphs, further groups; the memory that these take
    token        the decoder's step without calls, with the least calls, with all; what its kernels take
    exit         processes that end without a word

A part that fails, hangs or dies ends the processes, and others do the parts that are left. Each part has a time limit,
after which the stacks of all threads are written. Exit status: 0 if all is well, 1 if something is wrong, 3 if a part
did not come to its end.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import tempfile
import time
import traceback
from typing import Any

import crew as crews

LIMITS_S = {"collectives": 45.0, "graphs": 30.0, "tp": 45.0, "ddp": 20.0, "times": 40.0, "token": 40.0, "exit": 15.0}
INIT_S = 60.0
END_S = 20.0
TRACE_CHARACTERS = 3000
COSINE = 0.999
SHARES = {"tp": 0.02, "ddp": 1e-5}  # of the largest number of a tensor, by which another one may be off


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--parts", default=",".join(LIMITS_S))
    parser.add_argument("--quick", action="store_true", help="a little of everything")
    parser.add_argument("--cpu", action="store_true", help="without GPUs, with gloo: to try this program")
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--save", type=pathlib.Path, help="folder for what is compared")
    parser.add_argument("--compare", type=pathlib.Path, nargs=2, metavar="FOLDER")
    parser.add_argument("--json", type=pathlib.Path, required=True)
    options = parser.parse_args()
    wrong = [part for part in options.parts.split(",") if part not in LIMITS_S]
    if wrong:
        parser.error(f"no such part: {', '.join(wrong)}")
    if not options.save and not options.compare:
        parser.error("--save or --compare is needed")
    return options


# ---- a rank -----------------------------------------------------------------------------------------------------------
def leave_silently(here: Any) -> dict[str, Any]:
    """After this part the process ends at once, with its communicators as they are."""
    import torch
    import torch.distributed as dist

    x = torch.ones(1000, device=here.device)
    dist.all_reduce(x)
    dist.all_reduce(x, group=dist.new_group(list(range(here.n))))
    return {"wrong": here.crew.total(int((x != here.n**2).sum().item()))}


def rank_main(crew: crews.Crew, options: argparse.Namespace) -> None:
    end = time.monotonic() + options.seconds
    import dist_collectives
    import dist_models
    from dist_rank import Rank

    functions: dict[str, Any] = {
        "collectives": dist_collectives.collectives,
        "graphs": dist_collectives.graphs,
        "tp": dist_models.tp,
        "ddp": dist_models.ddp,
        "times": dist_models.times,
        "token": dist_models.token,
        "exit": leave_silently,
    }
    here = Rank(crew, options, min(INIT_S, max(end - time.monotonic(), 1)))
    parts = here.document["parts"]
    names = options.parts.split(",")
    for name in names:
        here.write()
        left = crew.gather(end - time.monotonic())[0]
        if left < 2:
            parts[name] = {"outcome": "left out: no time"}
            continue
        here.arm(name, min(LIMITS_S[name], left))
        start = time.monotonic()
        error, found = "", {}
        try:
            found = functions[name](here)
        except crews.CrewError:
            raise
        except Exception:
            error = traceback.format_exc(limit=-6)
            here.failed(f"{name}: {error}")
        errors = [text for text in crew.gather(error) if text]
        bad = errors or found.get("wrong")
        parts[name] = {**found, "outcome": "failed" if bad else "done", "seconds": round(time.monotonic() - start, 2)}
        if errors:
            parts[name]["error"] = errors[0]
            here.write()
            raise RuntimeError(f"{name} failed")  # the process group may be of no use any more
    here.disarm()
    if "exit" not in names:
        import torch.distributed

        here.arm("end", END_S)
        start = time.monotonic()
        torch.distributed.destroy_process_group()
        here.document["destroy_ms"] = crew.slowest([1e3 * (time.monotonic() - start)])[0]
        here.disarm()
    here.at("")
    here.write()


# ---- all of them --------------------------------------------------------------------------------------------------------
def text_of(path: pathlib.Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def ended_early(options: argparse.Namespace, status: dict[int, int]) -> dict[str, Any]:
    """Where the ranks were, and what is known of why they are not there any more."""
    places = [text_of(options.save / f"place-{rank}") for rank in range(options.ranks)]
    traces = [text_of(options.save / f"trace-{rank}")[:TRACE_CHARACTERS] for rank in range(options.ranks)]
    what = "hung" if any(traces) else "died"
    return {"outcome": "failed", "error": what, "status": status, "places": places, "traces": traces}


def launch(options: argparse.Namespace, parts: list[str], seconds: float) -> tuple[dict[str, Any], bool]:
    """What the ranks found, and whether they came to their end."""
    for path in (*options.save.glob("place-*"), *options.save.glob("trace-*")):
        path.unlink()
    with tempfile.TemporaryDirectory(prefix="rmx-crew-") as folder:
        path = pathlib.Path(folder) / "found.json"
        flags = [flag for flag, wanted in (("--quick", options.quick), ("--cpu", options.cpu)) if wanted]
        arguments = ["--ranks", str(options.ranks), "--parts", ",".join(parts), "--seconds", f"{seconds:.1f}"]
        arguments += ["--save", str(options.save), "--json", str(path), *flags]
        status = crews.Team(options.ranks, os.path.abspath(__file__), arguments, folder).wait(seconds + 10)
        try:
            found = json.loads(path.read_text())
        except (OSError, ValueError):
            found = {"parts": {}}
    if not status:
        return found, True
    finished = [name for name in parts if "seconds" in found["parts"].get(name, {})]
    if not finished or "error" not in found["parts"][finished[-1]]:  # else it is told already
        broken = next((name for name in parts if name not in finished), "end")
        found["parts"][broken] = {**found["parts"].get(broken, {}), **ended_early(options, status)}
    return found, False


def conduct(options: argparse.Namespace) -> int:
    """The parent: ranks for all parts but the exit, again for what a failure left, and then for the exit."""
    options.save.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + options.seconds
    wanted = options.parts.split(",")
    document: dict[str, Any] = {"version": 1, "parts": {}}
    good, usable = True, True
    for parts in ([p for p in wanted if p != "exit"], [p for p in wanted if p == "exit"]):
        while parts and usable:
            left = end - time.monotonic()
            if left < 5:
                document["parts"] |= {part: {"outcome": "left out: no time"} for part in parts}
                break
            found, whole = launch(options, parts, left)
            document["parts"] |= found.pop("parts")
            document = {**found, **document}  # of several, the first one's times count
            good = good and whole
            parts = [part for part in parts if part not in document["parts"]]
            usable = all(place != "init" for part in document["parts"].values() for place in part.get("places", []))
            for path in (options.json, options.save / "document.json"):
                path.write_text(json.dumps(document, indent=1))
    wrong = document["wrong"] = sum(part.get("wrong", 0) for part in document["parts"].values())
    document["parts"] |= {part: {"outcome": "left out"} for part in wanted if part not in document["parts"]}
    for path in (options.json, options.save / "document.json"):
        path.write_text(json.dumps(document, indent=1))
    for name, part in document["parts"].items():
        print(name, part["outcome"], part.get("error", ""), *part.get("failed", []), sep="  ")
    return 3 if not good else 1 if wrong else 0


# ---- the comparison -------------------------------------------------------------------------------------------------------
def compare_tensors(part: str, name: str, a: Any, b: Any) -> dict[str, Any]:
    import torch

    if a is None or b is None or a.shape != b.shape or a.dtype != b.dtype:
        return {"part": part, "name": name, "good": False, "error": "is not in both, or of another shape"}
    wide_a, wide_b = a.double().flatten(), b.double().flatten()
    largest, off = wide_a.abs().max().item(), (wide_a - wide_b).abs().max().item()
    cosine = torch.nn.functional.cosine_similarity(wide_a, wide_b, dim=0).item()
    share = off / largest if largest else off
    limit = SHARES.get(part, 4 * torch.finfo(a.dtype).eps)
    return {
        "part": part,
        "name": name,
        "identical": torch.equal(a, b),
        "max_off": off,
        "share": share,
        "limit": limit,
        "cosine": cosine,
        "good": share <= limit and cosine > COSINE,  # not so if there is a NaN
    }


def compare(options: argparse.Namespace) -> int:
    import torch

    folders, tensors = options.compare, []
    names = sorted({path.name for folder in folders for path in folder.glob("*.pt")})
    for name in names:
        a, b = (torch.load(folder / name) if (folder / name).exists() else {} for folder in folders)
        part = name.rpartition("-")[0]
        tensors += [compare_tensors(part, f"{key} ({name[:-3]})", a.get(key), b.get(key)) for key in sorted({*a, *b})]
    documents = [json.loads(text_of(folder / "document.json") or '{"parts": {}}') for folder in folders]
    refused = [document["parts"].get("collectives", {}).get("refused", {}) for document in documents]
    refused_here = {name: text for name, text in refused[1].items() if name not in refused[0]}
    bad = [t["name"] for t in tensors if not t["good"]]
    bad += [f"refused: {name}" for name in refused_here]
    if not tensors:
        bad.append("there is nothing to compare")
    document = {
        "version": 1,
        "tensors": tensors,
        "identical": sum(t.get("identical", False) for t in tensors),
        "refused_by_both": sorted({*refused[0]} & {*refused[1]}),
        "refused_here_only": refused_here,
        "refused_there_only": {name: text for name, text in refused[0].items() if name not in refused[1]},
        "bad": bad,
    }
    options.json.write_text(json.dumps(document, indent=1))
    print(f"{len(tensors)} tensors, {document['identical']} identical, {len(bad)} bad", *bad, sep="\n")
    return 1 if bad else 0


if __name__ == "__main__":
    chosen = parse()
    if chosen.compare:
        sys.exit(compare(chosen))
    if "BENCH_RANK" not in os.environ:
        sys.exit(conduct(chosen))
    crews.main(rank_main, chosen)
