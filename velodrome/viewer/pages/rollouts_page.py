"""The list of rollouts: filtered, sorted, a page at a time; every column that is a number can be sorted by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from velodrome.errors import InputError
from velodrome.index import Entry, Index, Query, Sort
from velodrome.index.fields import FIELDS
from velodrome.index.query import typed
from velodrome.timing.report import duration
from velodrome.viewer.pages.links import Address, Links
from velodrome.viewer.parts.render import NONE, many, number
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
    """One column; `order` is how the list is sorted by it now, `show` the text of its cells."""

    label: str
    kind: str = ""
    href: str | None = None
    order: str | None = None
    show: Callable[[Entry], str] = lambda entry: ""


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
        page = index.page(query, sort, after=address.after or None, before=address.before or None, limit=PAGE)
    except InputError as error:  # a cursor of another list, or a field to sort by that is not there
        problems += error.problems
        sort = Sort()
        page = index.page(query, sort, limit=PAGE)
    here = {"q": address.q, "sort": str(sort)}
    return {
        "q": typed(address.q),
        "sort_text": "" if sort == Sort() else typed(str(sort)),
        "problems": problems,
        "instead": "Shown from the start, as in the file." if query.terms else "All rollouts are shown.",
        "chips": [
            (label, links.rollouts(q=each, sort=str(sort)), each == address.q.strip()) for label, each in _FILTERS
        ],
        "fields": index.fields(),
        "tally": _tally(source, query),
        "here_url": links.rollouts(**here),
        "columns": columns(links, address.q, sort),
        "entries": page.entries,
        "note": page.note,
        "previous": links.rollouts(**here, before=page.previous) if page.previous else None,
        "next": links.rollouts(**here, after=page.next) if page.next else None,
        "first": links.rollouts(**here) if page.previous else None,
    }


def _tally(source: ViewedFile, query: Query) -> str:
    if not query.terms:
        return many(source.state.entries, "rollout")
    count = source.count(query)
    if count is None:
        return "counting"
    return "1 rollout matches" if count == 1 else f"{many(count, 'rollout')} match"


def columns(links: Links, q: str, sort: Sort) -> list[Column]:
    """Reward, task and answer, then numbers; the field sorted by is always among them."""

    def heading(label: str, field: str, kind: str = "num") -> Column:
        order = order_by(sort, field)
        href = links.rollouts(q=q, sort=field if order == "descending" else f"-{field}")
        return Column(label, kind, href, order, partial(_cell, field))

    names = [(field.heading, field.name) for field in FIELDS if field.heading]
    if sort.field not in ("number", "reward", *(field for _, field in names)):
        names.append((sort.field, sort.field))
    fixed = [heading("reward", "reward", ""), Column("task"), Column("answer")]
    return [*fixed, *(heading(label, field) for label, field in names), Column("outcome", "num", show=_outcome)]


def order_by(sort: Sort, field: str) -> str | None:
    """How a list is sorted by a field, if it is."""
    if sort.field != field:
        return None
    return "descending" if sort.descending else "ascending"


def _outcome(entry: Entry) -> str:
    return entry.outcome or NONE


def _cell(field: str, entry: Entry) -> str:
    value = entry.numbers.get(field)
    if value is None:
        return NONE
    return duration(value * 1000) if field.endswith("_s") else number(value)
