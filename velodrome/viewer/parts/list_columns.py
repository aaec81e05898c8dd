"""The columns of the list of rollouts: which there are, which are shown, and the text of a cell.

A column is a field of the index by its name, or one of `prompt`, `answer` (its end) and `expected` (under whichever
name the file has it).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from velodrome.index import Entry, Index, Sort
from velodrome.index.fields import FIELDS, FieldNames
from velodrome.records.task import ANSWER_KEYS
from velodrome.settings.names import hint
from velodrome.timing.figures import duration
from velodrome.viewer.parts.render import NONE, moment, number

TEXTS = ("prompt", "answer")  # of an entry itself
_MOST_COLUMNS = 30
_HEADINGS = {field.name: field.heading for field in FIELDS if field.heading}
_LONG = (*TEXTS, "error", "note")


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
    """The columns if none are chosen; with people's judgement if there is any."""
    expected = ["expected"] if _expected(names) else []
    return ["reward", "prompt", "answer", *expected, *_HEADINGS, "outcome", *(["rating", "tag"] * judged), "key"]


def choices(names: FieldNames) -> list[tuple[str, list[str]]]:
    """Every column there is, by kind."""
    own = ["reward", *TEXTS, *(["expected"] if _expected(names) else []), "key"]
    texts = [name for name in names.texts if name not in own]
    numbers = [name for name in names.numbers if name not in (*own, *texts)]
    return [("Of the rollout", own), ("Texts", texts), ("Numbers", numbers)]


def chosen_columns(
    cols: str, names: FieldNames, sort: Sort, *, judged: bool = False
) -> tuple[list[ListColumn], list[str]]:
    """The columns that an address asks for, and what is wrong with it. The field sorted by is always among them."""
    problems = []
    wanted = list(dict.fromkeys(name for name in cols.split(",") if name))[:_MOST_COLUMNS]
    known = [name for _, group in choices(names) for name in group]
    for name in [name for name in wanted if name not in known]:
        problems.append(f'cols: no field "{name:.60}"{hint(name, known)}')
    shown = [name for name in wanted if name in known] or standard_columns(names, judged=judged)
    if sort.field != "number" and sort.field not in shown and sort.field in known:
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
