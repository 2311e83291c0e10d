#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What goes on when something dies: SIGKILL of railmuxd, of an executor, of a client that is idle, busy or waiting; and
what should go unnoticed, the planned restart of an executor.

Each scenario has a daemon of its own (with its keeper), clients that check everything they compute, and afterwards new
clients that must work again. The clients are this program with --worker: they note every pause between two steps that is
longer than usual, and the first error that their communicator shows. Times are those of the clock that all processes of
a machine share.

Under MPS a process that is killed with a kernel of its own running takes the contexts on that GPU with it, so what is
expected of such a kill is only that the service comes back; what happened to the others is recorded.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import crew as crews
import railmux
import soak
from node import Node

PAUSE_S = 0.005  # shorter ones are not noted
AGREE_EVERY = 20
GOOD = ("as expected", "left out: no time")
BACK_S = 30.0  # until the service must be back


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--backend", choices=("hip", "host"), default="hip")
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--policy", default="")
    parser.add_argument("--json", type=pathlib.Path, required=True)
    parser.add_argument("--worker", choices=("busy", "idle", "waiting"), help="be a rank of the clients")
    parser.add_argument("--only", default="", help="scenarios, separated by commas")
    parser.add_argument("--settle", type=float, default=3.0, help="seconds that clients go on for after a kill")
    return parser.parse_args()


# ---- clients ------------------------------------------------------------------------------------------------------
class Worker:
    """One rank. Its report is a file in the crew's folder, written anew several times a second."""

    def __init__(self, crew: crews.Crew, options: argparse.Namespace) -> None:
        self.crew = crew
        self.hip = options.backend == "hip"
        self.path = pathlib.Path(crew.folder) / f"report-{crew.rank}"
        self.report: dict[str, Any] = {"steps": 0, "pauses": [], "error": "", "error_at": 0.0, "wrong": 0, "pid": os.getpid()}
        session = railmux.Session(name="bench-kills")
        gpu = crew.rank % session.gpus
        if self.hip:
            import torch

            torch.cuda.set_device(railmux.torch_device(session, gpu))
        made = crew.from_first(session.new_id() if crew.rank == 0 else None)
        self.comm = session.comm(made, crew.ranks, crew.rank, gpu)
        if self.hip:
            self.lane: Any = soak.GpuLane(self.comm, crew.rank, crew.ranks, 0)
        else:
            self.lane = soak.HostLane(session, self.comm, crew.rank, crew.ranks, 0)
        self.session = session
        self.written = 0.0

    def write(self, force: bool = False) -> None:
        now = time.monotonic()
        if force or now - self.written > 0.05:
            self.written = now
            part = self.path.with_suffix(".part")
            part.write_text(json.dumps(self.report))
            os.replace(part, self.path)

    def note(self, error: str) -> None:
        if error and not self.report["error"]:
            self.report.update(error=error, error_at=time.monotonic())
            self.write(force=True)

    def step(self) -> bool:
        try:
            if self.hip:
                self.lane.step(0, True)
                over = self.lane.wait(20)
                self.note(self.comm.error() if over else self.comm.error() or "hang")
            else:
                self.lane.step()
        except (railmux.RailmuxError, RuntimeError) as error:  # of us, of torch
            self.note(str(error).splitlines()[0])
        return not self.report["error"]

    def busy(self) -> None:
        last = time.monotonic()
        stop = pathlib.Path(self.crew.folder) / "stop"
        while self.step():
            now = time.monotonic()
            if now - last > PAUSE_S:
                self.report["pauses"].append([now, now - last])
            last = now
            self.report["steps"] += 1
            if self.report["steps"] % AGREE_EVERY == 0 and any(self.crew.gather(stop.exists(), "stop")):
                break
            self.write()
        else:
            return  # what it counted cannot be read from a lost context
        self.report["wrong"] = self.lane.wrong_elements()

    def idle(self) -> None:
        for _ in range(5):
            self.step()
        self.report["steps"] = 5
        self.write(force=True)
        stop = pathlib.Path(self.crew.folder) / "stop"
        while not stop.exists() and not self.report["error"]:
            self.note(self.comm.error())
            time.sleep(0.0005)

    def waiting(self) -> None:
        """All but rank 0 ask for something that rank 0 never does."""
        for _ in range(5):
            self.step()
        self.report["steps"] = 6
        self.write(force=True)
        try:
            if self.crew.rank and self.hip:
                self.lane.step(0, True)  # only launches
            elif self.crew.rank:
                threading.Thread(target=self.step, daemon=True).start()  # waits in the call
        except (railmux.RailmuxError, RuntimeError) as error:
            self.note(str(error).splitlines()[0])
        stop = pathlib.Path(self.crew.folder) / "stop"
        while not stop.exists() and not self.report["error"]:
            self.note(self.comm.error())
            time.sleep(0.0005)

    def run(self, mode: str) -> None:
        try:
            if mode == "busy":
                self.busy()
            elif mode == "waiting":
                self.waiting()
            else:
                self.idle()
        except crews.CrewError:  # another has died; does the library say so?
            end = time.monotonic() + 5
            while not self.report["error"] and time.monotonic() < end:
                self.note(self.comm.error())
                time.sleep(0.0005)
        self.report["over"] = True
        self.write(force=True)


