"""What is true of many entries at once: histograms, the course over time, kinds of failures.

Sums that a whole file would have to be read for are kept up to date as it is read, or asked of SQL indices alone.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left

from velodrome.index.answers import Bin, Group, Histogram, Point
from velodrome.index.plan import Plan
from velodrome.index.store import read_progress

_MOST_BINS = 200
_MOST_POINTS = 1000
_MOST_GROUPS = 200
_FIRST_NUMBERS = 5


def histogram(connection: sqlite3.Connection, plan: Plan, field: str, bins: int, *, filtered: bool) -> Histogram:
    """Where the values of a numeric field lie, over the range it has in the whole file."""
    bins = max(1, min(bins, _MOST_BINS))
    column = plan.fields.column(field)
    low, high = (connection.execute(f"SELECT {side}({column}) FROM rollout").fetchone()[0] for side in ("min", "max"))
    edges = [] if low is None else [low + (high - low) * place / bins for place in range(bins if high > low else 1)]
    exact = True
    if filtered:
        counts, missing, total = [0] * len(edges), 0, 0.0
        for values, last in plan.values(column):
            exact = last
            there = sorted(value for value in values if value is not None)
            missing += len(values) - len(there)
            total += sum(there)
            _add(counts, there, edges)
    else:
        counts, total = _whole(connection, column, edges)
        progress = read_progress(connection)
        missing = progress.rows + progress.failed - sum(counts)
    count = sum(counts)
    made = tuple(Bin(*each) for each in zip(edges, [*edges[1:], high], counts, strict=True)) if edges else ()
    return Histogram(field, made, count, missing, total / count if count else None, exact)


def _add(counts: list[int], values: list[float], edges: list[float]) -> None:
    starts = [bisect_left(values, edge) for edge in edges[1:]]
    for place, (start, end) in enumerate(zip([0, *starts], [*starts, len(values)], strict=True)):
        counts[place] += end - start


def _whole(connection: sqlite3.Connection, column: str, edges: list[float]) -> tuple[list[int], float]:
    counts = []
    for place, edge in enumerate(edges):
        if place + 1 < len(edges):
            test, values = f"{column} >= ? AND {column} < ?", [edge, edges[place + 1]]
        else:
            test, values = f"{column} >= ?", [edge]
        counts.append(connection.execute(f"SELECT count(*) FROM rollout WHERE {test}", values).fetchone()[0])
    return counts, connection.execute(f"SELECT total({column}) FROM rollout").fetchone()[0]


def series(connection: sqlite3.Connection, points: int) -> list[Point]:
    """What finished when, in at most so many points. Times in which nothing finished take no room."""
    points = max(1, min(points, _MOST_POINTS))
    width = read_progress(connection).second_s
    rows = connection.execute("SELECT at, kept, failed, tokens, scored, total FROM second ORDER BY at").fetchall()
    while len({row[0] // width for row in rows}) > points:
        width *= 2
    sums: dict[int, list[float]] = {}
    for at, *values in rows:
        held = sums.setdefault(at // width, [0.0] * len(values))
        for place, value in enumerate(values):
            held[place] += value
    return [
        Point(float(at * width), float(width), int(kept), int(failed), int(tokens), total / scored if scored else None)
        for at, (kept, failed, tokens, scored, total) in sums.items()
    ]


def failures(connection: sqlite3.Connection) -> list[Group]:
    """Kinds of failures, the most frequent first."""
    kinds = connection.execute(
        "SELECT id, boundary, pattern, count, example FROM kind WHERE count > 0"
        " ORDER BY count DESC, boundary, pattern LIMIT ?",
        (_MOST_GROUPS,),
    ).fetchall()
    first = "SELECT number FROM failure WHERE kind = ? ORDER BY number LIMIT ?"
    found = []
    for kind, boundary, folded, count, example in kinds:
        numbers = connection.execute(first, (kind, _FIRST_NUMBERS)).fetchall()
        found.append(Group(boundary, folded, count, example, tuple(row[0] for row in numbers)))
    return found
