"""A limit of CPU time for foreign code in this process.

The exception can be raised at any point and be lost: in a destructor, in a callback of the garbage collector, in a bare
`except` of the code. It is raised again until the code has ended. In a worker process, the kernel finally ends the
process.
"""

from __future__ import annotations

import resource
import signal
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from velodrome.resources_servers import code_worker

T = TypeVar("T")

KILLED = "signal SIGXCPU"  # how the kernel ends a worker
_AGAIN_S = 0.05  # of CPU time
_GRACE_S = 2  # of CPU time, until the kernel ends a worker


class CpuSpent(BaseException):
    """The code has used up its time. `except Exception` does not catch this."""


def within_cpu(cpu_s: float, call: Callable[[], T]) -> T:
    """The result of `call()`; raises `CpuSpent` at the limit. Only the main thread has a limit, as it has signals."""
    if threading.current_thread() is not threading.main_thread():
        return call()

    def end(*_: object) -> None:
        raise CpuSpent

    def stop() -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_CPU, limits)

    limits = resource.getrlimit(resource.RLIMIT_CPU)
    before = signal.signal(signal.SIGPROF, end)
    try:
        if code_worker.is_worker:
            limit_s = int(time.process_time() + cpu_s) + _GRACE_S
            limit_s = limit_s if limits[1] == resource.RLIM_INFINITY else min(limit_s, limits[1])
            resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limits[1]))
        signal.setitimer(signal.ITIMER_PROF, cpu_s, _AGAIN_S)
        return call()
    finally:
        try:
            stop()
        finally:
            stop()  # the last signal may have come in the first
