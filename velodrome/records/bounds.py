"""Bounds for numbers from outside, and the problems with numbers beyond them.

Numbers within these bounds can be summed over any file, written as JSON and stored in 64 bits. A collection blames a
larger number on the component that sent it; a reader treats it as damage.
"""

from __future__ import annotations

import math
from typing import Any, TypeGuard

MAX_TOKENS = 10**9  # of one answer or one rollout; far more than any context window
MAX_MEASURE = 2**53  # of other values in a server's usage: times, a price
MAX_NUMBER = 1e100  # of a number that is averaged: its square and the sum of many are finite

_DEEPEST = 8


def usage_flaw(usage: Any, where: str = "usage", depth: int = 0) -> str | None:
    """Why this is not the `usage` of a Response, or None. Every `…_tokens` is a count, nested ones included."""
    if usage is None:
        return None
    if not isinstance(usage, dict):
        return f"{where} is not an object but {usage!r:.40}"
    if depth > _DEEPEST:
        return f"{where} is nested too deeply"
    for name, value in usage.items():
        if type(value) is int and 0 <= value <= MAX_TOKENS:
            continue
        problem = None
        if isinstance(value, dict):
            problem = usage_flaw(value, f"{where}.{name}", depth + 1)
        elif value is not None and str(name).endswith("_tokens"):
            problem = f"{where}.{name} is {value!r:.40}, not a count up to {MAX_TOKENS}"
        elif isinstance(value, int | float) and not abs(value) <= MAX_MEASURE:
            problem = f"{where}.{name} is {value!r:.40}, beyond any measure"
        if problem is not None:
            return problem
    return None


def is_count(value: Any) -> TypeGuard[int]:
    """Whether this is a whole number from 0 to `MAX_TOKENS`."""
    return type(value) is int and 0 <= value <= MAX_TOKENS


def tokens_flaw(name: str, values: Any) -> str | None:
    """Why this is not a list of token ids (a name in `_ids`) or of log-probabilities, or None."""
    if not isinstance(values, list):
        return f'"{name}" is not a list but {values!r:.40}'
    kinds = set(map(type, values))
    if name.endswith("_ids"):
        if values and (kinds != {int} or not 0 <= min(values) <= max(values) <= MAX_TOKENS):
            return f'"{name}" holds what is not a token id'
    elif not kinds <= {int, float} or not all(map(math.isfinite, values)):
        return f'"{name}" holds what is not a finite number'
    return None


def is_bounded(number: float) -> bool:
    """Whether a number can be averaged: finite, and not beyond `MAX_NUMBER`."""
    return abs(number) <= MAX_NUMBER
