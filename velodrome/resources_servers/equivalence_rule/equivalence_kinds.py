"""The kinds of answers: for each, how a text becomes a value and when two values are equal."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from fractions import Fraction
from typing import Any

from velodrome.errors import TaskError
from velodrome.resources_servers.answer import value_of
from velodrome.resources_servers.equivalence_rule.equivalence_dates import date_in
from velodrome.resources_servers.equivalence_rule.equivalence_numbers import UNCERTAIN, NumberReading, number_in
from velodrome.resources_servers.equivalence_rule.equivalence_units import Quantity, quantity_in
from velodrome.resources_servers.stated import bare, need, words

Json = dict[str, Any]

MAX_TEXT = 2_000
KINDS = ("number", "unit", "date", "text", "set", "list")
ENCLOSED = re.compile(
    r"(?:[A-Za-z]\w{0,9}\s?(?:=|∈|\\in)\s?)?\s?(?:\\left)?(?:\\?\{|\[|\()(.*?)(?:\\right)?(?:\\?\}|\]|\))", re.DOTALL
)
LAST_COMMA = re.compile(r",?\s+(?:and|&)\s+")
OR = re.compile(r",?\s+or\s+")
NOTHING = ("", "none", "empty", "empty set", "∅", "\\emptyset")


@dataclass(frozen=True)
class Kind:
    """`read` gives the value of a text, or None; `equal` compares the answer's with the expected one."""

    read: Callable[[str], Any]
    equal: Callable[[Any, Any], bool]
    order: Callable[[Any], Any] = str


def kind_of(task: Mapping[str, Any], name: str) -> Kind:
    """The kind with the task's own settings."""
    reading = reading_of(task)
    if name == "number":
        return Kind(certain(lambda text: number_in(text, reading)), reading.equal, Fraction)
    if name == "unit":
        unit, only = known_unit(task, "unit"), known_unit(task, "only_unit")

        def read(text: str) -> Quantity | None:
            value = quantity_in(text, reading, unit and task["unit"])
            return value if value is None or only is None or value.name == only.name else None

        return Kind(
            certain(read),
            lambda answer, expected: same_quantity(answer, expected, reading),
            lambda value: (value.dimension, value.value),
        )
    if name == "date":
        first = flag(task, "day_first")
        return Kind(certain(lambda text: date_in(text, first)), lambda answer, expected: bool(answer == expected))
    if name == "text":
        return Kind(lambda text: words(text[:MAX_TEXT]) or None, lambda answer, expected: bool(answer == expected))
    raise TaskError(f'"kind" must be one of {", ".join(KINDS)}, not {name[:80]!r}')


def known_unit(task: Mapping[str, Any], name: str) -> Quantity | None:
    """One of a unit that the task names, or None if it names none."""
    unit = task.get(name)
    found = quantity_in(f"1 {unit}", NumberReading()) if isinstance(unit, str) else None
    if unit is not None and found is None:
        raise TaskError(f'"{name}" must be a unit that is known here, not {str(unit)[:80]!r}')
    return found


def certain(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """A reader that refuses what is hedged: "36 or 37", "at least 36", "not 36"."""
    return lambda text: None if len(text) > MAX_TEXT or UNCERTAIN.search(text) else read(text)


def same_quantity(answer: Quantity, expected: Quantity, reading: NumberReading) -> bool:
    """Equal in the unit of the expected one, in which the task's `abs_tolerance` is meant."""
    return answer.dimension == expected.dimension and reading.equal(
        answer.value / expected.unit, expected.value / expected.unit
    )


def reading_of(task: Mapping[str, Any]) -> NumberReading:
    """How numbers of this task are written and compared."""
    form = task.get("form")
    if form not in (None, "fraction", "decimal"):
        raise TaskError(f'"form" must be fraction or decimal, not {str(form)[:80]!r}')
    return NumberReading(
        form=form,
        percent=bool(flag(task, "percent")),
        decimal_comma=bool(flag(task, "decimal_comma")),
        absolute=tolerance(task, "abs_tolerance"),
        relative=tolerance(task, "rel_tolerance"),
    )


def flag(task: Mapping[str, Any], name: str) -> bool | None:
    """True, false, or None if the task does not say."""
    value = task.get(name)
    if value is not None and not isinstance(value, bool):
        raise TaskError(f'"{name}" must be true or false, not {str(value)[:80]!r}')
    return value


def tolerance(task: Mapping[str, Any], name: str) -> Fraction | None:
    """A tolerance of the task, a number that is not negative."""
    if task.get(name) is None:
        return None
    value = value_of(str(need(task, name, (int, float, str), "a number that is not negative")))
    if value is None or value < 0:
        raise TaskError(f'"{name}" must be a number that is not negative, not {str(task[name])[:80]!r}')
    return value


def items_in(text: str, kind: Kind, *, ordered: bool) -> tuple[Any, ...] | None:
    """The items of `{1, 2, 3}`, `[a; b]`, `1, 2 and 3`: their values, in order for a list; None if one has none."""
    if len(text) > MAX_TEXT:
        return None
    enclosed = ENCLOSED.fullmatch(text.strip())
    inner = enclosed.group(1) if enclosed else text
    if words(inner) in NOTHING or inner.strip() in NOTHING:
        return ()
    if ";" in inner:
        parts = inner.split(";")
    else:
        joined = LAST_COMMA.sub(", ", inner)
        parts = (joined if ordered else OR.sub(", ", joined)).split(",")
    values = [kind.read(bare(part)) for part in parts]
    if any(value is None for value in values):
        return None
    return tuple(values) if ordered else tuple(sorted(set(values), key=kind.order))


def same_items(answer: tuple[Any, ...], expected: tuple[Any, ...], kind: Kind) -> bool:
    """Item by item. Of a set both are sorted, so equal numbers meet within any sensible tolerance."""
    return len(answer) == len(expected) and all(map(kind.equal, answer, expected))


def beside(value: Any) -> str:
    """Another value of the same kind, as text: clearly not the same."""
    if isinstance(value, Fraction):
        return str(value * 3 + 7) if value >= 0 else str(value * 3 - 7)
    if isinstance(value, date):
        return (value + timedelta(days=1) if value < date.max else value - timedelta(days=1)).isoformat()
    return "7 acres" if isinstance(value, Quantity) else f"{value} of Nowhere"
