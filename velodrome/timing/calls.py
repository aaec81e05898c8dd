"""How long functions take: yappi, from `start` to `stop`, read without stopping it. The only importer of yappi.

On the CPU clock a coroutine is charged what it computes itself, on the wall clock also what it waits for. It counts
once however often it is resumed. Every thread is counted, also a thread that ran before the start. One process has one
yappi, and one clock at a time.
"""

from __future__ import annotations

import gc
import sysconfig
import threading
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from velodrome.timing.tables import BUILTIN, Cost, Key, Table

_PACKAGE = Path(__file__).parents[1]
_COMPONENTS = [
    _PACKAGE / kind for kind in ("resources_servers", "responses_api_models", "responses_api_agents", "environments")
]
_LIBRARIES = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")]


class Calls:
    """One clock: `cpu` or `wall`."""

    def __init__(self, clock: str = "cpu") -> None:
        self.clock = clock
        self._begun_functions: set[int] = set()
        self._begun_edges: set[tuple[int, int]] = set()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Count from here on, in every thread."""
        import yappi

        yappi.clear_stats()
        yappi.set_clock_type(self.clock)
        yappi.start(builtins=True, profile_threads=True)

    def stop(self) -> None:
        """Count no more; what was counted can still be read."""
        import yappi

        yappi.stop()

    def table(self) -> Table:
        """The calls counted so far."""
        with self._lock:
            entries = {entry[8]: self._read(entry) for entry in _counted()}
        table = Table(self.clock)
        for entry in entries.values():
            _add(table, entry, entries)
        return table

    def _read(self, entry: tuple[Any, ...]) -> _Entry:
        ncall, nactual, ttot, tsub, index = entry[3], entry[4], entry[6], entry[7], entry[8]
        ncall = _finished(self._begun_functions, index, ncall, nactual)
        children = {}
        for callee, calls, actual, total, own in entry[9]:
            calls = _finished(self._begun_edges, (index, callee), calls, actual)
            children[callee] = Cost(calls, min(actual, calls), own, total)
        # For a function in flight, yappi subtracts the time of its calls before it adds its own, and drops a negative
        # result. Without recursion the difference is exact.
        if ncall == nactual:
            tsub = max(0.0, ttot - sum(cost.ttot for cost in children.values()))
        return _Entry(_key(entry), Cost(ncall, min(nactual, ncall), tsub, ttot), children)


class _Entry(NamedTuple):
    """One function in one thread; `children` by their index."""

    key: Key
    cost: Cost
    children: dict[int, Cost]


def _add(table: Table, entry: _Entry, entries: dict[int, _Entry]) -> None:
    """Add an entry to its row."""
    row = table.row(entry.key, project=is_project(entry.key.file))
    row.cost.add(*entry.cost)
    for number, cost in entry.children.items():
        if number in entries:
            row.child(entries[number].key).add(*cost)


def _counted() -> list[tuple[Any, ...]]:
    """yappi's entries, one per function and thread, all at one moment.

    yappi's public function pauses it, and loses the calls of other threads meanwhile. No Python code runs during this
    call: appending to a list runs none, and the garbage collector is off.
    """
    import _yappi

    entries: list[tuple[Any, ...]] = []
    collecting = gc.isenabled()
    gc.disable()
    try:
        _yappi.enum_func_stats(entries.append, {})
    finally:
        if collecting:
            gc.enable()
    return entries


def _finished(begun_calls: set[Any], call_id: Any, ncall: int, nactual: int) -> int:
    """The number of calls: yappi counts a first call twice if it is read during that call."""
    if ncall == 1 and nactual == 0:
        begun_calls.add(call_id)
        return 1
    return ncall - 1 if call_id in begun_calls and ncall > 1 else ncall


def _key(entry: tuple[Any, ...]) -> Key:
    name, module, line, is_builtin, code = entry[0], entry[1], entry[2], entry[5], entry[13]
    if is_builtin:
        return Key(BUILTIN, 0, name if name.startswith("<") else f"{module}.{name}")
    return Key(str(module), line, getattr(code, "co_qualname", name))


@cache
def is_project(file: str) -> bool:
    """Whether code is a component's or the user's: not the standard library, an installed package, or Velodrome."""
    if file.startswith(("<", BUILTIN)):
        return False
    path = Path(file)
    if path.is_relative_to(_PACKAGE):
        return any(path.is_relative_to(kind) and path.parent != kind for kind in _COMPONENTS)
    if {"site-packages", "dist-packages"} & set(path.parts):
        return False
    return not any(path.is_relative_to(library) for library in _LIBRARIES)
