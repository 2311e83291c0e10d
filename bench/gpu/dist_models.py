# SPDX-License-Identifier: MIT
"""Parts of dist.py: a decoder under tensor parallelism, DistributedDataParallel, and times."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional

import crew as crews
from dist_rank import Rank


# ---- tensor parallelism ------------------------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True)
class Shape:
    hidden: int = 4096
    heads: int = 32
    inner: int = 14336
    layers: int = 4
    prompt: int = 128
    tokens: int = 64


SMALL = Shape(256, 8, 512, 2, 16, 8)


class Decoder:
    """As in Llama, this rank's heads and share of the MLP. What goes in for a position stands in a table and not on what
    came out before: otherwise the last bits of two libraries' sums would lead to different texts."""

    def __init__(self, here: Rank, shape: Shape, batch: int) -> None:
        n, self.here, self.shape, self.batch = here.n, here, shape, batch
        self.reduce: Callable[[torch.Tensor], Any] = dist.all_reduce
        self.heads, self.size, self.length = shape.heads // n, shape.hidden // shape.heads, shape.prompt + shape.tokens
        own, inner = self.heads * self.size, shape.inner // n
        shapes = ((shape.hidden, 3 * own), (own, shape.hidden), (shape.hidden, 2 * inner), (inner, shape.hidden))
        fan = (shape.hidden, shape.hidden, shape.hidden, shape.inner)
        self.weights = [
            [
                here.random(10000 * here.rank + 10 * layer + i, *s, dtype=torch.bfloat16) * fan[i] ** -0.5
                for i, s in enumerate(shapes)
            ]
            for layer in range(shape.layers)
        ]
        self.table = here.random(1, batch, self.length, shape.hidden, dtype=torch.bfloat16)
        cache = (shape.layers, 2, batch, self.heads, self.length, self.size)
        self.cache = torch.zeros(cache, dtype=torch.bfloat16, device=here.device)
        turns = torch.arange(self.length, device=here.device)[:, None] * 10000.0 ** (
            -torch.arange(0, self.size, 2, device=here.device) / self.size
        )
        self.cos, self.sin = turns.cos(), turns.sin()
        self.places = torch.arange(self.length, device=here.device)
        self.place = torch.zeros(1, dtype=torch.int64, device=here.device)  # of the next token
        self.outputs = torch.zeros(batch, shape.tokens, shape.hidden, dtype=torch.bfloat16, device=here.device)

    def norm(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).bfloat16()

    def rotate(self, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        a, b = x.float().chunk(2, -1)
        cos, sin = self.cos.index_select(0, place), self.sin.index_select(0, place)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1).bfloat16()

    def forward(self, place: torch.Tensor) -> torch.Tensor:
        """The tokens at these places."""
        x, count = self.table.index_select(1, place), place.numel()
        hidden = self.places[None, :] > place[:, None]
        for (w_qkv, w_out, w_up, w_down), cache in zip(self.weights, self.cache, strict=True):
            qkv = (self.norm(x) @ w_qkv).view(self.batch, count, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
            cache[0].index_copy_(2, place, self.rotate(qkv[1], place))
            cache[1].index_copy_(2, place, qkv[2].contiguous())
            scores = (self.rotate(qkv[0], place) @ cache[0].transpose(-1, -2)).float() * self.size**-0.5
            heads = scores.masked_fill(hidden, float("-inf")).softmax(-1).bfloat16() @ cache[1]
            out = heads.transpose(1, 2).reshape(self.batch, count, -1) @ w_out
            self.reduce(out)
            x = x + out
            gate, up = (self.norm(x) @ w_up).chunk(2, -1)
            down = (functional.silu(gate) * up) @ w_down
            self.reduce(down)
            x = x + down
        return self.norm(x)

    def step(self) -> None:
        """One token; all that changes from one to the next is in GPU memory."""
        self.outputs.index_copy_(1, self.place - self.shape.prompt, self.forward(self.place))
        self.place.add_(1)

    def restart(self) -> None:
        self.place.fill_(self.shape.prompt)
        self.outputs.fill_(-1)


@torch.no_grad()
def tp(here: Rank) -> dict[str, Any]:
    shape = SMALL if here.cpu else dataclasses.replace(Shape(), tokens=16) if here.quick else Shape()
    found: dict[str, Any] = {"wrong": 0, "failed": [], "batches": {}}
    saved: dict[str, torch.Tensor] = {}
    for batch in (4, 1):
        model = Decoder(here, shape, batch)
        here.at(f"tp: prompt, batch {batch}")
        here.synchronize()
        here.crew.barrier()
        prompt = model.forward(model.places[: shape.prompt])
        here.synchronize()
        here.at(f"tp: capture, batch {batch}")
        model.restart()
        with here.aside():
            model.step()
        play = here.capture(model.step)
        here.at(f"tp: tokens, batch {batch}")
        passes = []
        for _ in range(2):  # the first one warms up
            model.restart()
            times = here.samples(play, 0, shape.tokens)
            passes.append(model.outputs.clone())
        saved |= {f"prompt, batch {batch}": prompt, f"tokens, batch {batch}": passes[1]}
        for name, tensor in (("prompt", prompt), ("tokens", passes[1])):
            if not here.same_bits(tensor) or not bool(torch.isfinite(tensor).all().item()):
                found["wrong"] += 1
                found["failed"].append(f"{name}, batch {batch}: ranks have other numbers, or some that are none")
        found["batches"][str(batch)] = {
            "p50_us": crews.percentile(times, 50),
            "p99_us": crews.percentile(times, 99),
            "min_us": min(times),
            "same_again": torch.equal(passes[0], passes[1]),
        }
        del model, play
        if not here.cpu:
            torch.cuda.empty_cache()
    if here.rank == 0:
        here.save("tp", saved)
    return found


@torch.no_grad()
def token(here: Rank) -> dict[str, Any]:
    """Where a token's time goes: the decoder's step without calls, with the least that a call can be, and with all."""
    shape = SMALL if here.cpu else dataclasses.replace(Shape(), tokens=16) if here.quick else Shape()
    us: dict[str, float] = {}
    for batch in (4, 1):
        model = Decoder(here, shape, batch)
        word = torch.zeros(4, dtype=torch.bfloat16, device=here.device)
        one = torch.zeros(batch, 1, shape.hidden, dtype=torch.bfloat16, device=here.device)

        def little(_: torch.Tensor, word: torch.Tensor = word) -> None:
            dist.all_reduce(word)

        def same_place(x: torch.Tensor, one: torch.Tensor = one) -> None:
            one.copy_(x)
            dist.all_reduce(one)

        ways: tuple[tuple[str, Callable[[torch.Tensor], Any]], ...] = (
            ("no calls", lambda _: None),
            ("a copy in place of a call", lambda x, one=one: one.copy_(x)),
            ("calls of 8 bytes", little),
            ("calls in one place, with a copy", same_place),
            ("all", dist.all_reduce),
        )
        for name, reduce in ways:
            here.at(f"token: {name}, batch {batch}")
            model.reduce = reduce
            model.restart()
            with here.aside():
                model.step()
            play = here.capture(model.step)
            for _ in range(2):  # the first one warms up
                model.restart()
                times = here.samples(play, 0, shape.tokens)
            us[f"batch {batch}, {name}"] = crews.percentile(times, 50)
            if not here.cpu and not here.quick and name in ("no calls", "all"):
                us |= {f"batch {batch}, {name}: {kernel}": value for kernel, value in kernels(here, model, play).items()}
            del play
        del model
        if not here.cpu:
            torch.cuda.empty_cache()
    return {"wrong": 0, "us": us}


def kernels(here: Rank, model: Decoder, play: Callable[[], Any]) -> dict[str, float]:
    """us of a token in each kind of kernel, as CUPTI has it, on this rank."""
    tokens = 8
    model.restart()
    here.synchronize()
    here.crew.barrier()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(tokens):
            play()
        here.synchronize()
    events = [event for event in profile.key_averages() if event.self_device_time_total > 0]
    events.sort(key=lambda event: -event.self_device_time_total)
    return {f"{event.key[:90]} ({event.count // tokens} times)": event.self_device_time_total / tokens for event in events[:14]}


# ---- data parallelism --------------------------------------------------------------------------------------------------
def ddp(here: Rank) -> dict[str, Any]:
    width, rows, steps = 1024, 64, 5
    torch.manual_seed(7 + here.rank)  # rank 0's parameters are everybody's
    layers = [torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, width), torch.nn.ReLU()]
    net = torch.nn.Sequential(*layers, torch.nn.Linear(width, width)).to(here.device)
    model = torch.nn.parallel.DistributedDataParallel(net, device_ids=None if here.cpu else [here.device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005)
    losses = []
    x, target = (here.random(1000 * here.rank + i, rows, width) for i in range(2))
    for step in range(steps):
        here.at(f"ddp: step {step}")
        optimizer.zero_grad()
        loss = width * functional.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    parameters = {name: parameter.detach() for name, parameter in net.named_parameters()}
    different = [name for name, parameter in parameters.items() if not here.same_bits(parameter)]
    own = {f"losses of rank {here.rank}": torch.stack(losses)}
    here.save("ddp", own | (parameters if here.rank == 0 else {}))
    means = [sum(column) / here.n for column in zip(*here.crew.gather([float(v.item()) for v in losses]), strict=True)]
    failed = [f"{name}: other numbers on other ranks" for name in different]
    if not means[-1] < means[0]:
        failed.append(f"nothing is learnt: {means}")
    return {"wrong": len(failed), "failed": failed, "losses": means}


# ---- times -------------------------------------------------------------------------------------------------------------
def eager_times(here: Rank) -> dict[str, float]:
    x = torch.zeros(512, dtype=torch.bfloat16, device=here.device)
    calls = 50 if here.quick else 200
    times = here.samples(lambda: dist.all_reduce(x), 20, calls)
    here.crew.barrier()
    walls = []
    for _ in range(calls):
        start = time.monotonic()
        dist.all_reduce(x)
        here.synchronize()
        walls.append(1e6 * (time.monotonic() - start))
    walls = here.crew.slowest(walls)
    return {
        "eager 1 KB, in a row": crews.percentile(times, 50),
        "eager 1 KB, waited for": crews.percentile(walls, 50),
        "eager 1 KB, waited for, p99": crews.percentile(walls, 99),
    }


def graph_times(here: Rank) -> dict[str, float]:
    calls, found = 20, {}
    for size in (1 << 10, 16 << 10, 256 << 10, 4 << 20):
        x = torch.zeros(size // 2, dtype=torch.bfloat16, device=here.device)

        def many(x: torch.Tensor = x) -> None:
            for _ in range(calls):
                dist.all_reduce(x)

        many()
        times = here.samples(here.capture(many), 5, 10 if here.quick else 40, calls)
        found[f"graph of {calls}, {size >> 10} KB"] = crews.percentile(times, 50)
    return found


def work_times(here: Rank) -> dict[str, float]:
    """What other work takes beside the library, and what a call adds to it in a graph: as in a decoder, whose kernels leave
    nothing of anybody else's in the L2."""
    calls, found = 20, {}
    memory = torch.zeros(64 << 20, dtype=torch.float32, device=here.device)
    rows, weights = (torch.zeros(n, 4096, dtype=torch.bfloat16, device=here.device) for n in (4, 28672))
    total = torch.zeros((), dtype=torch.float32, device=here.device)
    product = torch.zeros(4, 28672, dtype=torch.bfloat16, device=here.device)

    def sweep() -> None:
        torch.sum(memory, dim=0, out=total)

    def multiply() -> None:
        torch.mm(rows, weights.t(), out=product)

    def little() -> None:
        total.add_(1)

    for name, work in (("a sweep of 256 MiB", sweep), ("a product of 4 rows", multiply), ("a small kernel", little)):
        alone = None
        for size, places in ((0, 1), (8 << 10, 1), (32 << 10, 1), (8 << 10, 8), (32 << 10, 8)):
            x = torch.zeros(places, size // 2, dtype=torch.bfloat16, device=here.device)

            def many(x: torch.Tensor = x, work: Any = work) -> None:
                for i in range(calls):
                    work()
                    if x.numel():
                        dist.all_reduce(x[i % len(x)])

            many()
            us = crews.percentile(here.samples(here.capture(many), 5, 10 if here.quick else 30, calls), 50)
            if alone is None:
                alone = found[f"graph, {name} alone"] = us
            else:
                turns = f", {places} places in turn" if places > 1 else ""
                found[f"graph, {size >> 10} KB behind {name}{turns}, beyond that"] = us - alone
    return found


def times(here: Rank) -> dict[str, Any]:
    here.at("times: eager")
    us = eager_times(here)
    here.at("times: graphs")
    us |= graph_times(here)
    here.at("times: behind work")
    us |= work_times(here)
    x = torch.ones(512, dtype=torch.bfloat16, device=here.device)
    groups, made, ready, wrong = [], [], [], 0
    memory = [here.used_mib()]
    for i in range(3 if here.quick else 10):
        here.at(f"times: group {i}")
        x.fill_(1 + here.rank)
        here.synchronize()
        here.crew.barrier()
        start = time.monotonic()
        groups.append(dist.new_group(list(range(here.n))))
        made.append(1e3 * (time.monotonic() - start))
        dist.all_reduce(x, group=groups[-1])
        here.synchronize()
        ready.append(1e3 * (time.monotonic() - start))
        wrong += int((x != here.n * (here.n + 1) // 2).sum().item())
        memory.append(here.used_mib())
    here.at("times: ends of groups")
    for group in groups:
        dist.destroy_process_group(group)
    memory.append(here.used_mib())
    ready, made = here.crew.slowest(ready), here.crew.slowest(made)
    return {
        "wrong": here.crew.total(wrong),
        "us": us,
        "group_made_ms": crews.percentile(made, 50),
        "group_ready_ms": crews.percentile(ready, 50),
        "group_ready_max_ms": max(ready),
        "memory_mib": memory,  # before, after each group, after the end of all
        "group_mib": (memory[-2] - memory[0]) / len(groups),
    }
