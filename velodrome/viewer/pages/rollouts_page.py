"""The list of rollouts: filtered, sorted, a page at a time, with the columns that the address names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from velodrome.errors import InputError
from velodrome.index import Index, Query, Sort
from velodrome.index.query import typed
from velodrome.viewer.pages.links import Address, Links
from velodrome.viewer.parts.list_columns import ListColumn, cells, choices, chosen_columns
from velodrome.viewer.parts.render import many
from velodrome.viewer.viewed_file import ViewedFile

Json = dict[str, Any]

PAGE = 50
_FILTERS = (
    ("all", ""),
    ("passed", "reward>=1"),
    ("not passed", "reward<1"),
    ("mixed tasks", "0<pass_rate<1"),
    ("stopped", "state:kept outcome!=finished"),
    ("failed", "state:failed"),
    ("deferred", "state:deferred"),
)


@dataclass(frozen=True)
class Column:
    """The heading of a column; `order` is how the list is sorted by it now."""

    label: str
    kind: str = ""
    href: str | None = None
    order: str | None = None


def parsed(index: Index, address: Address) -> tuple[Query, Sort, list[str]]:
    """The filter and the order; if one is wrong, its problem, and the default in its place."""
    query, sort = Query(), Sort()
    problems: list[str] = []
    fields = index.names()
    try:
        query = Query.parse(address.q, fields)
    except InputError as error:
        problems += error.problems
    try:
        sort = Sort.parse(address.sort)
    except InputError as error:
        problems += error.problems
    return query, sort, problems


def rollouts_page(source: ViewedFile, links: Links, address: Address) -> Json:
    """What the template needs."""
    index = source.index()
    query, sort, problems = parsed(index, address)
    try:
        page = index.page(query, sort, since=address.since, limit=PAGE)
    except InputError as error:  # a field to sort by that is not there
        problems += error.problems
        sort = Sort()
        page = index.page(query, sort, limit=PAGE)
    here: Json = {"q": address.q, "sort": str(sort)}
    names = index.names()
    columns, wrong = chosen_columns(address.cols, names, sort, judged=bool(source.judgements.known))
    problems += wrong
    return {
        "q": typed(address.q),
        "sort_text": "" if sort == Sort() else typed(str(sort)),
        "problems": problems,
        "instead": "Shown from the start, as in the file." if query.terms else "All rollouts are shown.",
        "chips": [
            (label, links.rollouts(q=each, sort=str(sort)), each == address.q.strip()) for label, each in _FILTERS
        ],
        "fields": names,
        "tally": "counting" if page.waiting else _tally(page.total, query),
        "here_url": links.rollouts(**here),
        "cols": ",".join(column.name for column in columns) if address.cols else "",
        "columns": [_heading(column, links, address.q, sort) for column in columns],
        "linked": _linked(columns),
        "choices": choices(names),
        "chosen": [column.name for column in columns],
        "standard_url": links.with_columns("").rollouts(**here),
        "entries": list(zip(page.entries, cells(index, page.entries, columns), strict=True)),
        "note": page.note,
        "previous": links.rollouts(**here, since=page.previous) if page.previous is not None else None,
        "next": links.rollouts(**here, since=page.next) if page.next else None,
        "first": links.rollouts(**here) if page.previous is not None else None,
    }


def _tally(count: int, query: Query) -> str:
    if not query.terms:
        return many(count, "rollout")
    return "1 rollout matches" if count == 1 else f"{many(count, 'rollout')} match"


def _heading(column: ListColumn, links: Links, q: str, sort: Sort) -> Column:
    """A column; one of numbers with the way to sort by it, the largest first."""
    order = order_by(sort, column.field)
    falling = f"-{column.field}"
    href = links.rollouts(q=q, sort=column.field if str(sort) == falling else falling)
    return Column(column.label, column.kind, None if column.kind in ("text", "full") else href, order)


def _linked(columns: Sequence[ListColumn]) -> int:
    """The column whose cells are links to the rollouts."""
    names = [column.name for column in columns]
    return next((names.index(name) for name in ("prompt", "key", "task", "answer") if name in names), 0)


def order_by(sort: Sort, field: str) -> str | None:
    """How a list is sorted by a field, if it is."""
    if sort.field != field:
        return None
    return "descending" if sort.descending else "ascending"
