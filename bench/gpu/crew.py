# SPDX-License-Identifier: MIT
"""Rank processes of a measurement, and a hub through which they exchange small values.

A script that measures with n ranks runs itself n times:

    if __name__ == "__main__":
        crew.main(rank_main, arguments)     # arguments.ranks: how many

The parent serves the hub on a Unix socket. Every exchange is collective: each rank hands in a value and gets the list of
all. When a rank ends before its word of farewell, or says it while others wait for it, the hub closes all connections, so
nobody waits for the dead. All processes stay in the parent's process group: whoever ends that group ends everything.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

GRACE_S = 10.0  # for the others, after the first has failed
FAREWELL = "farewell"


class CrewError(RuntimeError):
    """Another rank has failed."""


class Crew:
    """One rank's end of the hub."""

    def __init__(self, rank: int, ranks: int, path: str) -> None:
        self.rank = rank
        self.ranks = ranks
        self.folder = os.path.dirname(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self._file = self._socket.makefile("rwb")
        self._send({"rank": rank})

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._file.write(json.dumps(message).encode() + b"\n")
            self._file.flush()
        except OSError as error:
            raise CrewError(f"the hub is gone: {error}") from error

    def gather(self, value: Any, key: str = "") -> list[Any]:
        """Everybody's values, by rank."""
        self._send({"key": key, "value": value})
        try:
            line = self._file.readline()
        except OSError as error:
            raise CrewError(f"the hub is gone: {error}") from error
        if not line:
            raise CrewError("another rank has failed")
        return json.loads(line)

    def barrier(self) -> None:
        self.gather(None, "barrier")

    def slowest(self, samples: list[float]) -> list[float]:
        """Element by element the largest of all ranks."""
        return [max(column) for column in zip(*self.gather(samples, "samples"))]

    def total(self, number: int) -> int:
        return sum(self.gather(number, "total"))

    def from_first(self, value: bytes | None) -> bytes:
        """Bytes that rank 0 has, for all."""
        text = base64.b64encode(value).decode() if value is not None else ""
        return base64.b64decode(self.gather(text, "bytes")[0])

    def leave(self) -> None:
        with contextlib.suppress(CrewError):  # it is gone when another has failed, which the parent tells
            self._send({"key": FAREWELL, "value": None})
        self._socket.close()


class _Hub:
    """The parent's end: one thread per rank reads, the last to come answers all."""

    def __init__(self, ranks: int, path: str) -> None:
        self.ranks = ranks
        self.lock = threading.Lock()
        self.waiting: dict[int, tuple[str, Any]] = {}
        self.files: dict[int, Any] = {}
        self.connections: dict[int, socket.socket] = {}
        self.broken = False
        self.left = False
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(path)
        self.listener.listen(ranks)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        file = connection.makefile("rwb")
        rank = -1
        try:
            rank = json.loads(file.readline())["rank"]
            with self.lock:
                self.files[rank] = file
                self.connections[rank] = connection
                if self.broken:
                    connection.shutdown(socket.SHUT_RDWR)
            for line in file:
                message = json.loads(line)
                if message["key"] == FAREWELL:
                    with self.lock:
                        self.left = True
                        if not self.waiting:
                            return
                    break  # those that wait would do so for ever
                self._hand_in(rank, message["key"], message["value"])
        except (OSError, ValueError, KeyError):
            pass
        self.close_all()

    def _hand_in(self, rank: int, key: str, value: Any) -> None:
        with self.lock:
            if self.left:
                raise ValueError("a rank has left, so the others cannot meet any more")
            self.waiting[rank] = (key, value)
            if len(self.waiting) < self.ranks:
                return
            keys = {entry[0] for entry in self.waiting.values()}
            if len(keys) > 1:
                raise ValueError(f"the ranks are at different places: {sorted(keys)}")
            answer = json.dumps([self.waiting[r][1] for r in range(self.ranks)]).encode() + b"\n"
            self.waiting.clear()
            for file in self.files.values():
                file.write(answer)
                file.flush()

    def close_all(self) -> None:
        with self.lock:
            self.broken = True
            for connection in self.connections.values():
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass


class Team:
    """The parent's rank processes."""

    def __init__(self, ranks: int, script: str, arguments: list[str], folder: str) -> None:
        path = os.path.join(folder, "hub")
        self._hub = _Hub(ranks, path)
        self.children = []
        for rank in range(ranks):
            env = dict(os.environ, BENCH_RANK=str(rank), BENCH_RANKS=str(ranks), BENCH_HUB=path)
            self.children.append(subprocess.Popen([sys.executable, script, *arguments], env=env))

    def wait(self, timeout_s: float = float("inf")) -> dict[int, int]:
        """Until all have ended, or long enough after the first that failed; the failed ranks' statuses."""
        deadline = time.monotonic() + timeout_s
        hurry = False
        while any(child.poll() is None for child in self.children):
            if not hurry and any(child.poll() not in (None, 0) for child in self.children):
                hurry = True
                deadline = min(deadline, time.monotonic() + GRACE_S)
                self._hub.close_all()
            if time.monotonic() > deadline:
                self.kill()
            time.sleep(0.02)
        self._hub.listener.close()
        return {rank: child.returncode for rank, child in enumerate(self.children) if child.returncode}

    def kill(self) -> None:
        for child in self.children:
            if child.poll() is None:
                child.kill()


def _launch(ranks: int, script: str, arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="rmx-crew-") as folder:
        failed = Team(ranks, script, arguments, folder).wait()
        if failed:
            print(f"ranks that failed, with their exit status: {failed}", file=sys.stderr)
        return 3 if failed else 0


def main(rank_main: Callable[[Crew, Any], None], arguments: Any) -> None:
    """Ends the process. arguments: of argparse, with a member `ranks`."""
    if "BENCH_RANK" not in os.environ:
        sys.exit(_launch(arguments.ranks, os.path.abspath(sys.argv[0]), sys.argv[1:]))
    rank = int(os.environ["BENCH_RANK"])
    try:
        crew = Crew(rank, int(os.environ["BENCH_RANKS"]), os.environ["BENCH_HUB"])
        rank_main(crew, arguments)
        crew.leave()
        status = 0
    except CrewError as error:
        print(f"rank {rank}: {error}", file=sys.stderr)
        status = 4
    except Exception:
        traceback.print_exc()
        status = 3
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # a GPU runtime may wait for ever in its own clean-up


def percentile(samples: list[float], percent: float) -> float:
    """Nearest rank, as railmux-perf has it."""
    ordered = sorted(samples)
    index = -(-len(ordered) * percent // 100) - 1
    return ordered[int(max(index, 0))]
