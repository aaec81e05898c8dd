"""The results of the user's code: the text of a tool result, and a score.

Each is checked once, here. An invalid score is an error and never a zero.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import reprlib
from typing import Any

import orjson

from velodrome.errors import ToolError, VerifyError
from velodrome.records.bounds import MAX_NUMBER, is_bounded

Json = dict[str, Any]

PLAIN = frozenset((float, int, str, bool, type(None)))
OPTIONS = orjson.OPT_SERIALIZE_NUMPY


def tool_text(name: str, result: Any, limit_bytes: int) -> str:
    """A tool's result as the model sees it: a string unchanged, anything else as JSON."""
    if not isinstance(result, str):
        encoded = json_bytes(name, result)
        if len(encoded) <= limit_bytes:
            return encoded.decode()
        return _cut(encoded, limit_bytes)
    if result.isascii() and len(result) <= limit_bytes:
        return result
    try:
        encoded = result.encode()
    except UnicodeEncodeError as error:
        raise ToolError(f"{name} returned text that is not valid Unicode (a lone surrogate)") from error
    return result if len(encoded) <= limit_bytes else _cut(encoded, limit_bytes)


def json_bytes(name: str, result: Any) -> bytes:
    """The result of the user's code, as JSON; `name` is for the error message."""
    try:
        encoded = orjson.dumps(result, default=_plain, option=OPTIONS)
    except orjson.JSONEncodeError as error:
        raise ToolError(f"{name} returned {_short_repr(result)}, which is not JSON: {error}") from error
    if _has_null_for_number(encoded, result):
        raise ToolError(f"{name} returned {_short_repr(result)}, which holds a number that is not finite")
    return encoded


def _has_null_for_number(encoded: bytes, value: Any) -> bool:
    """Whether the JSON has `null` for NaN or infinity, as orjson writes them."""
    return b"null" in encoded and not _is_finite(value)


def _cut(encoded: bytes, limit_bytes: int) -> str:
    beginning = encoded[:limit_bytes].decode(errors="ignore")
    return f"{beginning}\n[cut: the first {limit_bytes} of {len(encoded)} bytes]"


def score_fields(result: Any) -> Json:
    """The fields of a score as plain JSON: `reward`, a finite number, and all other fields that `verify` returned."""
    score = _as_dict(result)
    if "reward" not in score:
        raise VerifyError(f'verify returned {_short_repr(result)}, which has no "reward"')
    reward = score["reward"]
    if type(reward) is not float:
        if hasattr(reward, "item"):  # a numpy or torch scalar
            reward = reward.item()
        if not isinstance(reward, numbers.Real):
            raise VerifyError(f'verify returned {_short_repr(result)}: "reward" is {_short_repr(reward)}, not a number')
        score = {**score, "reward": _float("reward", reward, result)}
    plain = True
    for name, value in score.items():
        plain = plain and type(value) in PLAIN
        if isinstance(value, numbers.Real) and not is_bounded(_float(name, value, result)):  # it is averaged
            raise VerifyError(
                f'verify returned {_short_repr(result)}: "{name}" is not finite, or beyond {MAX_NUMBER:g}'
            )
    try:
        encoded = orjson.dumps(score, default=_plain, option=OPTIONS)
    except orjson.JSONEncodeError as error:
        raise VerifyError(f"verify returned {_short_repr(result)}, which is not JSON: {error}") from error
    if plain:
        return score
    if _has_null_for_number(encoded, score):
        raise VerifyError(f"verify returned {_short_repr(result)}, which holds a number that is not finite")
    fields: Json = orjson.loads(encoded)
    return fields


def _as_dict(result: Any) -> Json:
    if type(result) is dict:
        return result
    if isinstance(result, numbers.Real):
        return {"reward": _float("reward", result, result)}
    if not isinstance(result, dict):
        raise VerifyError(f'verify returned {_short_repr(result)}, not a number or a dict with "reward"')
    return dict(result)


def _float(name: str, value: Any, result: Any) -> float:
    try:
        return float(value)
    except (OverflowError, ValueError) as error:
        raise VerifyError(f'verify returned {_short_repr(result)}: "{name}" does not fit a number') from error


def _plain(value: Any) -> Any:
    """Convert a value that orjson cannot encode."""
    if hasattr(value, "model_dump"):  # a pydantic model
        return value.model_dump(mode="json")
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, float):
        return float(value)
    raise TypeError(f"a {type(value).__name__}")


def _is_finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_finite, value))
    if hasattr(value, "tolist"):  # numpy
        return _is_finite(value.tolist())
    if hasattr(value, "model_dump"):  # a pydantic model
        return _is_finite(value.model_dump())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _is_finite(dataclasses.asdict(value))
    return True


def _short_repr(value: Any) -> str:
    return reprlib.repr(value)
