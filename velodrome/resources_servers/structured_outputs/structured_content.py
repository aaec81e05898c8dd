"""Checks of a value's content: `expected` of a task, an object from JSON pointers to what must be there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from velodrome.errors import TaskError
from velodrome.resources_servers.stated import words

Json = dict[str, Any]

MISSING = object()


def same_json(value: Any, expected: Any) -> bool:
    """Equal as JSON: 1 is 1.0, true is not 1, keys have no order."""
    if isinstance(value, bool) or isinstance(expected, bool):
        return value is expected
    if isinstance(value, dict) and isinstance(expected, dict):
        return value.keys() == expected.keys() and all(same_json(value[name], expected[name]) for name in value)
    if isinstance(value, list) and isinstance(expected, list):
        return len(value) == len(expected) and all(map(same_json, value, expected))
    alike = type(value) is type(expected) or {type(value), type(expected)} == {int, float}
    return bool(alike and value == expected)


def in_any_order(value: Any, expected: Any) -> bool:
    """The same items, however they are ordered."""
    if not isinstance(value, list) or len(value) != len(expected):
        return False
    left = list(expected)
    for item in value:
        at = next((at for at, other in enumerate(left) if same_json(item, other)), None)
        if at is None:
            return False
        left.pop(at)
    return True


def _said(text: str) -> str:
    """The words; of a text that has none, such as `->`, the text."""
    return words(text) or text.strip()


CHECKS: Mapping[str, tuple[type | tuple[type, ...], Callable[[Any, Any], bool]]] = {
    "$text": (str, lambda value, wanted: isinstance(value, str) and _said(value) == _said(wanted)),
    "$contains": (str, lambda value, wanted: isinstance(value, str) and f" {words(wanted)} " in f" {words(value)} "),
    "$one_of": (list, lambda value, wanted: any(same_json(value, each) for each in wanted)),
    "$any_order": (list, in_any_order),
}


def checks_of(task: Mapping[str, Any]) -> dict[str, Any]:
    """The task's `expected`, checked; empty if it has none."""
    expected = task.get("expected")
    if expected is None:
        return {}
    if not isinstance(expected, dict) or not expected:
        raise TaskError('"expected" must be an object from JSON pointers to values, such as {"/name": "Ada"}')
    for pointer, wanted in expected.items():
        if pointer and not pointer.startswith("/"):
            raise TaskError(f'"expected": {pointer[:80]!r} is not a JSON pointer; write "/{pointer[:80]}"')
        name = operator(wanted)
        if name is not None and not (name in CHECKS and isinstance(wanted[name], CHECKS[name][0])):
            raise TaskError(f'"expected": {pointer[:80]!r}: {str(wanted)[:80]} is not one of {", ".join(CHECKS)}')
    return expected


def operator(wanted: Any) -> str | None:
    """The name of the check, if it is not plain equality."""
    if isinstance(wanted, dict) and len(wanted) == 1:
        name = next(iter(wanted))
        return str(name) if name.startswith("$") else None
    return None


def met(value: Any, pointer: str, wanted: Any) -> bool:
    """Whether what is at the pointer is what is wanted."""
    found = at(value, pointer)
    name = operator(wanted)
    if found is MISSING:
        return False
    return same_json(found, wanted) if name is None else CHECKS[name][1](found, wanted[name])


def at(value: Any, pointer: str) -> Any:
    """What a JSON pointer leads to, or MISSING."""
    for step in pointer.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isascii() and step.isdigit() and len(step) < 7 and int(step) < len(value):
            value = value[int(step)]
        else:
            return MISSING
    return value
