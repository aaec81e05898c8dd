"""The list of rollouts: filtered, sorted, a page at a time, with the columns that the address names.

A column is a field of the index by its name, or one of `prompt`, `answer` (its end) and `expected` (under any of its
usual names).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from velodrome.errors import InputError
from velodrome.index import Entry, Index, Query, Sort
from velodrome.index.fields import FIELDS, FieldNames
from velodrome.index.query import typed
from velodrome.records.task import ANSWER_KEYS
from velodrome.settings.names import hint
from velodrome.timing.figures import duration
from velodrome.viewer.pages.links import Address, Links
from velodrome.viewer.parts.render import NONE, many, moment, number
from velodrome.viewer.viewed_file import ViewedFile

Json = dict[str, Any]

PAGE = 50
TEXTS = ("prompt", "answer")  # of an entry itself
_MOST_COLUMNS = 30
_HEADINGS = {field.name: field.heading for field in FIELDS if field.heading}
_LONG = (*TEXTS, "error", "note")
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


def parse_query(index: Index, address: Address) -> tuple[Query, Sort, list[str]]:
    """The filter, the order, and the problems. A wrong filter or order is replaced by the default."""
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
    """The values of the template."""
    index = source.index()
    query, sort, problems = parse_query(index, address)
    try:
        page = index.page(query, sort, since=address.since, limit=PAGE)
    except InputError as error:  # no such field to sort by
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
    """The heading of a column. A column of numbers has a link that sorts by it, the largest first."""
    order = order_by(sort, column.field)
    descending = f"-{column.field}"
    href = links.rollouts(q=q, sort=column.field if str(sort) == descending else descending)
    return Column(column.label, column.kind, None if column.kind in ("text", "full") else href, order)


def _linked(columns: Sequence[ListColumn]) -> int:
    """The column whose cells are links to the rollouts."""
    names = [column.name for column in columns]
    return next((names.index(name) for name in ("prompt", "key", "task", "answer") if name in names), 0)


def order_by(sort: Sort, field: str) -> str | None:
    """The direction in which a list is sorted by a field, or None."""
    if sort.field != field:
        return None
    return "descending" if sort.descending else "ascending"


@dataclass(frozen=True, slots=True)
class ListColumn:
    """One column: its name in an address, the field it is read from, and how wide it may be."""

    name: str
    field: str
    kind: str  # "num", "text", "full" (takes the room that is left) or "" (the reward)

    @property
    def label(self) -> str:
        """Its heading."""
        return _HEADINGS.get(self.name, self.name)


def standard_columns(names: FieldNames, *, judged: bool) -> list[str]:
    """The columns if none are chosen, with those of judgements if there are any."""
    expected = ["expected"] if _expected(names) else []
    return ["reward", "prompt", "answer", *expected, *_HEADINGS, "outcome", *(["rating", "tag"] * judged), "key"]


def choices(names: FieldNames) -> list[tuple[str, list[str]]]:
    """Every column, by kind."""
    basic = ["reward", *TEXTS, *(["expected"] if _expected(names) else []), "key"]
    texts = [name for name in names.texts if name not in basic]
    numbers = [name for name in names.numbers if name not in (*basic, *texts)]
    return [("Of the rollout", basic), ("Texts", texts), ("Numbers", numbers)]


def chosen_columns(
    cols: str, names: FieldNames, sort: Sort, *, judged: bool = False
) -> tuple[list[ListColumn], list[str]]:
    """The columns in an address, and its problems. The sort field is always a column."""
    problems = []
    names_in_address = list(dict.fromkeys(name for name in cols.split(",") if name))[:_MOST_COLUMNS]
    all_names = [name for _, group in choices(names) for name in group]
    for name in [name for name in names_in_address if name not in all_names]:
        problems.append(f'cols: no field "{name:.60}"{hint(name, all_names)}')
    shown = [name for name in names_in_address if name in all_names] or standard_columns(names, judged=judged)
    if sort.field != "number" and sort.field not in shown and sort.field in all_names:
        shown.append(sort.field)
    return [_column(name, names) for name in shown], problems


def _column(name: str, names: FieldNames) -> ListColumn:
    field = _expected(names) or name if name == "expected" else name
    if name == "reward":
        return ListColumn(name, field, "")
    if name in _LONG:
        return ListColumn(name, field, "full")
    return ListColumn(name, field, "text" if field in names.texts else "num")


def _expected(names: FieldNames) -> str | None:
    """The field that holds the expected answer."""
    return next((name for name in ANSWER_KEYS if name in (*names.texts, *names.numbers)), None)


def cells(index: Index, entries: Sequence[Entry], columns: Sequence[ListColumn]) -> list[list[str]]:
    """The texts of all cells, a list for each entry."""
    stored = {name for entry in entries for name in entry.numbers}.difference(index.names().texts)
    fields = {column.field for column in columns if column.name not in (*TEXTS, "reward", "key", "outcome", *stored)}
    numbers = [entry.number for entry in entries]
    values = index.values(numbers, fields) if fields else {}
    return [[_cell(column, entry, values.get(entry.number, {})) for column in columns] for entry in entries]


def _cell(column: ListColumn, entry: Entry, values: dict[str, Any]) -> str:
    if column.name == "prompt":
        return entry.prompt or entry.key
    if column.name == "answer":
        return (entry.error if entry.state == "failed" else entry.answer) or NONE
    if column.name in ("key", "outcome"):
        return getattr(entry, column.name) or NONE
    value: Any = values.get(column.field, entry.numbers.get(column.field))
    if value is None or isinstance(value, str):
        return value or NONE
    if column.field == "finished_at":
        return str(moment(value).striptags())
    return duration(value * 1000) if column.field.endswith("_s") else number(value)
