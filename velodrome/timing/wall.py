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

from velodrome.timing.tables import Cost, Key, Table

_SPECIAL = ("__init__", "__call__")
_WRAPPERS = ("Wall._timed_plain.<locals>.call", "Wall._timed_async.<locals>.call")


class _Figures:
    """The calls of one function that have ended, and by whom it was called."""

    __slots__ = ("callers", "key", "nactual", "ncall", "tsub", "ttot")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.ncall = self.nactual = 0
        self.tsub = self.ttot = 0.0
        self.callers: dict[_Figures, Cost] = {}


class _WallCall:
    """One call that is under way. `since` is when the first of the calls now below it began."""

    __slots__ = ("below", "covered", "of", "over", "parent", "recursive", "since", "started", "within")

    below: int
    covered: float
    of: _Figures
    over: bool
    parent: _WallCall | None
    recursive: bool
    since: float
    started: float
    within: frozenset[_Figures]


_NOBODY: frozenset[_Figures] = frozenset()
_current: ContextVar[_WallCall | None] = ContextVar("velodrome_wall", default=None)
# A profiler is told of calls of C functions, but not of those that a partial makes: each would cost it a microsecond.
_get = functools.partial(_current.get)
_set = functools.partial(_current.set)


class Wall:
    """The wall clock of the packages that were wrapped."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = functools.partial(clock)
        self._figures: list[_Figures] = []
        self._lock = threading.Lock()
        self._acquire = functools.partial(self._lock.acquire)
        self._release = functools.partial(self._lock.release)
        self._wrapped: dict[FunctionType, FunctionType] = {}
        self._wrappers: set[FunctionType] = set()
        self._classes: set[type] = set()
        self._replaced: list[tuple[Any, str, Any]] = []
        self._counting = True

    def table(self) -> Table:
        """The calls that have ended so far."""
        table = Table("wall")
        with self._lock:
            for each in self._figures:
                if each.ncall:
                    table.row(each.key).cost.add(each.ncall, each.nactual, each.tsub, each.ttot)
                for caller, cost in each.callers.items():
                    table.row(caller.key).child(each.key).add(*cost)
        return table

    def wrap_package(self, folder: Path) -> None:
        """Time every function and method that is defined in a file of this folder, wherever in it the name is used."""
        modules = [module for module in list(sys.modules.values()) if _stands_in(module, folder)]
        names = {module.__name__ for module in modules}
        for module in modules:
            for name, value in list(vars(module).items()):
                self._replace(module, name, value, folder, names)

    def unwrap(self) -> None:
        """Put everything back; a wrapper that somebody still holds counts no more."""
        self._counting = False
        for owner, name, value in reversed(self._replaced):
            setattr(owner, name, value)
        self._replaced.clear()

    def timed(self, function: FunctionType) -> FunctionType:
        """The same function with its calls timed."""
        if function in self._wrappers:
            return function
        found = self._wrapped.get(function)
        if found is None:
            inner = inspect.unwrap(function)
            code = inner.__code__
            figures = _Figures(Key(code.co_filename, code.co_firstlineno, inner.__qualname__))
            self._figures.append(figures)
            make = self._timed_async if inspect.iscoroutinefunction(function) else self._timed_plain
            found = self._wrapped[function] = make(function, figures)
            found.__code__ = found.__code__.replace()  # its own, so that a profiler tells it from the others
            self._wrappers.add(found)
        return found

    def _timed_plain(self, function: Callable[..., Any], figures: _Figures) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._counting:
                return function(*args, **kwargs)
            here = self._enter(figures)
            try:
                return function(*args, **kwargs)
            finally:
                self._leave(here)

        return call

    def _timed_async(self, function: Callable[..., Any], figures: _Figures) -> Any:
        @functools.wraps(function)
        async def call(*args: Any, **kwargs: Any) -> Any:
            if not self._counting:
                return await function(*args, **kwargs)
            here = self._enter(figures)
            try:
                return await function(*args, **kwargs)
            finally:
                self._leave(here)

        return call

    def _enter(self, figures: _Figures) -> _WallCall:
        parent = _get()
        while parent is not None and parent.over:  # a task may outlive the call that started it
            parent = parent.parent
        above = _NOBODY if parent is None else parent.within
        here = _WallCall()
        here.of = figures
        here.parent = parent
        here.over = False
        here.below = 0
        here.covered = 0.0
        here.recursive = figures in above
        here.within = above if here.recursive else above | {figures}
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
        figures, parent = here.of, here.parent
        _set(parent)
        took = now - here.started
        total, actual = (0.0, 0) if here.recursive else (took, 1)
        self._acquire()
        try:
            here.over = True
            own = took - here.covered
            if here.below:
                own -= now - here.since
            figures.ncall += 1
            figures.nactual += actual
            figures.tsub += own
            figures.ttot += total
            if parent is not None:
                try:
                    edge = figures.callers[parent.of]
                except KeyError:
                    edge = figures.callers[parent.of] = Cost()
                edge.ncall += 1
                edge.nactual += actual
                edge.tsub += own
                edge.ttot += total
                parent.below -= 1
                if parent.below == 0:
                    parent.covered += now - parent.since
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
                self._replaced.append((owner, name, value))


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
