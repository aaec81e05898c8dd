"""A row of another shape than a rollout's, without what has a wrong type, so that the rest of it can be read.

A row that is a JSON object is a rollout. What is taken out of it is named, never guessed at.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

from velodrome.records.rollout import split_key
from velodrome.stats.parts import LONGEST_S

Json = dict[str, Any]
Fits = Callable[[Any], bool]

LATEST_S = 1e11  # since 1970


def _is_key(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(split_key(value))
    except ValueError:
        return False


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return isinstance(value, int)


def _is_length(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value < LONGEST_S


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and isfinite(value) and abs(value) < LATEST_S


# A dict is an object with these fields of a known type, a list one of things like its only entry, in a tuple either
# will do. What is not named may be anything.
_OBJECTS: list[Any] = [{}]
_MESSAGES: list[Any] = [{"tool_calls": _OBJECTS, "reasoning_content": _is_text, "refusal": _is_text}]
_SHAPE: Json = {
    "responses_create_params": {"input": (_is_text, _OBJECTS), "instructions": _is_text, "tools": _OBJECTS},
    "output": _MESSAGES,
    "partial": _MESSAGES,
    "response": {"incomplete_details": {}},
    "usage": {"input_tokens": _is_count, "output_tokens": _is_count, "total_tokens": _is_count},
    "meta": {
        "key": _is_key,
        "finished_at": _is_time,
        "timing": {"total_s": _is_length, "model_s": _is_length},
        "scored": [_is_text],
    },
    "timing": {"total_s": _is_length, "model_s": _is_length},
}


def mended(row: Json) -> tuple[Json, list[str]]:
    """The row without what has a wrong type, and the names of that."""
    wrong: dict[str, None] = {}
    return _fitted(row, _SHAPE, "", wrong), list(wrong)


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
