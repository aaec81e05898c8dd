"""Numbers as people write them, with exact values. A text that holds several different ones is not a number."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from velodrome.resources_servers.answer import same

MAX_DIGITS = 400
MAX_TEXT = 2_000

FRACTION = re.compile(r"\\[dt]?frac\s?\{\s?([^{}]{1,60}?)\s?\}\s?\{\s?([^{}]{1,60}?)\s?\}")
SPACES = re.compile(r"\\[,!;: ]|(?<=\d)[\u00a0\u2009\u202f](?=\d{3}(?!\d))")
POWER = re.compile(r"\s?(?:\\times|\\cdot|[×·x*])\s?10\s?(?:\^|\*\*)\s?\{?\s?([+-]?\d{1,3}(?!\d))\s?\}?")
DIGITS = r"(?:\d{1,3}(?:[,'_ ]\d{3})++(?!\d)|\d++)"
NUMBER = re.compile(
    rf"(?<![\w.,])(?P<sign>(?<![\d)\]%])\s?[-+]\s?)?(?P<mixed>\d{{1,12}}\s(?=\d{{1,12}}/\d))?"
    rf"(?P<above>{DIGITS}(?:\.\d++)?|\.\d++)(?:[eE](?P<exponent>[-+]?\d{{1,3}})(?!\d))?"
    rf"(?:\s?/\s?(?P<below>{DIGITS}(?:\.\d++)?))?(?P<percent>\s?\\?%)?",
    re.ASCII,
)
UNCERTAIN = re.compile(
    r"\b(?:not|or|nor|between|at least|at most|up to|(?:more|less|fewer|greater) than|all but|except)\b|n't\b|[<>≤≥≠±]"
    r"|\b(?:minus|negative|dozens?|hundreds?|thousands?|[mbtr]{1,2}illions?)\b",  # words that make it another number
    re.IGNORECASE,
)
EQUALS = re.compile(r"\b(?:is|are|equals)\b")
COMPUTED = re.compile(r"-\s?\(|√|sqrt|\\pi|π|\^|\b(?:log|ln|sin|cos|tan|exp)\b")
COMMA = re.compile(r"(?<=\d),(?=\d)")
POINT = re.compile(r"(?<=\d)\.(?=\d{3}(?!\d))")


@dataclass(frozen=True)
class NumberReading:
    """How numbers of a task are written and compared."""

    form: str | None = None
    percent: bool = False
    decimal_comma: bool = False
    absolute: Fraction | None = None
    relative: Fraction | None = None

    def equal(self, answer: Fraction, expected: Fraction) -> bool:
        """Within the task's tolerances; without any, whole numbers exactly and others to a millionth."""
        if self.absolute is None and self.relative is None:
            return same(answer, expected)
        allowed = max(self.absolute or Fraction(0), (self.relative or Fraction(0)) * abs(expected))
        return abs(answer - expected) <= allowed


def plain(text: str, reading: NumberReading) -> str:
    """The text with one way to write minus, fractions, powers of ten and decimals."""
    text = text[:MAX_TEXT].replace("−", "-").replace("–", "-").replace("⁄", "/").replace("{,}", ",")
    text = SPACES.sub("", FRACTION.sub(r" \1/\2 ", text))
    if reading.decimal_comma:
        text = COMMA.sub(".", POINT.sub("", text))
    return POWER.sub(r"e\1", text)


def number_at(match: re.Match[str], reading: NumberReading) -> Fraction | None:
    """The exact value of one match of NUMBER; None if it is too large, or a division by zero."""
    if len(match.group()) > MAX_DIGITS:
        return None
    value = Fraction(_digits(match["above"]))
    if match["exponent"]:
        value *= Fraction(10) ** int(match["exponent"])
    if match["below"]:
        below = Fraction(_digits(match["below"]))
        if below == 0:
            return None
        value /= below
    if match["mixed"]:
        value += int(match["mixed"])
    if match["percent"] and not reading.percent:
        value /= 100
    return -value if match["sign"] and "-" in match["sign"] else value


def _digits(text: str) -> str:
    return text.replace(",", "").replace("'", "").replace("_", "").replace(" ", "")


def number_in(text: str, reading: NumberReading) -> Fraction | None:
    """The one number that a statement holds. Of an equation it is what follows the last `=`, or the only "is"."""
    if len(text) > MAX_TEXT:
        return None
    if len(EQUALS.findall(text)) == 1:
        text = EQUALS.sub("=", text)
    *before, stated = plain(text, reading).replace("\\approx", "=").replace("≈", "=").split("=")
    matches = list(NUMBER.finditer(stated))
    if len(matches) != 1 or COMPUTED.search(stated) or not _stands_alone(stated, matches[0]):
        return None
    value = number_at(matches[0], reading)
    if value is None or not has_form(matches[0], value, reading.form):
        return None
    for part in before:
        other = NUMBER.fullmatch(part.strip())
        if other is not None and number_at(other, reading) != value:
            return None
    return value


def has_form(match: re.Match[str], value: Fraction, form: str | None) -> bool:
    """Whether it is written as the task wants it: a `fraction` in lowest terms, or as a `decimal`."""
    if form == "fraction":
        lowest = f"{abs(value.numerator)}/{value.denominator}"
        return match.group().replace(" ", "").lstrip("-+") in (lowest, lowest.removesuffix("/1"))
    return form is None or match["below"] is None


def _stands_alone(text: str, match: re.Match[str]) -> bool:
    """Whether there is no other digit, and no letter right behind it as in `2x`."""
    behind = text[match.end() :]
    return not behind[:1].isalnum() and not any(char.isdigit() for char in text[: match.start()] + behind)
