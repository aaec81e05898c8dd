"""The named parts of an epoch, and how one is timed.

Always by a span. While PyTorch's profiler records, the same name stands in its trace as well; while the run is
profiled, the device has finished its work before a clock stops.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import torch

from velodrome.timing.spans import Span, current, span

ROLLOUT, UPDATE = "rollout", "update"
STUDENT, TEACHER, STORE, ENVIRONMENT = "student_forward", "teacher", "replay_store", "environment"
RESHAPE, FETCH, KERNELS, BACK = "reshape", "gpu_to_cpu", "nim_calls", "stack_back"
ADVANTAGES, GATHER, FORWARD, BACKWARD, OPTIMIZER = "advantages", "gather", "forward", "backward", "optimizer"

Part = Callable[[str], AbstractContextManager[Any]]


def stand_still(seconds: float) -> None:
    """Take so much off the open rollout or update: time that was spent on looking at it."""
    found = current()
    if found is not None:
        found.start += seconds


class Timer:
    """Opens parts. `settled` says whether the device is waited for; `traced` is set while a trace is being made."""

    def __init__(self, device: torch.device, *, profiled: bool) -> None:
        self.settled = profiled and device.type == "cuda"
        self.traced = False

    def __call__(self, name: str) -> AbstractContextManager[Any]:
        if self.settled or self.traced:
            return _Watched(name, self.settled, self.traced)
        return span(name)


class _Watched:
    """A span that is also a mark in PyTorch's trace, or that waits for the device."""

    __slots__ = ("_mark", "_settled", "_span")

    def __init__(self, name: str, settled: bool, traced: bool) -> None:
        self._settled = settled
        self._mark: Any = torch.profiler.record_function(name) if traced else None
        self._span: Span = span(name)

    def __enter__(self) -> Span:
        if self._mark is not None:
            self._mark.__enter__()
        return self._span.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._settled:
            torch.cuda.synchronize()
        self._span.__exit__(kind, error, trace)
        if self._mark is not None:
            self._mark.__exit__(kind, error, trace)
