"""The filter from Python: the lines of a file that match."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from velodrome.index.answer_types import FAILED_STATE
from velodrome.index.index import Index
from velodrome.index.outside import OutsideField
from velodrome.index.query import Query, Sort


def matching_lines(
    path: Path, where: str, *, sort: str = "", outside: Sequence[OutsideField] = ()
) -> Iterator[tuple[int, bytes]]:
    """Each rollout that matches `where`, as its line number and its line; failures are left out.

    `where` is what the viewer's filter takes (`reward<1 tools>3`), `sort` a numeric field (`-total_s`); without it
    the order is that of the file. A mistake in either is an `InputError` with its place. The index beside the file is
    built or brought up to date first; lines are read one by one on demand. `outside` are further fields.
    """
    query, order = Query.parse(where), Sort.parse(sort)
    with closing(Index(path, judged=True, outside=outside)) as index:
        index.refresh(search=bool(query.words))
        for entry in index.select(query, order):
            if entry.state != FAILED_STATE:
                yield entry.number, index.line(entry.number)
