"""Whether two results are the same: duplicates count, names of columns do not, order only where it was asked for."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from velodrome.resources_servers.stated import last_block

Row = Sequence[Any]

_WORDS = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|[()]|\border\s+by\b", re.IGNORECASE | re.DOTALL
)
_MOST_PAIRS = 2_000


def last_query(text: str) -> str | None:
    """What is in the last code block that is marked sql."""
    block = last_block(text, ("sql", "sqlite"))
    return None if block is None else block.strip()


def is_ordered(query: str) -> bool:
    """Whether the whole result has an order: ORDER BY outside of parentheses, texts and comments."""
    depth = 0
    for word in _WORDS.findall(query):
        depth += {"(": 1, ")": -1}.get(word, 0)
        if not depth and word.lower().startswith("order"):
            return True
    return False


def same_results(rows: Sequence[Row], expected: Sequence[Row], *, ordered: bool) -> bool:
    """Whether both are equal; whole numbers exactly, others within a millionth."""
    if len(rows) != len(expected):
        return False
    if ordered:
        return all(map(_same_row, rows, expected))
    ours, theirs = sorted(rows, key=_key), sorted(expected, key=_key)
    if all(map(_same_row, ours, theirs)):
        return True
    return len(ours) <= _MOST_PAIRS and _matched(ours, theirs)


def _matched(rows: Sequence[Row], expected: Sequence[Row]) -> bool:
    """Numbers that are nearly equal can be sorted apart: look for a partner of each."""
    left = list(expected)
    for row in rows:
        partner = next((at for at, each in enumerate(left) if _same_row(row, each)), None)
        if partner is None:
            return False
        del left[partner]
    return True


def _same_row(row: Row, expected: Row) -> bool:
    return len(row) == len(expected) and all(map(_same_value, row, expected))


def _same_value(value: Any, expected: Any) -> bool:
    if isinstance(value, int) and isinstance(expected, int):
        return value == expected
    if isinstance(value, int | float) and isinstance(expected, int | float):
        return value == expected or math.isclose(value, expected, rel_tol=1e-6, abs_tol=1e-9)
    return type(value) is type(expected) and bool(value == expected)


def _key(row: Row) -> list[tuple[int, Any]]:
    return [_value_key(each) for each in row]


def _value_key(value: Any) -> tuple[int, Any]:
    if value is None:
        return 0, 0
    if isinstance(value, int | float):
        return 1, value
    return (2, value) if isinstance(value, str) else (3, value)
