"""A limit of CPU time for code of others that runs in this process.

The exception is raised wherever the interpreter is, so it can vanish: in a destructor, in a callback of the garbage
collector, in a bare `except` of the code. It is raised again until the code has ended. In a worker process the kernel
ends the process if that does not help.
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

KILLED = "signal SIGXCPU"  # how a worker ends that the kernel has ended
_AGAIN_S = 0.05  # of CPU time
_GRACE_S = 2  # of CPU time, until the kernel ends a worker


class CpuSpent(BaseException):
    """The code used up its time; no `except Exception` of it keeps it going."""


def within_cpu(cpu_s: float, call: Callable[[], T]) -> T:
    """The result of `call()`, or `CpuSpent`. In the main thread only, where there are signals; elsewhere no limit."""
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
            most_s = int(time.process_time() + cpu_s) + _GRACE_S
            most_s = most_s if limits[1] == resource.RLIM_INFINITY else min(most_s, limits[1])
            resource.setrlimit(resource.RLIMIT_CPU, (most_s, limits[1]))
        signal.setitimer(signal.ITIMER_PROF, cpu_s, _AGAIN_S)
        return call()
    finally:
        try:
            stop()
        finally:
            stop()  # the last signal may have come in the first
