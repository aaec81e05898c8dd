"""JSON as others write it: the one parser for files that may come from anywhere.

It takes what strict JSON has no form for: NaN, numbers beyond a float, lone surrogates, bytes that are no UTF-8.
Strict JSON is tried first, because it is far quicker.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

import orjson


def loads(line: bytes | memoryview, *, finite: bool = False) -> Any:
    """The value of a line, or a ValueError. With `finite` what is NaN or infinite is null.

    Texts can be written out again, and whole numbers have 64 bits, as strict JSON gives them.
    """
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        strict = error
    try:
        return _tidy(json.loads(bytes(line).decode("utf-8", "replace"), parse_int=_integer), finite)
    except (ValueError, RecursionError):
        raise strict from None


def _integer(text: str) -> float:
    if len(text) > 20:
        return float(text)
    value = int(text)
    return value if -(2**63) <= value < 2**64 else float(value)


def _tidy(value: Any, finite: bool) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, float):
        return None if finite and not isfinite(value) else value
    if isinstance(value, list):
        return [_tidy(each, finite) for each in value]
    if isinstance(value, dict):
        return {_tidy(name, finite): _tidy(each, finite) for name, each in value.items()}
    return value
