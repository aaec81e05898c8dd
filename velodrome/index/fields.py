"""The numeric fields of a rollout, in one table: what the index stores, a filter can name and a list can show.

To add one, add a line here and raise `database.VERSION`. With a heading it is a column of the viewer's list.
Every other number at the top level of a rollout is a field too, under its own name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

from velodrome.records.bounds import MAX_NUMBER
from velodrome.records.facts import RowFacts


@dataclass(frozen=True, slots=True)
class FieldNames:
    """The names of fields in filters. A field that is a number in some rollouts and a text in others is in both."""

    numbers: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    choices: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # by name: all values of a text that has only a few

    def __or__(self, other: FieldNames) -> FieldNames:
        numbers, texts = (*self.numbers, *other.numbers), (*self.texts, *other.texts)
        choices = {**self.choices, **other.choices}
        return FieldNames(tuple(dict.fromkeys(numbers)), tuple(dict.fromkeys(texts)), choices)


class Field(NamedTuple):
    """A number of a rollout. `read` takes it from the facts of a row; anything but a number counts as absent."""

    name: str
    read: Callable[[RowFacts], Any]
    heading: str = ""


FIELDS = (
    Field("reward", lambda facts: number(facts.reward)),
    Field("turns", attrgetter("turns"), "turns"),
    Field("tools", attrgetter("tool_calls"), "tools"),
    Field("tokens", attrgetter("total_tokens"), "tokens"),
    Field("input_tokens", attrgetter("input_tokens")),
    Field("output_tokens", attrgetter("output_tokens")),
    Field("length", lambda facts: len(facts.answer)),
    Field("total_s", attrgetter("total_s"), "time"),
    Field("model_s", lambda facts: facts.seconds("model_s")),
    Field("tools_s", lambda facts: facts.seconds("tools_s")),
    Field("verify_s", lambda facts: None if facts.verified_later else facts.seconds("verify_s")),
    Field("queue_s", lambda facts: facts.seconds("queue_s")),
    Field("retries", lambda facts: facts.count("retries")),
    Field("repeat", lambda facts: None if facts.task is None else facts.repeat),
    Field("task_index", lambda facts: number(facts.meta.get("task_index"))),
    Field("finished_at", attrgetter("finished_at")),
)
FIELD_NAMES = tuple(each.name for each in FIELDS)
TEXT_FIELDS = ("key", "task", "agent", "status", "stop", "outcome", "error", "boundary", "state", "model", "tool")
TASK_FIELDS = ("n", "scored", "pass_rate", "mean_reward")  # of all rollouts of a task
OWN_NAMES = FieldNames((*FIELD_NAMES, *TASK_FIELDS, "number"), TEXT_FIELDS)  # the fields of every file
RESERVED = frozenset((*FIELD_NAMES, *TEXT_FIELDS, *TASK_FIELDS, "number"))
LONGEST_TEXT = 200  # stored characters of a text
EDGE = "\x1f"  # between the tools of a rollout
_SPACES = str.maketrans(EDGE + "\0", "  ")
_LARGEST_EXTRA = 256  # fields of one row
_LONGEST_NAME = 100
_MOST_TOOLS = 64  # different ones of a rollout
_ID_NAMES = ("id", "task_id")  # a number here is a name
_WHOLE = 2**53  # whole numbers up to here are exact in a column


def number(value: Any) -> float | None:
    """The value if it is a number that a column can hold, else None."""
    if type(value) not in (float, int, bool) or not -MAX_NUMBER <= value <= MAX_NUMBER:
        return None
    return value + 0 if abs(value) < _WHOLE else float(value)


def extra_numbers(facts: RowFacts) -> dict[str, float]:
    """Every other number at the top level, by name. If the name is reserved, it is called `row.<name>`."""
    extra: dict[str, float] = {}
    for name, value in facts.numbers.items():
        is_extra = name == "attempt" if facts.failed else name != "reward"
        if is_extra and len(name) <= _LONGEST_NAME and (amount := number(value)) is not None:
            extra[f"row.{name}" if name in RESERVED else name] = amount
            if len(extra) >= _LARGEST_EXTRA:
                break
    return extra


def row_texts(facts: RowFacts) -> dict[str, str]:
    """Every text at the top level, named as in `extra_numbers`, and the texts of `TEXT_FIELDS` that the row has."""
    texts = {"agent": facts.agent, "status": facts.status, "stop": facts.stopped_by, "outcome": facts.outcome}
    texts["model"] = facts.model
    for name, value in facts.row.items() if not facts.failed else ():
        if type(value) is str:
            text = value
        elif name in _ID_NAMES and type(value) is int:
            text = str(value)
        else:
            continue
        if text and len(name) <= _LONGEST_NAME and len(texts) < _LARGEST_EXTRA:
            texts[f"row.{name}" if name in RESERVED else name] = text
    stored = {name: stored_text(text) for name, text in texts.items() if text}
    if facts.tool_calls:
        tools = sorted({name for name, _ in facts.calls if type(name) is str and name})[:_MOST_TOOLS]
        stored["tool"] = EDGE.join(map(stored_text, tools))
    return stored


def stored_text(value: str) -> str:
    """The start of a text, as a column stores it: without the separator of tool names."""
    start = value[:LONGEST_TEXT]
    return start if start.isprintable() else start.translate(_SPACES)


def values_of(text: str) -> list[str]:
    """The values in a stored text."""
    return text.split(EDGE) if text else []
