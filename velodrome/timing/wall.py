"""Which functions take time on the wall clock: those of one component, wrapped before the component is made.

yappi has one clock a process, and it counts CPU; a slow `await` shows here. A function's own time is what passes while
none of the wrapped functions it called, in whatever task or thread, is under way. The wrapped functions return, raise
and look as before.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from velodrome.timing.tables import Cost, Key, Row, Table, merged

_SPECIAL = ("__init__", "__call__")
_WRAPPERS = ("Wall._timed_plain.<locals>.call", "Wall._timed_async.<locals>.call")


class _WallCall:
    """One call that is under way. `since` is when the first of the calls now below it began."""

    __slots__ = ("below", "covered", "over", "parent", "recursive", "row", "since", "started")

    below: int
    covered: float
    over: bool
    parent: _WallCall | None
    recursive: bool
    row: Row
    since: float
    started: float


_current: ContextVar[_WallCall | None] = ContextVar("velodrome_wall", default=None)
# A profiler is told of calls of C functions, but not of those that a partial makes: each would cost it a microsecond.
_get = functools.partial(_current.get)
_set = functools.partial(_current.set)


class Wall:
    """The wall clock of the packages that were wrapped."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = functools.partial(clock)
        self._table = Table("wall")
        self._lock = threading.Lock()
        self._acquire = functools.partial(self._lock.acquire)
        self._release = functools.partial(self._lock.release)
        self._wrapped: dict[FunctionType, FunctionType] = {}
        self._wrappers: set[FunctionType] = set()
        self._classes: set[type] = set()

    def table(self) -> Table:
        """The calls that have ended so far."""
        with self._lock:
            table = merged("wall", [self._table])
        table.rows = {key: row for key, row in table.rows.items() if row.cost.ncall or row.children}
        return table

    def wrap_package(self, folder: Path) -> None:
        """Time every function and method that is defined in a file of this folder, wherever in it the name is used."""
        modules = [module for module in list(sys.modules.values()) if _stands_in(module, folder)]
        names = {module.__name__ for module in modules}
        for module in modules:
            for name, value in list(vars(module).items()):
                self._replace(module, name, value, folder, names)

    def timed(self, function: FunctionType) -> FunctionType:
        """The same function with its calls timed."""
        if function in self._wrappers:
            return function
        wrapper = self._wrapped.get(function)
        if wrapper is None:
            inner = inspect.unwrap(function)
            code = inner.__code__
            with self._lock:
                row = self._table.row(Key(code.co_filename, code.co_firstlineno, inner.__qualname__))
            make = self._timed_async if inspect.iscoroutinefunction(function) else self._timed_plain
            wrapper = self._wrapped[function] = make(function, row)
            wrapper.__code__ = wrapper.__code__.replace()  # its own, so that a profiler tells it from the others
            self._wrappers.add(wrapper)
        return wrapper

    def _timed_plain(self, function: Callable[..., Any], row: Row) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            here = self._enter(row)
            try:
                return function(*args, **kwargs)
            finally:
                self._leave(here)

        return call

    def _timed_async(self, function: Callable[..., Any], row: Row) -> Any:
        @functools.wraps(function)
        async def call(*args: Any, **kwargs: Any) -> Any:
            here = self._enter(row)
            try:
                return await function(*args, **kwargs)
            finally:
                self._leave(here)

        return call

    def _enter(self, row: Row) -> _WallCall:
        parent = _get()
        while parent is not None and parent.over:  # a task may outlive the call that started it
            parent = parent.parent
        here = _WallCall()
        here.row = row
        here.parent = above = parent
        here.over = False
        here.below = 0
        here.covered = 0.0
        while above is not None and above.row is not row:
            above = above.parent
        here.recursive = above is not None
        _set(here)
        now = here.started = self._clock()
        if parent is not None:
            self._acquire()
            try:
                if parent.below == 0:
                    parent.since = now
                parent.below += 1
            finally:
                self._release()
        return here

    def _leave(self, here: _WallCall) -> None:
        now = self._clock()
        row, parent = here.row, here.parent
        _set(parent)
        took = now - here.started
        total, actual = (0.0, 0) if here.recursive else (took, 1)
        self._acquire()
        try:
            here.over = True
            own = took - here.covered
            if here.below:
                own -= now - here.since
            costs: tuple[Cost, ...] = (row.cost,)
            if parent is not None:
                edges = parent.row.children
                if row.key not in edges:
                    edges[row.key] = Cost()
                costs = row.cost, edges[row.key]
                parent.below -= 1
                if parent.below == 0:
                    parent.covered += now - parent.since
            for cost in costs:  # not by a method, which a profiler would count
                cost.ncall += 1
                cost.nactual += actual
                cost.tsub += own
                cost.ttot += total
        finally:
            self._release()

    def _replace(self, owner: Any, name: str, value: Any, folder: Path, modules: set[str]) -> None:
        if name.startswith("__") and name.endswith("__") and name not in _SPECIAL:
            return
        if isinstance(value, type):
            if value.__module__ in modules and value not in self._classes:
                self._classes.add(value)
                for each, inside in list(vars(value).items()):
                    self._replace(value, each, inside, folder, modules)
            return
        function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        if not isinstance(function, FunctionType) or not _is_own(function, folder):
            return
        made = self.timed(function)
        if made is not function:
            with contextlib.suppress(AttributeError, TypeError):  # a class that cannot be changed stays as it is
                setattr(owner, name, made if value is function else type(value)(made))


def _stands_in(module: ModuleType, folder: Path) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and Path(file).is_relative_to(folder)


def _is_own(function: FunctionType, folder: Path) -> bool:
    """Whether a function is written in the folder. A generator's time is its consumer's, so it is left alone."""
    inner = inspect.unwrap(function)
    if not isinstance(inner, FunctionType) or inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        return False
    return Path(inner.__code__.co_filename).is_relative_to(folder)


def is_machinery(key: Key) -> bool:
    """Whether a function belongs to the clock itself."""
    return key.file == __file__


def is_wrapper(key: Key) -> bool:
    """Whether a function is what stands in a timed one's place."""
    return key.file == __file__ and key.name in _WRAPPERS


_active: Wall | None = None


def activate(wall: Wall | None) -> None:
    """Time the components that are made from here on; None: no more."""
    global _active
    _active = wall


def before_making(component: type[Any]) -> None:
    """To be called with a component's class before it is made: its package is wrapped, if time is being measured."""
    if _active is not None:
        _active.wrap_package(Path(inspect.getfile(component)).parent)
