# SPDX-License-Identifier: MIT
"""What a run has on this machine: commands with a bound, MPS, the daemon. Everything started here is ended here."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
TAIL_CHARACTERS = 4000
TERM_S = 8.0  # between SIGTERM and SIGKILL
PR_SET_CHILD_SUBREAPER = 36
ENVIRONMENT = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
    "CUDA_MODULE_LOADING": "EAGER",
    "CUDA_DEVICE_MAX_CONNECTIONS": "32",  # streams that wait must not stand behind one another
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # the same numbers in all processes
    "NCCL_SOCKET_IFNAME": "lo",
    "GLOO_SOCKET_IFNAME": "lo",
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}


def tail(path: pathlib.Path, characters: int = TAIL_CHARACTERS) -> str:
    try:
        return path.read_bytes()[-characters:].decode(errors="replace")
    except OSError as error:
        return f"({error})"


def children_of(pid: int) -> list[int]:
    """Direct ones, of all its threads."""
    found = []
    for path in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(word) for word in path.read_text().split()]
        except OSError:
            pass
    return found


def kill_group(process: subprocess.Popen[bytes], patience_s: float = TERM_S) -> None:
    """process was started in a session of its own."""
    for number, wait_s in ((signal.SIGTERM, patience_s), (signal.SIGKILL, 5.0)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
        try:
            process.wait(wait_s)
        except subprocess.TimeoutExpired:
            continue
        if number == signal.SIGTERM:
            try:  # what is left of the group, after its leader
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return


@dataclasses.dataclass
class Finished:
    """A command's end."""

    name: str
    argv: list[str]
    status: int | None  # None: not started, or killed for its time
    seconds: float
    output: str  # its tail
    document: Any = None  # what it wrote as JSON

    @property
    def good(self) -> bool:
        return self.status == 0

    def record(self) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "name": self.name,
            "command": " ".join(self.argv),
            "status": self.status,
            "seconds": round(self.seconds, 2),
        }
        if not self.good:
            entry["output"] = self.output
        return entry