class Clients:
    """The ranks of one communicator, as the scenarios see them."""

    def __init__(self, node: Node, options: argparse.Namespace, mode: str) -> None:
        self.folder = tempfile.mkdtemp(prefix="crew-", dir=node.run_folder)
        self.ranks = options.ranks
        arguments = [*sys.argv[1:], "--worker", mode]
        os.environ.update({name: node.env[name] for name in node.env if name not in ("BENCH_RANK", "BENCH_HUB")})
        self.team = crews.Team(options.ranks, os.path.abspath(__file__), arguments, self.folder)

    def reports(self) -> list[dict[str, Any]]:
        found = []
        for rank in range(self.ranks):
            try:
                found.append(json.loads((pathlib.Path(self.folder) / f"report-{rank}").read_text()))
            except (OSError, ValueError):
                found.append({"steps": 0, "pauses": [], "error": "", "error_at": 0.0, "wrong": 0})
        return found

    def wait_steps(self, steps: int, seconds: float) -> bool:
        """True when every rank has made so many, or is known to have failed."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if all(r["steps"] >= steps or r["error"] for r in self.reports()):
                return True
            if all(child.poll() is not None for child in self.team.children):
                return False
            time.sleep(0.05)
        return False

    def stop(self) -> list[dict[str, Any]]:
        """Their last words."""
        (pathlib.Path(self.folder) / "stop").touch()
        self.failed = self.team.wait(25)
        return self.reports()

    def kill(self, rank: int) -> float:
        now = time.monotonic()
        self.team.children[rank].send_signal(signal.SIGKILL)
        self.killed, self.ended_at = rank, 0.0
        return now

    def told(self, since: float, seconds: float) -> tuple[list[dict[str, Any]], str]:
        """The survivors' reports, once all know or the time is over, and when: a process that has used a GPU takes its
        time to end, and its connections end with it."""
        reports: list[dict[str, Any]] = []
        while time.monotonic() < since + seconds:
            if not self.ended_at and self.team.children[self.killed].poll() is not None:
                self.ended_at = time.monotonic()
            reports = [r for rank, r in enumerate(self.reports()) if rank != self.killed]
            if self.ended_at and all(r["error"] for r in reports):
                break
            time.sleep(0.002)
        knew = max((1e3 * (r["error_at"] - since) for r in reports if r["error"]), default=0)
        ended = f"{1e3 * (self.ended_at - since):.0f} ms" if self.ended_at else f"more than {seconds:.0f} s"
        return reports, f"survivors knew after {knew:.0f} ms, the process had ended after {ended}"


def longest_pause(reports: list[dict[str, Any]], since: float) -> float:
    """ms; of the steps that ended after `since`."""
    return 1e3 * max((gap for r in reports for at, gap in r["pauses"] if at >= since), default=PAUSE_S)


def bad_ends(reports: list[dict[str, Any]], failed: dict[int, int]) -> list[str]:
    """Of clients that nobody has killed: each goes on until it is told to stop, or until it hears of an error."""
    found = []
    for rank, report in enumerate(reports):
        if report["error"] == "hang":
            found.append(f"client {rank} hangs")
        elif not report.get("over"):
            found.append(f"client {rank} did not come to its end: status {failed.get(rank, 0)}")
        elif failed.get(rank):
            found.append(f"client {rank} ended with status {failed[rank]}")
    return found


# ---- scenarios ----------------------------------------------------------------------------------------------------
class Scenarios:
    """Each returns an outcome ("as expected" or what was not) and details."""

    def __init__(self, node: Node, options: argparse.Namespace) -> None:
        self.node = node
        self.options = options

    def busy(self) -> Clients:
        clients = Clients(self.node, self.options, "busy")
        if not clients.wait_steps(2 * AGREE_EVERY, 60):
            clients.team.kill()
            raise RuntimeError("the clients did not get going")
        return clients

    def goes_on(self, clients: Clients) -> bool:
        """Those that have not heard of an error make steps."""
        return clients.wait_steps(min(r["steps"] for r in clients.reports()) + AGREE_EVERY + 1, 25)

    def status(self) -> dict[str, Any]:
        return (self.node.ctl("status") or {}).get("status") or {}

    def back(self, since: float, changed: Callable[[dict[str, Any]], bool]) -> float | None:
        """Seconds until it is ready and `changed` says that it is what came after the kill."""
        end = time.monotonic() + BACK_S
        while time.monotonic() < end:
            ready, status = self.node.daemon_status()
            if ready and changed(status):
                return time.monotonic() - since
            time.sleep(0.02)
        return None

    def new_clients_work(self) -> str:
        arguments = ["all_reduce", "--ranks", str(self.options.ranks), "-b", "1K", "-e", "1M", "-f", "32", "-n", "5"]
        finished = self.node.perf("after-kill", arguments, 40)
        return "" if finished.good else f"new clients fail ({finished.status}): {finished.output.strip()[-300:]}"

    def daemon_under_load(self) -> tuple[list[str], str]:
        clients = self.busy()
        pid = self.status()["pid"]
        before = min(r["steps"] for r in clients.reports())
        killed = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        back = self.back(killed, lambda status: status["pid"] != pid)
        goes_on = clients.wait_steps(before + AGREE_EVERY + 1, 20)
        while time.monotonic() < killed + self.options.settle:
            time.sleep(0.05)
        reports = clients.stop()
        after = min(r["steps"] for r in reports)
        problems = ["railmuxd does not come back"] if back is None else []
        problems += bad_ends(reports, clients.failed)
        problems += [f"client: {r['error']}" for r in reports if r["error"]]
        problems += ["wrong elements"] if any(r["wrong"] for r in reports) else []
        problems += [] if goes_on else ["the clients stopped"]
        detail = f"longest pause of a client {longest_pause(reports, killed):.0f} ms, {after - before} steps after it, "
        detail += f"railmuxd back after {back:.2f} s" if back else "railmuxd not back"
        return problems, detail

    def daemon_thrice(self) -> tuple[list[str], str]:
        clients = self.busy()
        problems, times = [], []
        begin = time.monotonic()
        for _ in range(3):
            pid = self.status().get("pid", 0)
            killed = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            back = self.back(killed, lambda status, pid=pid: status["pid"] != pid)
            if back is None:
                problems.append("railmuxd does not come back")
                break
            times.append(f"{back:.2f} s")
        goes_on = self.goes_on(clients)
        reports = clients.stop()
        problems += bad_ends(reports, clients.failed)
        problems += [] if goes_on else ["the clients stopped"]
        problems += [f"client: {r['error']}" for r in reports if r["error"]]
        problems += ["wrong elements"] if any(r["wrong"] for r in reports) else []
        return problems, f"back after {', '.join(times)}; longest pause of a client {longest_pause(reports, begin):.0f} ms"

    def idle_client(self) -> tuple[list[str], str]:
        """One communicator idles and loses a rank, another one works."""
        others, clients = self.busy(), Clients(self.node, self.options, "idle")
        if not clients.wait_steps(5, 60):
            raise RuntimeError("the idle clients did not get going")
        before = min(r["steps"] for r in others.reports())
        killed = clients.kill(self.options.ranks - 1)
        survivors, when = clients.told(killed, 5)
        time.sleep(0.5)  # of the others' work after it
        clients.stop()
        reports = others.stop()
        problems = [f"a survivor sees '{r['error']}'" for r in survivors if "PEER_LOST" not in r["error"]]
        problems += bad_ends(reports, others.failed)
        problems += [f"the other communicator: {r['error']}" for r in reports if r["error"]]
        problems += ["wrong elements"] if any(r["wrong"] for r in reports) else []
        problems += ["the other communicator stopped"] if min(r["steps"] for r in reports) <= before else []
        return problems, f"{when}; longest pause of the others {longest_pause(reports, killed):.0f} ms"

    def busy_client(self) -> tuple[list[str], str]:
        return self.after_death(self.busy())

    def executor_pid(self) -> int:
        host = self.options.backend == "host"
        return next(e["pid"] for e in self.status()["executors"] if e["pid"] and (e["backend"] == "host") == host)

    def after_death(self, clients: Clients) -> tuple[list[str], str]:
        """The last rank's; all that is asked is that the others hear of it and the service comes back."""
        losses = sum(e["losses"] for e in self.status()["executors"])
        killed = clients.kill(self.options.ranks - 1)
        survivors, when = clients.told(killed, 15)
        clients.stop()
        back = self.back(killed, lambda status: True)
        lost = sum(e["losses"] for e in self.status().get("executors", [])) - losses
        problems = ["a survivor sees nothing"] if not all(r["error"] for r in survivors) else []
        problems += ["the service is not ready"] if back is None else []
        seen = sorted({r["error"].split(":")[0][:80] for r in survivors})
        return problems, f"{when}: {', '.join(seen)}; executors lost: {lost}"

    def executor(self) -> tuple[list[str], str]:
        clients = self.busy()
        pid = self.executor_pid()
        killed = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        back = self.back(killed, lambda status: all(e["pid"] != pid for e in status["executors"]))
        goes_on = self.goes_on(clients)
        reports = clients.stop()
        problems = ["no executor in its place"] if back is None else []
        problems += bad_ends(reports, clients.failed)
        problems += [] if goes_on else ["the clients neither go on nor hear of an error"]
        problems += ["wrong elements"] if any(r["wrong"] for r in reports) else []
        seen = sorted({r["error"].split(":")[0][:80] for r in reports if r["error"]})
        detail = f"ready after {back:.2f} s; " if back else ""
        return problems, f"{detail}clients saw: {', '.join(seen) or 'nothing'}"

    def waiting_client(self) -> tuple[list[str], str]:
        clients = Clients(self.node, self.options, "waiting")
        if not clients.wait_steps(6, 60):
            clients.team.kill()
            raise RuntimeError("the clients did not get going")
        time.sleep(0.3)  # kernels that wait are on the GPU by now
        return self.after_death(clients)

    def planned(self) -> tuple[list[str], str]:
        """SIGTERM to an executor, under its keeper: another takes its place, and the clients only wait."""
        clients = self.busy()
        pid = self.executor_pid()
        before = min(r["steps"] for r in clients.reports())
        told = time.monotonic()
        os.kill(pid, signal.SIGTERM)
        back = self.back(told, lambda status: all(e["pid"] != pid for e in status["executors"]))
        goes_on = clients.wait_steps(before + AGREE_EVERY + 1, 20)
        reports = clients.stop()
        problems = ["no executor in its place"] if back is None else []
        problems += bad_ends(reports, clients.failed)
        problems += [f"client: {r['error']}" for r in reports if r["error"]]
        problems += ["wrong elements"] if any(r["wrong"] for r in reports) else []
        problems += [] if goes_on else ["the clients stopped"]
        detail = f"ready after {back:.2f} s; " if back else ""
        return problems, f"{detail}longest pause of a client {longest_pause(reports, told):.0f} ms"

    def run(self, name: str) -> dict[str, str]:
        start = time.monotonic()
        try:
            try:
                self.node.daemon_start(self.options.policy, 0, keep=True)
            except RuntimeError:
                if self.options.backend != "hip":
                    raise
                self.node.mps_renew(False)
                self.node.daemon_start(self.options.policy, 0, keep=True)
            problems, detail = getattr(self, name)()
            broken = self.new_clients_work()
            problems += [broken] if broken else []
        except Exception as error:
            problems, detail = [f"{type(error).__name__}: {error}"], ""
        self.node.end_strays()
        self.node.daemon_stop()  # the next one begins afresh
        print(f"{name}: {problems or 'as expected'}; {detail}", flush=True)
        return {
            "outcome": "; ".join(problems)[:600] if problems else "as expected",
            "detail": detail,
            "seconds": f"{time.monotonic() - start:.1f}",
        }


