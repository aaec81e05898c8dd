"""Find the number or the words that an answer ends with, and compare them with those expected."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Any

TAIL = 20_000  # an answer is at the end; what a runaway model wrote before it is not read
MAX_DIGITS = 400
TOLERANCE = Fraction(1, 1_000_000)
NOT_ROUNDED = Fraction(1, 1000)  # so far may an answer be from a whole number, whatever its size

DIGITS = r"(?:\d{1,3}(?:,\d{3})++(?!\d)|\d++)"
NUMBER = re.compile(
    rf"(?<![\w.])(?P<sign>(?<![\d)\]])[-−])?\$?"
    rf"(?P<whole>{DIGITS}(?:\.\d++)?|\.\d++)(?:[eE](?P<exponent>[-+]?\d{{1,3}})(?!\d))?"
    rf"(?:\s?/\s?(?P<below>{DIGITS}(?:\.\d++)?))?",
    re.ASCII,
)
LATEX_FRACTION = re.compile(r"\\[dt]?frac\s?\{\s?([-−]?\d{1,40})\s?\}\s?\{\s?(\d{1,40})\s?\}")
LATEX_SPACE = re.compile(r"\\[,!;: ]")
LEAD = re.compile(r"(?i).*\banswer\b(?:\s+is\b)?\s*:?")
FINERY = " \t*_`\"'$.()"


def last_number(text: str) -> str | None:
    """The last number of a text as it is written: `1,081`, `-3.5`, `1/2`, `2e10`."""
    tail = text[-TAIL:]
    if "\\" in tail or "{,}" in tail:
        tail = LATEX_SPACE.sub("", LATEX_FRACTION.sub(r" \1/\2 ", tail.replace("{,}", ",")))
    last = None
    for match in NUMBER.finditer(tail):
        last = match
    return None if last is None else last.group().replace("$", "")


@lru_cache(maxsize=4096)
def value_of(text: str) -> Fraction | None:
    """The exact value of a number written as `last_number` finds them; None if it is none."""
    if text.isdigit() and text.isascii() and len(text) <= MAX_DIGITS:
        return Fraction(int(text))
    match = NUMBER.fullmatch(text.strip())
    if match is None or len(text) > MAX_DIGITS:
        return None
    value = Fraction(match["whole"].replace(",", ""))
    if match["exponent"]:
        value *= Fraction(10) ** int(match["exponent"])
    if match["below"]:
        below = Fraction(match["below"].replace(",", ""))
        if below == 0:
            return None
        value /= below
    return -value if match["sign"] else value


def expected_value(expected: Any) -> Fraction | None:
    """The value of a task's `expected_answer`, which may be a number or text."""
    if isinstance(expected, bool) or not isinstance(expected, int | float | str):
        return None
    return value_of(str(expected))


def same(answer: Fraction, expected: Fraction) -> bool:
    """Whole numbers must be equal; others may differ by a millionth of the expected value."""
    if answer.denominator == 1 and expected.denominator == 1:
        return answer == expected
    allowed = TOLERANCE * max(abs(expected), TOLERANCE)
    return abs(answer - expected) <= (min(allowed, NOT_ROUNDED) if expected.denominator == 1 else allowed)


def ends_with(text: str, expected: int | float | str) -> tuple[bool, str | None]:
    """Whether an answer ends with the expected number, or its last line is the expected text; and what it ends with."""
    number = expected_value(expected)
    if number is not None:
        extracted = last_number(text)
        value = None if extracted is None else value_of(extracted)
        return value is not None and same(value, number), extracted
    extracted, wanted = last_words(text), plain_words(str(expected))
    return extracted is not None and bool(wanted) and plain_words(extracted) == wanted, extracted


def last_words(text: str) -> str | None:
    """The last line of an answer, from after the word "answer" if it is there."""
    lines = text[-TAIL:].strip().splitlines()
    return LEAD.sub("", lines[-1][-2000:], count=1).strip(FINERY) if lines else None


def plain_words(text: str) -> str:
    """A text without its finery: case, quotes, spaces after commas."""
    return re.sub(r"\s*,\s*", ",", " ".join(text.strip(FINERY).casefold().split()))
