"""CPU time of other processes that work for a call, so that a function profile shows the call's full time.

A component that uses another process (a worker, math-verify's process, a sandbox) reports its CPU with `charge`. It is
added to the function that `calling` names: `verify` or a tool. Without a profile this does nothing.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

from velodrome.timing.tables import BUILTIN, Key, Table, merged

ELSEWHERE = Key(BUILTIN, 0, "another process")
_calling: ContextVar[Key | None] = ContextVar("velodrome_calling", default=None)
_table: Table | None = None
_lock = threading.Lock()


def activate(clock: str | None) -> None:
    """Start to measure, on the `cpu` or the `wall` clock; with None, stop."""
    global _table
    _table = None if clock is None else Table(clock)


def measured() -> list[Table]:
    """The measurements so far, to be added to the table of this process."""
    with _lock:
        return [] if _table is None else [merged(_table.clock, [_table])]


def calling(function: Callable[..., Any], *, elsewhere: bool = False) -> AbstractContextManager[None]:
    """A context around a call of this function. `elsewhere`: it runs in another process, so count the call here."""
    return nullcontext() if _table is None else _call(function, elsewhere)


@contextmanager
def _call(function: Callable[..., Any], elsewhere: bool) -> Iterator[None]:
    code = inspect.unwrap(function).__code__
    key = Key(code.co_filename, code.co_firstlineno, code.co_qualname)
    token, started = _calling.set(key), time.perf_counter()
    try:
        yield
    finally:
        _calling.reset(token)
        if elsewhere:
            took = time.perf_counter() - started
            with _lock:
                if _table is not None:
                    _table.row(key).cost.add(1, 1, 0.0, took if _table.clock == "wall" else 0.0)


def charge(cpu_s: float) -> None:
    """Add the CPU time that another process used for the current call."""
    key = _calling.get()
    with _lock:
        if _table is None or _table.clock != "cpu":
            return
        _table.row(ELSEWHERE).cost.add(1, 1, cpu_s, cpu_s)
        if key is not None:
            row = _table.row(key)
            row.cost.ttot += cpu_s
            row.child(ELSEWHERE).add(1, 1, cpu_s, cpu_s)
