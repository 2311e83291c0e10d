# SPDX-License-Identifier: MIT
"""A small all_reduce that is waited for at once, on GPUs or on the host."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import railmux

COUNT = 256  # fp32: 1 KiB


class Small:
    """One rank. Its elements all have the same value."""

    def __init__(self, comm: railmux.Comm, session: railmux.Session, backend: str) -> None:
        self.comm = comm
        self.torch: Any = None
        if backend == "hip":
            import torch

            self.torch = torch
            self.source = torch.zeros(COUNT, dtype=torch.float32, device="cuda")
            self.out = torch.zeros_like(self.source)
            self.stream = torch.cuda.Stream()
            torch.cuda.synchronize()
        else:
            size = 4 * COUNT
            self.source = (ctypes.c_float * COUNT).from_address(session.alloc(size))
            self.out = (ctypes.c_float * COUNT).from_address(session.alloc(size))

    def _put(self) -> None:
        a, b = self.source.data_ptr(), self.out.data_ptr()
        self.comm.all_reduce(a, b, COUNT, railmux.FLOAT32, stream=self.stream.cuda_stream)

    def capture(self) -> None:
        """On GPUs: what `replay` does from now on."""
        self.graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(self.graph, stream=self.stream, capture_error_mode="relaxed"):
            self._put()

    def replay(self) -> None:
        with self.torch.cuda.stream(self.stream):
            self.graph.replay()
        self.stream.synchronize()

    def call(self) -> None:
        if self.torch:
            self._put()
            self.stream.synchronize()
        else:
            self.comm.all_reduce(ctypes.addressof(self.source), ctypes.addressof(self.out), COUNT, railmux.FLOAT32)

    def bare(self) -> list[Callable[[], None]]:
        """On GPUs: a kernel that has nothing to do with the library, waited for at once; and a graph of it."""
        torch = self.torch
        cell = torch.zeros(1, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="relaxed"):
            cell.add_(1)

        def launch() -> None:
            with torch.cuda.stream(self.stream):
                cell.add_(1)
            self.stream.synchronize()

        def replay() -> None:
            with torch.cuda.stream(self.stream):
                graph.replay()
            self.stream.synchronize()

        return [launch, replay]

    def give(self, value: float) -> None:
        if self.torch:
            self.source.fill_(value)
            self.torch.cuda.synchronize()
        else:
            self.source[:] = [value] * COUNT

    def clear(self) -> None:
        """What a call that does not end, or ends too early, leaves there."""
        if self.torch:
            self.out.fill_(-1)
            self.torch.cuda.synchronize()
        else:
            self.out[:] = [-1] * COUNT

    def wrong(self, value: float) -> int:
        if self.torch:
            return int((self.out != value).sum().item())
        return sum(x != value for x in self.out)

    def first(self) -> float:
        return float(self.out[0].item() if self.torch else self.out[0])


def device_of(session: railmux.Session, gpu: int, backend: str) -> None:
    """Makes it torch's current one."""
    if backend == "hip":
        import torch

        torch.cuda.set_device(railmux.torch_device(session, gpu))