class Node:
    """Owner of all processes of a run."""

    def __init__(self, binaries: pathlib.Path, out: pathlib.Path, backend: str, gpus: int, deadline: float) -> None:
        self.bin = binaries / "bin"
        self.lib = binaries / "lib"
        self.sys = binaries / "sys"  # of a packed tree
        self.out = out
        self.logs = out / "logs"
        self.backend = backend
        self.gpus = gpus
        self.deadline = deadline
        self.run_folder = pathlib.Path(tempfile.mkdtemp(prefix="rmx-bench-"))  # short: socket paths are bounded
        self.socket = self.run_folder / "client.sock"
        self.control = self.run_folder / "control.sock"
        self.daemon: subprocess.Popen[bytes] | None = None
        self.daemon_key: tuple[Any, ...] = ()
        self.daemon_starts = 0
        self.mps_running = False
        self.commands = 0
        self.env = dict(os.environ, **ENVIRONMENT)
        self.env.update(
            RAILMUX_SOCKET=str(self.socket),
            RAILMUX_CONTROL=str(self.control),
            BENCH_LIB=str(self.lib),
            TMPDIR=str(self.run_folder),  # goes at the end
            BENCH_CHILD="1",  # whoever makes a node of its own in there uses the MPS that runs
            PYTHONPATH=os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]),
        )
        if backend == "hip" and "BENCH_CHILD" not in os.environ:
            self.env["CUDA_MPS_PIPE_DIRECTORY"] = str(self.run_folder / "mps")
            self.env["CUDA_MPS_LOG_DIRECTORY"] = str(self.logs / "mps")
        # Orphans become our children, so that the end can find them.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def our_env(self, extra: dict[str, str] | None = None) -> dict[str, str]:
        """For our own programs: they bring their libraries, which Python must not see."""
        folders = [str(self.lib), *([str(self.sys)] if self.sys.is_dir() else []), self.env.get("LD_LIBRARY_PATH")]
        path = os.pathsep.join(filter(None, folders))
        return dict(self.env, LD_LIBRARY_PATH=path, **(extra or {}))

    # ---- commands ------------------------------------------------------------------------------------------------
    def command(
        self,
        name: str,
        argv: list[str | pathlib.Path],
        timeout_s: float,
        *,
        env: dict[str, str] | None = None,
        daemonises: bool = False,
    ) -> Finished:
        """Runs to its end or to its time; the output goes into a file."""
        words = [str(word) for word in argv]
        timeout_s = min(timeout_s, self.deadline - time.monotonic())
        self.commands += 1
        log = self.logs / f"{self.commands:03d}-{name}.log"
        if timeout_s <= 1:
            return Finished(name, words, None, 0.0, "no time was left for it")
        start = time.monotonic()
        status: int | None = None
        with log.open("wb") as file:
            try:
                process = subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env=env or self.env,
                    start_new_session=True,
                )
            except OSError as error:
                return Finished(name, words, None, 0.0, f"cannot be started: {error}")
            try:
                status = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                file.write(f"\n(killed after {timeout_s:.0f} s; what the daemon says:)\n{self.diagnosis()}\n".encode())
            finally:
                if status is None or not daemonises:
                    kill_group(process, 3.0)
        return Finished(name, words, status, time.monotonic() - start, tail(log))

    def with_document(self, finished: Finished, document: pathlib.Path) -> Finished:
        """Adds the JSON that it wrote: what there is counts, even if a later part of it failed. A failure may have left
        the daemon's kernels in a state that would spoil the next measurement, so that begins with another daemon."""
        try:
            finished.document = json.loads(document.read_text())
        except (OSError, ValueError) as error:
            if finished.status == 0:
                finished.output += f"\n(no result: {error})"
                finished.status = 3
        if finished.status not in (0, 1):
            self.daemon_stop()
        return finished

    def perf(self, name: str, arguments: list[str], timeout_s: float) -> Finished:
        document = self.logs / f"{name}.json"
        document.unlink(missing_ok=True)
        argv = [self.bin / "railmux-perf", *arguments, "-J", document]
        return self.with_document(self.command(name, argv, timeout_s, env=self.our_env()), document)

    def script(self, name: str, script: str, arguments: list[str], timeout_s: float, **env: str) -> Finished:
        """One of the Python programs beside this one."""
        document = self.logs / f"{name}.json"
        document.unlink(missing_ok=True)
        argv = [sys.executable, HERE / script, *arguments, "--json", document]
        return self.with_document(self.command(name, argv, timeout_s, env=dict(self.env, **env)), document)

    def diagnosis(self) -> str:
        """What can be seen of the daemon from outside, for a command that did not end."""
        if not self.daemon:
            return "(no daemon)"
        answers = {command: self.ctl(command) for command in ("status", "gpus", "comms")}
        return json.dumps(answers, indent=1)[-TAIL_CHARACTERS // 2 :] + "\n" + tail(self.daemon_log(), TAIL_CHARACTERS // 2)

    def ctl(self, command: str) -> Any:
        """railmuxctl's answer, None without one."""
        argv = [str(self.bin / "railmuxctl"), "--control", str(self.control), "--json", command]
        try:
            answer = subprocess.run(argv, env=self.our_env(), capture_output=True, timeout=5, check=False)
            return json.loads(answer.stdout)
        except (OSError, ValueError, subprocess.TimeoutExpired):
            return None

    # ---- MPS -----------------------------------------------------------------------------------------------------
    def mps_program(self) -> str | None:
        path = os.pathsep.join([self.env.get("PATH", ""), "/usr/bin", "/usr/local/nvidia/bin", "/usr/local/cuda/bin"])
        return shutil.which("nvidia-cuda-mps-control", path=path)

    def mps_start(self, multiuser: bool) -> dict[str, Any]:
        program = self.mps_program()
        if not program:
            return {"error": "nvidia-cuda-mps-control is not installed"}
        for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"):
            pathlib.Path(self.env[name]).mkdir(parents=True, exist_ok=True)
        finished = self.command("mps", [program, "-d", *(["-multiuser-server"] if multiuser else [])], 20, daemonises=True)
        self.mps_running = True
        if multiuser and not finished.good:  # older ones take the option with start_server only
            finished = self.command("mps", [program, "-d"], 20, daemonises=True)
            self.mps_say(f"start_server -uid {os.getuid()} -multiuser-server")
        self.mps_running = finished.good
        return finished.record()

    def mps_stop(self) -> None:
        """Its clients must have ended, or it waits for them; what does not go in time is killed."""
        if not self.mps_running:
            return
        self.mps_say("quit", 15)
        self.mps_running = False
        for pid, _ in self.mps_processes():
            self._kill(pid)

    def mps_renew(self, multiuser: bool) -> None:
        """A client that died with a kernel running may have left it unusable. All of its clients must have ended."""
        self.mps_running = True  # perhaps another node's
        self.mps_stop()
        self.mps_start(multiuser)

    def mps_processes(self) -> list[tuple[int, str]]:
        return [(pid, line) for pid, line in self._lines(self._tree(os.getpid())) if "nvidia-cuda-mps" in line]

    def mps_say(self, line: str, timeout_s: float = 15) -> str:
        program = self.mps_program()
        if not program or not self.mps_running:
            return ""
        try:
            said = subprocess.run(
                [program], input=line + "\n", text=True, env=self.env, capture_output=True, timeout=timeout_s, check=False
            )
            return (said.stdout + said.stderr).strip()
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)

    # ---- the daemon ----------------------------------------------------------------------------------------------
    def daemon_argv(self, policy: str, blocks: int, keep: bool) -> list[str]:
        spec = f"{self.backend}:{self.gpus}"
        argv = [str(self.bin / "railmuxd"), "--gpu", spec, "--socket", str(self.socket), "--control", str(self.control)]
        if self.backend == "hip" and (policy or blocks):
            argv += ["--config", str(self.run_folder / "railmuxd.yaml")]
        return argv + (["--keep"] if keep else [])

    def daemon_status(self) -> tuple[bool, Any]:
        """Ready: running, with an executor for each GPU."""
        answer = self.ctl("status")
        status = (answer or {}).get("status")
        if not status:
            return False, answer
        ready = [e for e in status["executors"] if e["state"] == "ready" and (e["backend"] == "host") == (self.backend == "host")]
        served = sum(max(e["gpus"], 1) for e in ready)
        return status["state"] == "running" and served >= self.gpus, status

    def daemon_log(self) -> pathlib.Path:
        return self.logs / f"railmuxd-{self.daemon_starts}.log"

    def daemon_start(self, policy: str = "", blocks: int = 0, keep: bool = False, timeout_s: float = 60) -> dict[str, Any]:
        """Running and ready on return, with these options; the time from its start until it was ready. RuntimeError."""
        key = (policy, blocks, keep)
        if self.daemon and self.daemon.poll() is None and key == self.daemon_key and self.daemon_status()[0]:
            return {"already": True}
        self.daemon_stop()
        if policy or blocks:
            name, *keys = policy.split(":")
            lines = ["gpu:"] + ([f"  policy: {name}"] if name else []) + ([f"  blocks: {blocks}"] if blocks else [])
            lines += ["  {}: {}".format(*key.split("=", 1)) for key in keys]
            (self.run_folder / "railmuxd.yaml").write_text("\n".join(lines) + "\n")
        self.daemon_starts += 1
        self.daemon_key = key
        argv = self.daemon_argv(policy, blocks, keep)
        env = self.our_env({"RAILMUX_EXECUTOR": str(self.bin / "railmux-executor")})
        start = time.monotonic()
        with self.daemon_log().open("wb") as file:
            self.daemon = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=env, start_new_session=True
            )
        status: Any = None
        end = min(start + timeout_s, self.deadline)
        while time.monotonic() < end:
            ready, status = self.daemon_status()
            if ready:
                return {"command": " ".join(argv), "seconds": round(time.monotonic() - start, 3), "status": status}
            if self.daemon.poll() is not None:
                break
            time.sleep(0.05)
        ended = self.daemon.poll()
        what = f"ended with {ended}" if ended is not None else f"was not ready within {time.monotonic() - start:.0f} s: {status}"
        self.daemon_stop()
        raise RuntimeError(f"railmuxd {what}\n{tail(self.daemon_log())}")

    def daemon_stop(self) -> float:
        """Seconds that it took."""
        if not self.daemon:
            return 0.0
        start = time.monotonic()
        descendants = self._tree(self.daemon.pid)
        kill_group(self.daemon, 15.0)
        for pid in descendants:  # executors are in groups of their own under a keeper
            self._kill(pid)
        self.daemon = None
        return time.monotonic() - start

    # ---- the end -------------------------------------------------------------------------------------------------
    def _tree(self, pid: int) -> list[int]:
        found = []
        for child in children_of(pid):
            found += [child, *self._tree(child)]
        return found

    @staticmethod
    def _kill(pid: int) -> None:
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass

    def strays(self) -> list[tuple[int, str]]:
        """What was started here, apart from the daemon and MPS, and is still there: pid and command line."""
        known = {self.daemon.pid, *self._tree(self.daemon.pid)} if self.daemon else set()
        return [(pid, line) for pid, line in self._lines(set(self._tree(os.getpid())) - known) if "nvidia-cuda-mps" not in line]

    @staticmethod
    def _lines(pids: Iterable[int]) -> list[tuple[int, str]]:
        """With their command lines; those without one have ended and wait to be collected."""
        found = []
        for pid in pids:
            try:
                line = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
            except OSError:
                continue
            if line:
                found.append((pid, line))
        return found

    def end_strays(self) -> list[str]:
        left = self.strays()
        for pid, _ in left:
            self._kill(pid)
        return [line for _, line in left]

    def close(self) -> list[str]:
        """Ends all that is left; the command lines of what should not have been there any more."""
        self.daemon_stop()
        left = self.end_strays()
        self.mps_stop()
        for pid in self._tree(os.getpid()):
            self._kill(pid)
        shutil.rmtree(self.run_folder, ignore_errors=True)
        return left
