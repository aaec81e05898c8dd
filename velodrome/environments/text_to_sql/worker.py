"""Queries of a model, run in a worker process whose memory is limited and which can write no file.

Wall time is looked at by the environment, which ends the process. Results are compared here, too: with many rows that
takes a while.
"""

from __future__ import annotations

import contextlib
import resource
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from velodrome.environments.text_to_sql.database import (
    Database,
    QueryLimits,
    QueryRefused,
    Result,
    Rows,
    is_ordered,
    same_results,
)

_BESIDE_MB = 512  # of addresses, for the interpreter and a result


@dataclass(frozen=True, slots=True)
class QueryComparison:
    """The sets of rows on which two queries have the same result, and the reason if a query was refused."""

    right: tuple[bool, ...] = ()
    refused: str = ""
    reference_refused: str = ""


class QueryWorker:
    """Created once per process; its limits apply to the whole process."""

    def __init__(self, limits: QueryLimits) -> None:
        self._limits = limits
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.execute(f"PRAGMA hard_heap_limit = {limits.memory_mb << 20}")
        _lower(resource.RLIMIT_FSIZE, 0)
        with contextlib.suppress(OSError), open("/proc/self/statm", "rb") as file:
            addresses = int(file.read().split()[0]) * resource.getpagesize()
            _lower(resource.RLIMIT_AS, addresses + (limits.memory_mb + _BESIDE_MB << 20))

    async def run(self, _: str, schema: str, rows: Mapping[str, Rows], query: str) -> Result | str:
        """The result of a query, or the reason why it was refused."""
        with closing(Database(schema, rows, self._limits)) as database:
            try:
                return database.run(query)
            except QueryRefused as error:
                return str(error)

    async def compare(
        self, _: str, schema: str, fixtures: Sequence[Mapping[str, Rows]], reference: str, query: str
    ) -> QueryComparison:
        """Run both on each set of rows."""
        right = []
        for rows in fixtures:
            with closing(Database(schema, rows, self._limits)) as database:
                try:
                    expected = database.run(reference)[1]
                except QueryRefused as error:
                    return QueryComparison(reference_refused=str(error))
                try:
                    result = database.run(query)[1]
                except QueryRefused as error:
                    return QueryComparison(refused=str(error))
            right.append(same_results(result, expected, ordered=is_ordered(reference)))
        return QueryComparison(tuple(right))

    async def aclose(self) -> None:
        """Nothing to free."""


def _lower(which: int, limit: int) -> None:
    """Set a limit of this process, or leave the lower one that it has."""
    hard = resource.getrlimit(which)[1]
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(which, (limit, limit))
