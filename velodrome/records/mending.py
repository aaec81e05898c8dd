"""Repairs foreign rows: drops fields of a wrong type and lists their names, so that the rest can be read."""

from __future__ import annotations

from math import isfinite
from typing import Any

Json = dict[str, Any]

LONGEST_S = 1e8  # three years
LATEST_S = 1e11  # seconds since 1970
# What reading a value of an unexpected type can raise.
HOSTILE = (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_duration(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value < LONGEST_S


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and isfinite(value) and abs(value) < LATEST_S


# Shapes: a dict is an object whose named fields have these shapes, a list has entries of one shape, a tuple lists
# alternatives. Other fields may have any type.
_OBJECTS: list[Any] = [{}]
_MESSAGES: list[Any] = [{"tool_calls": _OBJECTS, "reasoning_content": _is_text, "refusal": _is_text}]
_META: Json = {
    "finished_at": _is_time,
    "timing": {"total_s": _is_duration, "model_s": _is_duration},
    "scored": [_is_text],
}
_SHAPE: Json = {
    "responses_create_params": {"input": (_is_text, _OBJECTS), "instructions": _is_text, "tools": _OBJECTS},
    "response": {"incomplete_details": {}, "metadata": {}},
    "usage": {},
}
_ROLLOUT = {**_SHAPE, "output": _MESSAGES, "meta": _META}
_FAILURE = {**_SHAPE, "partial": _MESSAGES, **_META}


def mended(row: Json, *, failed: bool = False) -> tuple[Json, list[str]]:
    """The row without the fields of a wrong type, and their names."""
    wrong: dict[str, None] = {}
    return _checked_part(row, _FAILURE if failed else _ROLLOUT, "", wrong), list(wrong)


def _checked_part(value: Any, shape: Any, name: str, wrong: dict[str, None]) -> Any:
    """The parts of the value that have the shape. Null has every shape."""
    if value is None:
        return None
    if isinstance(shape, tuple):
        shape = next((choice for choice in shape if isinstance(choice, list) == isinstance(value, list)), shape[0])
    if isinstance(shape, dict) and isinstance(value, dict):
        fields = {key: _checked_part(value[key], shape[key], f"{name}.{key}", wrong) for key in shape if key in value}
        return {**value, **fields}
    if isinstance(shape, list) and isinstance(value, list):
        if None in value:
            wrong[name.removeprefix(".")] = None
        entries = [_checked_part(entry, shape[0], name, wrong) for entry in value]
        return [entry for entry in entries if entry is not None]
    if callable(shape) and shape(value):
        return value
    wrong[name.removeprefix(".")] = None
    return None
