"""A table of calls: how often each function was called, how long it took, and which functions it called.

`calls` fills it, and all output is made from it. A table is saved and sent as JSON, and tables of several processes can
be added. Times are seconds.
"""

from __future__ import annotations

import marshal
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Json = dict[str, Any]

BUILTIN = "~"  # the file of C functions, as in the standard library's profiles
_NAME_WIDTH = 48


class Key(NamedTuple):
    """A function: where its code begins, and its qualified name."""

    file: str
    line: int
    name: str


@dataclass(slots=True)
class Cost:
    """Calls and time. `nactual` leaves out recursive calls, as `ttot` does; `tsub` is without functions called."""

    ncall: int = 0
    nactual: int = 0
    tsub: float = 0.0
    ttot: float = 0.0

    def __iter__(self) -> Iterator[Any]:
        return iter((self.ncall, self.nactual, self.tsub, self.ttot))

    def add(self, ncall: int, nactual: int, tsub: float, ttot: float) -> None:
        """Add the cost of further calls."""
        self.ncall += ncall
        self.nactual += nactual
        self.tsub += tsub
        self.ttot += ttot

    @property
    def tavg(self) -> float:
        return self.ttot / self.ncall if self.ncall else 0.0


@dataclass(slots=True)
class Row:
    """One function. `project`: code of the user or a component; `children`: the called functions and their cost."""

    key: Key
    project: bool = True
    cost: Cost = field(default_factory=Cost)
    children: dict[Key, Cost] = field(default_factory=dict)

    def child(self, key: Key) -> Cost:
        """The cost of one function as this one calls it."""
        cost = self.children.get(key)
        if cost is None:
            cost = self.children[key] = Cost()
        return cost


class Table:
    """Rows by function, under one clock: `cpu` or `wall`."""

    def __init__(self, clock: str) -> None:
        self.clock = clock
        self.rows: dict[Key, Row] = {}

    def row(self, key: Key, *, project: bool = True) -> Row:
        """The row of a function, created if it is new."""
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = Row(key, project)
        return row

    def add(self, other: Table) -> None:
        """Add the rows of another table."""
        for row in other.rows.values():
            own = self.row(row.key, project=row.project)
            own.cost.add(*row.cost)
            for key, cost in row.children.items():
                own.child(key).add(*cost)

    def by_time(self) -> list[Row]:
        """The rows, the costliest first."""
        return sorted(self.rows.values(), key=lambda row: (-row.cost.ttot, row.key))

    def as_json(self) -> Json:
        """`children` are [number of the row, ncall, nactual, tsub, ttot]."""
        rows = self.by_time()
        number = {row.key: at for at, row in enumerate(rows)}
        return {
            "clock": self.clock,
            "rows": [
                {
                    **row.key._asdict(),
                    "project": row.project,
                    "ncall": row.cost.ncall,
                    "nactual": row.cost.nactual,
                    "tsub": row.cost.tsub,
                    "ttot": row.cost.ttot,
                    "tavg": row.cost.tavg,
                    "children": [[number[key], *cost] for key, cost in row.children.items() if key in number],
                }
                for row in rows
            ],
        }


def from_json(data: Json) -> Table:
    """The table from the result of `as_json`."""
    table = Table(data["clock"])
    keys = [Key(row["file"], row["line"], row["name"]) for row in data["rows"]]
    for key, saved in zip(keys, data["rows"], strict=True):
        row = table.row(key, project=saved["project"])
        row.cost.add(saved["ncall"], saved["nactual"], saved["tsub"], saved["ttot"])
        for number, *cost in saved["children"]:
            row.child(keys[number]).add(*cost)
    return table


def merged(clock: str, tables: Iterable[Table]) -> Table:
    """The sum of tables under one clock."""
    total = Table(clock)
    for table in tables:
        total.add(table)
    return total


def as_text(table: Table) -> str:
    """The table for a person: the project's functions first, below them everything else with its place."""
    rows = table.by_time()
    own = [row for row in rows if row.project]
    rest = [row for row in rows if not row.project]
    twice = Counter(row.key.name for row in own)
    names = [row.key.name if twice[row.key.name] == 1 else _placed(row.key) for row in own]
    parts = [_lines(names, own)]
    if rest:
        parts += ["the rest: the standard library, other packages, Velodrome itself, functions written in C"]
        parts += [_lines([_placed(row.key) for row in rest], rest)]
    return "\n\n".join(parts) + "\n"


def _placed(key: Key) -> str:
    if key.file == BUILTIN:
        return key.name
    return f"{key.name} ({os.sep.join(key.file.rsplit(os.sep, 2)[-2:])}:{key.line})"


def _lines(names: list[str], rows: list[Row]) -> str:
    width = max([_NAME_WIDTH, *map(len, names)])
    lines = [f"{'name':<{width}} {'ncall':<8} {'tsub':<9} {'ttot':<9} {'tavg':<9}"]
    for name, row in zip(names, rows, strict=True):
        cost = row.cost
        times = " ".join(f"{shown(time_s):<9}" for time_s in (cost.tsub, cost.ttot, cost.tavg))
        lines.append(f"{name:<{width}} {cost.ncall:<8} {times}".rstrip())
    return "\n".join(lines)


def shown(seconds: float) -> str:
    """Seconds in eight characters, if they fit: 0.009755, 17.98387."""
    whole = len(str(int(seconds)))
    return f"{seconds:.{max(0, 7 - whole)}f}" if whole < 7 else f"{seconds:.0f}"


def as_pstat(table: Table) -> bytes:
    """The table in the format of `pstats.Stats` and snakeviz."""
    callers: dict[Key, dict[tuple[str, int, str], tuple[int, int, float, float]]] = {}
    for row in table.rows.values():
        for key, cost in row.children.items():
            above = (row.key.file, row.key.line, row.key.name)
            callers.setdefault(key, {})[above] = (cost.ncall, cost.nactual, cost.tsub, cost.ttot)
    return marshal.dumps(
        {
            tuple(row.key): (
                min(row.cost.nactual, row.cost.ncall),
                row.cost.ncall,
                row.cost.tsub,
                row.cost.ttot,
                callers.get(row.key, {}),
            )
            for row in table.rows.values()
        }
    )


def as_callgrind(table: Table, what: str) -> str:
    """The table in the format of kcachegrind and qcachegrind; costs are nanoseconds."""
    rows = table.by_time()
    twice = Counter((row.key.file, row.key.name) for row in rows)
    names = {key: f"{key.name}:{key.line}" if twice[key.file, key.name] > 1 else key.name for key in table.rows}
    lines = [
        "# callgrind format",
        "version: 1",
        "creator: velodrome",
        f"cmd: {what}",
        "positions: line",
        f"event: ns : {table.clock} time in nanoseconds",
        "events: ns",
        f"summary: {sum(_ns(row.cost.tsub) for row in rows)}",
    ]
    for row in rows:
        lines += ["", f"fl={row.key.file}", f"fn={names[row.key]}", f"{row.key.line} {_ns(row.cost.tsub)}"]
        for key, cost in row.children.items():
            if key in table.rows:
                lines += [f"cfl={key.file}", f"cfn={names[key]}"]
                lines += [f"calls={cost.ncall} {key.line}", f"{row.key.line} {_ns(cost.ttot)}"]
    return "\n".join(lines) + "\n"


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
