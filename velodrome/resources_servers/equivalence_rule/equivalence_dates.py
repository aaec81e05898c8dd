"""Dates in the forms people write them. `03/04/2024` is refused unless the task says which comes first."""

from __future__ import annotations

import re
from datetime import date

MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
MONTH = "|".join(f"{name[:3]}(?:{name[3:]})?" if len(name) > 3 else name for name in MONTHS).replace("sep(", "sept?(")
WEEKDAY = rf"(?:(?P<weekday>{'|'.join(DAYS)}),?\s+(?:the\s+)?)?"
FORMS = tuple(
    re.compile(rf"(?<![\w./-]){WEEKDAY}{form}(?![\w/-]|\.\d)", re.IGNORECASE | re.ASCII)
    for form in (
        r"(?P<year>\d{4})(?P<mark>[-/.])(?P<month>\d{1,2})(?P=mark)(?P<day>\d{1,2})",
        r"(?P<first>\d{1,2})(?P<mark>[-/.])(?P<second>\d{1,2})(?P=mark)(?P<year>\d{4})",
        rf"(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?:\s+of)?[\s-]+(?P<name>{MONTH})\.?,?[\s-]+(?P<year>\d{{4}})",
        rf"(?P<name>{MONTH})\.?\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?,?\s+(?P<year>\d{{4}})",
        rf"(?P<year>\d{{4}})\s+(?P<name>{MONTH})\.?\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?",
    )
)
ANOTHER_DAY = re.compile(r"\b(?:before|after|since|until)\b", re.IGNORECASE)
MAX_TEXT = 2_000


def date_in(text: str, day_first: bool | None = None) -> date | None:
    """The one date that a statement holds. Digits beside it mean that it holds more."""
    if len(text) > MAX_TEXT or ANOTHER_DAY.search(text):
        return None
    dates, rest = [], text
    for form in FORMS:
        for match in form.finditer(text):
            dates.append(_date(match.groupdict(), day_first))
            rest = rest.replace(match.group(), " ")
    if len(set(dates)) != 1 or any(char.isdigit() for char in rest):
        return None
    return dates[0]


def _date(parts: dict[str, str | None], day_first: bool | None) -> date | None:
    month, day = _month(parts), parts.get("day")
    if parts.get("first"):
        first, second = int(parts["first"] or 0), int(parts["second"] or 0)
        if parts["mark"] == ".":
            day_first = True
        elif day_first is None and first != second and first <= 12 and second <= 12:
            return None
        elif day_first is None:
            day_first = first > 12 or first == second
        month, day = (second, str(first)) if day_first else (first, str(second))
    try:
        value = date(int(parts["year"] or 0), month, int(day or 0))
    except ValueError:
        return None
    weekday = parts.get("weekday")
    return None if weekday and DAYS.index(weekday.lower()) != value.weekday() else value


def _month(parts: dict[str, str | None]) -> int:
    name = parts.get("name")
    if name:
        return [month[:3] for month in MONTHS].index(name[:3].lower()) + 1
    return int(parts.get("month") or 0)
