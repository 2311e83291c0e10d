# SPDX-License-Identifier: MIT
"""Parts of dist.py: every collective of torch.distributed, and graphs of them. All results are whole numbers, and exact."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from dist_rank import Rank

F8 = (torch.float8_e4m3fn, torch.float8_e5m2)
FLOATS = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
TYPES = (*FLOATS, torch.int32, torch.int64, torch.uint8, torch.bool)
SIZES = (1, 7, 1000, 65537)
LARGE = (4 << 20) + 3
HOWS = ("blocking", "async", "aside")
NAMES_KEPT = 40


@dataclasses.dataclass
class Group:
    """What this rank is in: a member of ranks."""

    name: str
    ranks: list[int]
    pg: Any
    index: int  # of this rank

    @property
    def size(self) -> int:
        return len(self.ranks)


@dataclasses.dataclass
class Redop:
    name: str
    op: Any
    combine: Callable[[torch.Tensor], torch.Tensor]  # of the ranks' rows
    only: tuple[torch.dtype, ...] = TYPES


@dataclasses.dataclass
class Case:
    issue: Callable[[bool], Any]  # with async_op; gives the work or nothing
    outputs: list[torch.Tensor]
    expected: list[torch.Tensor]
    in_place: bool = False


def redops() -> list[Redop]:
    op = dist.ReduceOp
    return [
        Redop("sum", op.SUM, lambda rows: rows.sum(0)),
        Redop("max", op.MAX, lambda rows: rows.amax(0)),
        Redop("min", op.MIN, lambda rows: rows.amin(0)),
        Redop("product", op.PRODUCT, lambda rows: rows.prod(0)),
        Redop("avg", op.AVG, lambda rows: rows.sum(0) // rows.shape[0], TYPES[:-1]),
    ]


def premul(factor: Any) -> Redop:
    """With a factor of the host, or a tensor with one of the GPU. Not for bf16: torch 2.11 hands over a factor of type
    float as if it were one, so it is 0 with any library, or refuses."""
    name = "premul" if isinstance(factor, float) else "premul of a tensor"
    return Redop(name, dist._make_nccl_premul_sum(factor), lambda rows: 2 * rows.sum(0), FLOATS[1:])


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


class Collectives:
    def __init__(self, here: Rank) -> None:
        self.here = here
        self.device = here.device
        self.found: dict[str, Any] = {"checks": 0, "wrong": 0, "failed": [], "refused": {}}
        here.document["parts"]["collectives"] = self.found
        self.sum = redops()[0]
        self.world = Group("world", list(range(here.n)), None, here.rank)
        self.parts = [
            self.subgroups("pairs", [list(range(r, min(r + 2, here.n))) for r in range(0, here.n, 2)]),
            self.subgroups("parity", [list(range(r, here.n, 2)) for r in range(min(here.n, 2))]),
        ]

    def subgroups(self, name: str, members: list[list[int]]) -> Group:
        """All ranks make all of them; this rank's own."""
        mine: list[Group] = []
        for ranks in members:
            pg = dist.new_group(ranks)
            if self.here.rank in ranks:
                mine.append(Group(name, ranks, pg, ranks.index(self.here.rank)))
        return mine[0]

    # ---- checking ----------------------------------------------------------------------------------------------------
    def check(self, name: str, make: Callable[[], Case]) -> None:
        """One after the other, in turn blocking, asynchronous and on a side stream. An exception that all ranks have had
        is a refusal, which the comparison of two runs judges."""
        how = HOWS[self.found["checks"] % len(HOWS)]
        name = f"{name} {how}"
        self.here.at(f"collectives: {name}")
        wrong, error = 0, ""
        try:
            wrong = self.wrong(make(), how)
        except (RuntimeError, ValueError, TypeError, AssertionError) as failure:
            error = f"{type(failure).__name__}: {str(failure).splitlines()[0] if str(failure) else ''}"[:200]
            self.here.failed(f"collectives: {name}: {error}")
        self.count(name.removesuffix(f" {how}"), how, wrong, error)

    def count(self, name: str, how: str, wrong: int, error: str = "") -> None:
        answers = self.here.crew.gather([wrong, error])
        if error:
            self.here.agreed()
        self.found["checks"] += 1
        errors = [text for _, text in answers if text]
        total = sum(number for number, _ in answers)
        if errors and len(errors) < len(answers):
            total = max(total, 1)
        self.found["wrong"] += total
        if total and len(self.found["failed"]) < NAMES_KEPT:
            self.found["failed"].append(" ".join(f"{name} {how}: {total} wrong {errors[0] if errors else ''}".split()))
        elif errors:
            self.found["refused"][name] = errors[0]
        self.here.write(force=total > 0)

    def wrong(self, case: Case, how: str) -> int:
        if not case.in_place:
            for out, expected in zip(case.outputs, case.expected, strict=True):
                raw = expected.contiguous().view(torch.uint8)
                out.view(torch.uint8).copy_(raw ^ 1 if expected.dtype == torch.bool else ~raw)
        if how == "aside":
            with self.here.aside():
                case.issue(False)
        else:
            work = case.issue(how == "async")
            for one in work if isinstance(work, list) else [work]:
                if one is not None:
                    one.wait()
        return self.differing(case)

    def differing(self, case: Case) -> int:
        number = 0
        for out, expected in zip(case.outputs, case.expected, strict=True):
            if out.dtype in F8 or out.dtype == torch.bool:
                out, expected = out.view(torch.uint8), expected.contiguous().view(torch.uint8)
            number += int((out != expected).sum().item())
        self.here.synchronize()
        return number

    # ---- data --------------------------------------------------------------------------------------------------------
    def whole(self, rank: int, count: int, dtype: torch.dtype, redop: str = "", ranks: int = 1) -> torch.Tensor:
        """So that results are exact in this type."""
        if redop == "product" and dtype != torch.bool:
            return 1 + self.here.numbers(rank, count, 2)
        if redop == "avg":
            return ranks * self.here.numbers(rank, count, 5)
        return self.here.numbers(rank, count, 2 if dtype == torch.bool else 8 if dtype in F8 else 13)

    def typed(self, numbers: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return numbers.float().to(dtype) if dtype in F8 else numbers.to(dtype)

    def input(self, rank: int, count: int, dtype: torch.dtype, redop: str = "", ranks: int = 1) -> torch.Tensor:
        return self.typed(self.whole(rank, count, dtype, redop, ranks), dtype)

    def reduced(self, group: Group, count: int, dtype: torch.dtype, redop: Redop) -> torch.Tensor:
        rows = [self.whole(rank, count, dtype, redop.name, group.size) for rank in group.ranks]
        return self.typed(redop.combine(torch.stack(rows)), dtype)

    def empty(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(count, device=self.device, dtype=dtype)

    # ---- reductions --------------------------------------------------------------------------------------------------
    def all_reduce(self, g: Group, count: int, dtype: torch.dtype, redop: Redop) -> Case:
        x = self.input(self.here.rank, count, dtype, redop.name, g.size)
        expected = self.reduced(g, count, dtype, redop)
        return Case(lambda later: dist.all_reduce(x, redop.op, g.pg, later), [x], [expected], in_place=True)

    def reduce(self, g: Group, count: int, dtype: torch.dtype, redop: Redop) -> Case:
        x, root = self.input(self.here.rank, count, dtype, redop.name, g.size), g.ranks[count % g.size]
        mine = self.here.rank == root
        expected = [self.reduced(g, count, dtype, redop)] if mine else []
        return Case(lambda later: dist.reduce(x, root, redop.op, g.pg, later), [x] if mine else [], expected, in_place=True)

    def reduce_scatter_tensor(self, g: Group, count: int, dtype: torch.dtype, redop: Redop) -> Case:
        x, out = self.input(self.here.rank, count * g.size, dtype, redop.name, g.size), self.empty(count, dtype)
        expected = self.reduced(g, count * g.size, dtype, redop).chunk(g.size)[g.index]
        return Case(lambda later: dist.reduce_scatter_tensor(out, x, redop.op, g.pg, later), [out], [expected])

    def reduce_scatter(self, g: Group, count: int, dtype: torch.dtype, redop: Redop) -> Case:
        case, out = self.reduce_scatter_tensor(g, count, dtype, redop), self.empty(count, dtype)
        parts = [x.clone() for x in self.input(self.here.rank, count * g.size, dtype, redop.name, g.size).chunk(g.size)]
        return Case(lambda later: dist.reduce_scatter(out, parts, redop.op, g.pg, later), [out], case.expected)

    # ---- moves -------------------------------------------------------------------------------------------------------
    def broadcast(self, g: Group, count: int, dtype: torch.dtype) -> Case:
        root = g.ranks[count % g.size]
        x = self.input(self.here.rank, count, dtype)
        return Case(lambda later: dist.broadcast(x, root, g.pg, later), [x], [self.input(root, count, dtype)], in_place=True)

    def all_gather(self, g: Group, count: int, dtype: torch.dtype) -> Case:
        x, outs = self.input(self.here.rank, count, dtype), [self.empty(count, dtype) for _ in g.ranks]
        expected = [self.input(rank, count, dtype) for rank in g.ranks]
        return Case(lambda later: dist.all_gather(outs, x, g.pg, later), outs, expected)

    def all_gather_into_tensor(self, g: Group, count: int, dtype: torch.dtype) -> Case:
        x, out = self.input(self.here.rank, count, dtype), self.empty(count * g.size, dtype)
        expected = torch.cat([self.input(rank, count, dtype) for rank in g.ranks])
        return Case(lambda later: dist.all_gather_into_tensor(out, x, g.pg, later), [out], [expected])

    def all_to_all(self, g: Group, count: int, dtype: torch.dtype) -> Case:
        parts = [x.clone() for x in self.input(self.here.rank, count * g.size, dtype).chunk(g.size)]
        outs = [self.empty(count, dtype) for _ in g.ranks]
        expected = [self.input(rank, count * g.size, dtype).chunk(g.size)[g.index] for rank in g.ranks]
        return Case(lambda later: dist.all_to_all(outs, parts, g.pg, later), outs, expected)

    def all_to_all_single(self, g: Group, count: int, dtype: torch.dtype) -> Case:
        x, out = self.input(self.here.rank, count * g.size, dtype), self.empty(count * g.size, dtype)
        expected = torch.cat([self.input(rank, count * g.size, dtype).chunk(g.size)[g.index] for rank in g.ranks])
        return Case(lambda later: dist.all_to_all_single(out, x, group=g.pg, async_op=later), [out], [expected])

    def all_to_all_uneven(self, g: Group, count: int, dtype: torch.dtype) -> Case:
        """Nothing, half of it or all of it to each."""
        splits = [[count * ((a + 2 * b) % 3) // 2 for b in range(g.size)] for a in range(g.size)]
        into = [splits[a][g.index] for a in range(g.size)]
        x = self.input(self.here.rank, sum(splits[g.index]), dtype)
        out = self.empty(sum(into), dtype)
        expected = torch.cat(
            [self.input(rank, sum(splits[a]), dtype).split(splits[a])[g.index] for a, rank in enumerate(g.ranks)]
        )
        return Case(lambda later: dist.all_to_all_single(out, x, into, splits[g.index], g.pg, later), [out], [expected])

    def gather(self, g: Group, count: int, dtype: torch.dtype) -> Case:
        root = g.ranks[count % g.size]
        mine = self.here.rank == root
        x, outs = self.input(self.here.rank, count, dtype), [self.empty(count, dtype) for _ in g.ranks] if mine else []
        expected = [self.input(rank, count, dtype) for rank in g.ranks] if mine else []
        return Case(lambda later: dist.gather(x, outs if mine else None, root, g.pg, later), outs, expected)

    def scatter(self, g: Group, count: int, dtype: torch.dtype) -> Case:
        root, out = g.ranks[count % g.size], self.empty(count, dtype)
        sent = [x.clone() for x in self.input(root, count * g.size, dtype).chunk(g.size)]
        parts = sent if self.here.rank == root else None
        return Case(lambda later: dist.scatter(out, parts, root, g.pg, later), [out], [sent[g.index]])

    # ---- point to point ----------------------------------------------------------------------------------------------
    def exchange(self, g: Group, count: int, dtype: torch.dtype, later: bool) -> Case:
        """Two and two; the even one sends first."""
        other = g.index ^ 1
        if other >= g.size:
            return Case(lambda _: None, [], [])
        peer, x, out = g.ranks[other], self.input(self.here.rank, count, dtype), self.empty(count, dtype)

        def issue(_: bool) -> None:
            send: Any = dist.isend if later else dist.send
            receive: Any = dist.irecv if later else dist.recv
            calls = [lambda: send(x, peer, g.pg), lambda: receive(out, peer, g.pg)]
            works = [call() for call in (calls if g.index % 2 == 0 else calls[::-1])]
            if later:
                waited(works)

        return Case(issue, [out], [self.input(peer, count, dtype)])

    def send_recv(self, g: Group, count: int, dtype: torch.dtype) -> Case:
        return self.exchange(g, count, dtype, False)

    def isend_irecv(self, g: Group, count: int, dtype: torch.dtype) -> Case:
        return self.exchange(g, count, dtype, True)

    def batch(self, g: Group, count: int, dtype: torch.dtype, steps: list[int]) -> Case:
        """To whoever comes that many ranks later, from whoever is that many before."""
        operations, outs, expected = [], [], []
        for step in steps:
            to, source = g.ranks[(g.index + step) % g.size], g.ranks[(g.index - step) % g.size]
            outs.append(self.empty(count + step, dtype))
            expected.append(self.input(source, count + step, dtype))
            operations.append(dist.P2POp(dist.isend, self.input(self.here.rank, count + step, dtype), to, g.pg))
            operations.append(dist.P2POp(dist.irecv, outs[-1], source, g.pg))
        return Case(lambda _: waited(dist.batch_isend_irecv(operations)) if operations else None, outs, expected)

    def batch_ring(self, g: Group, count: int, dtype: torch.dtype) -> Case:
        return self.batch(g, count, dtype, [1] if g.size > 1 else [])

    def batch_pairs(self, g: Group, count: int, dtype: torch.dtype) -> Case:
        return self.batch(g, count, dtype, list(range(1, g.size)))

    # ---- several at once ---------------------------------------------------------------------------------------------
    def coalesced(self, make: Callable[..., Case], *extra: Any) -> Case:
        """The broadcast in the way that is made for any operation, the others in their own."""
        cases = [make(self.world, count, torch.bfloat16, *extra) for count in (7, 1000, 65537)]
        device = self.device if make == self.broadcast and not self.here.cpu else None

        def issue(_: bool) -> None:
            with dist.distributed_c10d._coalescing_manager(dist.group.WORLD, device, async_ops=True) as manager:
                for case in cases:
                    case.issue(device is not None)
            manager.wait()

        outs, expected = [c.outputs[0] for c in cases], [c.expected[0] for c in cases]
        return Case(issue, outs, expected, cases[0].in_place)

    def concurrent(self, count: int) -> Case:
        """On all groups at once, waited for in the reverse order."""
        cases = [self.all_reduce(g, count, torch.bfloat16, self.sum) for g in (self.world, *self.parts)]
        issue = lambda _: waited([case.issue(True) for case in cases][::-1])
        return Case(issue, [c.outputs[0] for c in cases], [c.expected[0] for c in cases], in_place=True)

    def objects(self) -> None:
        here = self.here
        mine = {"rank": here.rank, "text": "x" * (100 * here.rank), "list": list(range(here.rank))}
        everybody: list[Any] = [None] * here.n
        dist.all_gather_object(everybody, mine)
        wrong = sum(e != {"rank": r, "text": "x" * (100 * r), "list": list(range(r))} for r, e in enumerate(everybody))
        self.count("all_gather_object", "", wrong)
        root = here.n - 1
        sent = [1, "two", {"three": [3.0] * 1000}]
        got: list[Any] = list(sent) if here.rank == root else [None] * 3
        dist.broadcast_object_list(got, root, device=self.device)
        self.count("broadcast_object_list", "", int(got != sent))

    def barriers(self) -> None:
        """Nobody leaves before the last has come; another one is late each time."""
        here = self.here
        for late in range(here.n):
            time.sleep(0.02 if here.rank == late else 0)
            came = time.monotonic()
            dist.barrier(device_ids=None if here.cpu else [self.device.index])
            here.synchronize()
            left = time.monotonic()
            self.count("barrier", "", int(left < max(here.crew.gather(came))))

    def ordinary(self) -> None:
        """Numbers as they come in life, for the comparison of two runs."""
        tensors = {}
        for dtype in FLOATS:
            for count in (1000, 65537):
                x = self.here.random(100 + self.here.rank, count, dtype=dtype)
                dist.all_reduce(x)
                tensors[f"all_reduce {short(dtype)} {count}"] = x
        self.here.save("collectives", tensors)

    # ---- all of it ---------------------------------------------------------------------------------------------------
    def run(self) -> dict[str, Any]:
        quick, world = self.here.quick, self.world
        types = (torch.bfloat16, torch.int64) if quick else TYPES
        sizes = (7, 65537) if quick else SIZES
        reduces = [self.all_reduce, self.reduce, self.reduce_scatter, self.reduce_scatter_tensor]
        moves = [self.broadcast, self.all_gather, self.all_gather_into_tensor, self.all_to_all, self.all_to_all_single]
        moves += [self.all_to_all_uneven, self.gather, self.scatter]
        moves += [self.send_recv, self.isend_irecv, self.batch_ring, self.batch_pairs]
        wanted: list[tuple[Any, Group, int, torch.dtype, tuple[Redop, ...]]] = []
        for dtype in types:
            for count in sizes:
                wanted += [(make, world, count, dtype, (self.sum,)) for make in reduces]
                wanted += [(make, world, count, dtype, ()) for make in moves]
        for redop in [*redops()[1:], *([] if self.here.cpu else [premul(2.0)])]:
            if redop.name == "avg" and (self.here.cpu or self.here.n & (self.here.n - 1)):
                continue  # a third is no number of any of these types
            for dtype in (t for t in redop.only if t in types):
                wanted += [(make, world, count, dtype, (redop,)) for make in reduces for count in sizes[:-1]]
        if not self.here.cpu:
            wanted += [
                (make, world, 1000, dtype, (premul(torch.full((1,), 2, dtype=dtype, device=self.device)),))
                for dtype in FLOATS[1:]
                for make in (self.all_reduce, self.reduce_scatter_tensor)
            ]
        for dtype in F8:
            wanted += [(make, world, count, dtype, ()) for make in moves for count in (7, 1000)]
            wanted += [(self.all_reduce, world, 1000, dtype, (redops()[1],))]  # a sum would not be exact
        for group in self.parts:
            for dtype in (torch.bfloat16, torch.int64):
                wanted += [(make, group, count, dtype, (self.sum,)) for make in reduces for count in (7, 65537)]
                wanted += [(make, group, count, dtype, ()) for make in moves for count in (7, 65537)]
        large = LARGE >> 4 if quick else LARGE
        wanted += [(make, world, large, torch.bfloat16, (self.sum,)) for make in reduces[::3]]
        wanted += [(make, world, large, torch.float32, ()) for make in (self.broadcast, self.all_gather_into_tensor)]
        wanted += [(make, world, large, torch.uint8, ()) for make in (self.all_to_all_single, self.batch_ring)]
        for make, group, count, dtype, extra in wanted:
            name = " ".join([make.__name__, group.name, short(dtype), str(count), *(redop.name for redop in extra)])
            self.check(name, functools.partial(make, group, count, dtype, *extra))
        for make in (self.all_reduce, self.reduce_scatter_tensor):
            self.check(f"coalesced {make.__name__}", functools.partial(self.coalesced, make, self.sum))
        for make in (self.all_gather_into_tensor, *([] if self.here.cpu else [self.broadcast])):
            self.check(f"coalesced {make.__name__}", functools.partial(self.coalesced, make))
        for count in (7, 65537, large):
            self.check(f"concurrent {count}", functools.partial(self.concurrent, count))
        self.here.at("collectives: objects")
        self.objects()
        self.here.at("collectives: barriers")
        self.barriers()
        self.here.at("collectives: ordinary numbers")
        self.ordinary()
        for group in self.parts:
            dist.destroy_process_group(group.pg)
        return self.found


def waited(works: list[Any]) -> None:
    for work in works:
        if work is not None:
            work.wait()


def collectives(here: Rank) -> dict[str, Any]:
    return Collectives(here).run()


# ---- graphs -----------------------------------------------------------------------------------------------------------
class Chain:
    """Collectives with GEMMs between them. The GEMMs turn the columns by one and multiply by the rank plus one, so that
    everything stays whole and small."""

    PERIOD = 5  # divides no row

    def __init__(self, here: Rank, rows: int, columns: int) -> None:
        n, self.here, self.rows, self.columns = here.n, here, rows, columns
        self.x, self.y, self.mine = (self.empty(rows) for _ in range(3))
        self.gathered, self.scaled, self.swapped = (self.empty(n * rows) for _ in range(3))
        self.part, self.received = self.empty(rows), self.empty(rows)
        turn = torch.eye(columns, device=here.device).roll(1, dims=1)
        self.turn, self.scale = turn.bfloat16(), ((here.rank + 1) * turn).bfloat16()
        self.outputs = [self.y, self.gathered, self.part, self.swapped, self.received]
        self.paired = here.rank ^ 1 < n
        self.wrong = torch.zeros(len(self.outputs), dtype=torch.int64, device=here.device)

    def empty(self, rows: int) -> torch.Tensor:
        return torch.zeros(rows, self.columns, dtype=torch.bfloat16, device=self.here.device)

    def call(self) -> None:
        torch.mm(self.x, self.turn, out=self.y)
        self.mine.copy_(self.y)
        dist.all_reduce(self.y)
        dist.all_gather_into_tensor(self.gathered, self.mine)
        torch.mm(self.gathered, self.scale, out=self.scaled)
        dist.reduce_scatter_tensor(self.part, self.scaled)
        dist.all_to_all_single(self.swapped, self.scaled)
        torch.mm(self.part, self.turn, out=self.mine)
        if self.paired:
            other = self.here.rank ^ 1
            calls = [lambda: dist.send(self.mine, other), lambda: dist.recv(self.received, other)]
            for call in calls if self.here.rank % 2 == 0 else reversed(calls):
                call()

    def prepare(self, offset: int) -> None:
        self.x.copy_(self.input(self.here.rank, offset))
        for out in self.outputs:
            out.fill_(-1)

    def input(self, rank: int, offset: int) -> torch.Tensor:
        return self.here.numbers(rank, self.rows * self.columns, self.PERIOD, offset).view(self.rows, self.columns)

    def compare(self, offset: int) -> None:
        """Counts on the GPU; the host need not wait."""
        n, rank = self.here.n, self.here.rank
        turned = [self.input(r, offset).roll(1, dims=1) for r in range(n)]
        again = torch.stack(turned).roll(1, dims=2)
        sums = n * (n + 1) // 2
        swapped = torch.cat([(r + 1) * again[rank] for r in range(n)])
        received = sums * again[rank ^ 1].roll(1, dims=1) if self.paired else torch.full_like(turned[0], -1)
        expected = [sum(turned), torch.cat(turned), sums * again[rank], swapped, received]
        self.wrong += torch.stack([(out != e).sum() for out, e in zip(self.outputs, expected, strict=True)])


def graphs(here: Rank) -> dict[str, Any]:
    replays = 20 if here.quick else 200
    chains = [Chain(here, 8, 64), Chain(here, 256, 1024)]
    found: dict[str, Any] = {"replays": replays, "eager": 0}
    wrong_eager = torch.zeros((), dtype=torch.int64, device=here.device)
    for chain in chains:  # eagerly first: what is made at the first use must not be made in a graph
        with here.aside():
            chain.prepare(0)
            chain.call()
            chain.compare(0)
    here.at("graphs: capture")
    play = [here.capture(chain.call) for chain in chains]
    here.at("graphs: replay")
    for i in range(replays):
        k = i % len(chains)
        chains[k].prepare(i)
        play[k]()
        chains[k].compare(i)
        if i % 10 == 9:
            x = here.numbers(here.rank, 5000 + i, offset=i).float()
            dist.all_reduce(x)
            wrong_eager += (x != sum(here.numbers(r, 5000 + i, offset=i) for r in range(here.n))).sum()
            found["eager"] += 1
    here.synchronize()
    counts = [int(c) for chain in chains for c in chain.wrong.tolist()] + [int(wrong_eager.item())]
    names = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send/recv")
    labels = [f"{name}, {chain.rows} rows" for chain in chains for name in names] + ["eager"]
    totals = [sum(column) for column in zip(*here.crew.gather(counts), strict=True)]
    found["wrong"] = sum(totals)
    found["failed"] = [f"{label}: {total} wrong" for label, total in zip(labels, totals, strict=True) if total]
    return found
