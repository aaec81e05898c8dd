"""Repairs foreign rows: fields of a wrong type are left out and named, so that the rest can be read."""

from __future__ import annotations

from math import isfinite
from typing import Any

Json = dict[str, Any]

LONGEST_S = 1e8  # three years
LATEST_S = 1e11  # since 1970
# What reading a value of an unexpected type can raise.
HOSTILE = (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_length(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value < LONGEST_S


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and isfinite(value) and abs(value) < LATEST_S


# A dict is an object with these fields of a known type, a list one of things like its only entry; of a tuple either
# will do. What is not named may be anything.
_OBJECTS: list[Any] = [{}]
_MESSAGES: list[Any] = [{"tool_calls": _OBJECTS, "reasoning_content": _is_text, "refusal": _is_text}]
_META: Json = {"finished_at": _is_time, "timing": {"total_s": _is_length, "model_s": _is_length}, "scored": [_is_text]}
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
    return _fitted(row, _FAILURE if failed else _ROLLOUT, "", wrong), list(wrong)


def _fitted(value: Any, shape: Any, name: str, wrong: dict[str, None]) -> Any:
    """The value, or as much of it as has its shape; null is nothing, and fits everywhere."""
    if value is None:
        return None
    if isinstance(shape, tuple):
        shape = next((each for each in shape if isinstance(each, list) == isinstance(value, list)), shape[0])
    if isinstance(shape, dict) and isinstance(value, dict):
        known = {each: _fitted(value[each], shape[each], f"{name}.{each}", wrong) for each in shape if each in value}
        return {**value, **known}
    if isinstance(shape, list) and isinstance(value, list):
        if None in value:
            wrong[name.removeprefix(".")] = None
        fitted = [_fitted(each, shape[0], name, wrong) for each in value]
        return [each for each in fitted if each is not None]
    if callable(shape) and shape(value):
        return value
    wrong[name.removeprefix(".")] = None
    return None
