"""Compare what a program printed or returned with what is expected, outside the sandbox and as judges do.

Printed: spaces at the end of a line and empty lines at the end of the text do not count. A number that is expected
with a decimal point or an exponent may differ by `tolerance`, absolutely or relatively; whole numbers are exact.
Returned: JSON values; tuples have become lists, and a truth value is never a number. A float may stand for a whole
number only within what calculating with floats loses.
"""

from __future__ import annotations

import math
import re
from typing import Any, Literal

Whitespace = Literal["lines", "tokens"]

_DECIMAL = re.compile(r"[-+]?(?:\d++\.\d*+|\.\d++|\d++(?=[eE]))(?:[eE][-+]?\d++)?", re.ASCII)
_NUMBER = re.compile(r"[-+]?(?:\d++\.?\d*+|\.\d++)(?:[eE][-+]?\d++)?", re.ASCII)
_NOT_ROUNDED = 1e-3  # so far may a float be from the whole number it stands for
_EXACT = 2**53  # data beyond it may have been read as the nearest float


def same_output(printed: str, expected: str, tolerance: float, whitespace: Whitespace = "lines") -> bool:
    """Whether a program printed the expected text."""
    if whitespace == "tokens":
        return _same_tokens(printed.split(), expected.split(), tolerance)
    answer, wanted = _lines(printed), _lines(expected)
    return len(answer) == len(wanted) and all(
        line == other or _same_tokens(line.split(), other.split(), tolerance, decimals=True)
        for line, other in zip(answer, wanted, strict=True)
    )


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _same_tokens(answer: list[str], wanted: list[str], tolerance: float, *, decimals: bool = False) -> bool:
    """`decimals`: only lines with a decimal number are compared word by word."""
    if len(answer) != len(wanted) or (decimals and not any(map(_DECIMAL.fullmatch, wanted))):
        return False
    return all(
        word == other
        or bool(_DECIMAL.fullmatch(other) and _NUMBER.fullmatch(word) and _near(float(word), float(other), tolerance))
        for word, other in zip(answer, wanted, strict=True)
    )


def same_value(answer: Any, expected: Any, tolerance: float) -> bool:
    """Whether a function returned the expected value. `answer` is fresh from JSON, so its types are JSON's."""
    if isinstance(expected, dict):
        return (
            isinstance(answer, dict)
            and answer.keys() == expected.keys()
            and all(same_value(answer[key], value, tolerance) for key, value in expected.items())
        )
    if isinstance(expected, list):
        return (
            isinstance(answer, list)
            and len(answer) == len(expected)
            and all(same_value(one, other, tolerance) for one, other in zip(answer, expected, strict=True))
        )
    if isinstance(expected, bool) or isinstance(answer, bool) or not isinstance(expected, int | float):
        return type(answer) is type(expected) and bool(answer == expected)
    if not isinstance(answer, int | float):
        return False
    if isinstance(answer, int) and isinstance(expected, float) and abs(expected) > _EXACT:
        return _as_float(answer) == expected
    if isinstance(expected, int) and (isinstance(answer, int) or abs(expected) > _EXACT):
        return answer == expected
    if isinstance(expected, int):
        return abs(answer - expected) <= min(tolerance * max(1.0, abs(expected)), _NOT_ROUNDED)
    return _near(_as_float(answer), _as_float(expected), tolerance)


def _near(answer: float, expected: float, tolerance: float) -> bool:
    if not math.isfinite(answer) or not math.isfinite(expected):
        return answer == expected or (math.isnan(answer) and math.isnan(expected))
    return abs(answer - expected) <= tolerance * max(1.0, abs(expected))


def _as_float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