SCENARIOS = (
    ("daemon_under_load", "railmuxd killed under load"),
    ("daemon_thrice", "railmuxd killed three times in a row"),
    ("idle_client", "idle client killed beside a busy communicator"),
    ("planned", "planned restart of an executor under load"),
    ("executor", "executor killed under load"),
    ("busy_client", "client killed with a request under way"),
    ("waiting_client", "client killed with a request that waits for another rank"),
)


def main(options: argparse.Namespace) -> int:
    end = time.monotonic() + options.seconds
    options.out.joinpath("logs", "kills").mkdir(parents=True, exist_ok=True)
    out = options.out / "logs" / "kills"
    (out / "logs").mkdir(exist_ok=True)
    node = Node(options.bin, out, options.backend, options.gpus or options.ranks, end)
    if node.gpus < options.ranks:  # MPS has no room for two crews and an executor on one GPU with 32 queues each
        node.env["CUDA_DEVICE_MAX_CONNECTIONS"] = "8"
    scenarios = Scenarios(node, options)
    wanted = [s for s in SCENARIOS if not options.only or s[0] in options.only.split(",")]
    events: list[dict[str, str]] = []
    failed = 0
    try:
        for name, title in wanted:
            if time.monotonic() > end - 15:
                events.append({"name": title, "outcome": "left out: no time", "detail": ""})
                continue
            events.append({"name": title, **scenarios.run(name)})
            failed = sum(e["outcome"] not in GOOD for e in events)
            options.json.write_text(json.dumps({"version": 1, "events": events, "failed": failed}, indent=1))
    finally:
        node.close()
    if failed:
        print("not as expected: " + ", ".join(e["name"] for e in events if e["outcome"] not in GOOD))
    return 1 if failed else 0


if __name__ == "__main__":
    given = parse()
    if given.worker:
        crews.main(lambda crew, o: Worker(crew, o).run(o.worker), given)
    sys.exit(main(given))
