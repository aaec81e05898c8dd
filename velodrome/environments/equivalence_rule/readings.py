"""Numbers as people write them, with exact values. A text with several different numbers is not a number.

Quantities: a number with a unit, converted exactly. The table is small; currencies are labels, not rates.

Dates in the forms people write them. `03/04/2024` is refused unless the task says which comes first.

The kinds of answers: for each, how a text is parsed and when two values are equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from fractions import Fraction
from typing import Any, NamedTuple

from velodrome.errors import TaskError
from velodrome.resources_servers.answers import bare, need, same_number, value_of, words

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
_STEMS = "ai|is|are|was|were|do|does|did|has|have|had|can|could|would|should|must|wo|ca"
UNCERTAIN = re.compile(
    r"\b(?:not|cannot|never|or|nor|neither|between|at least|at most|up to|(?:more|less|fewer|greater) than)\b|[<>≤≥≠±]"
    rf"|\b(?:{_STEMS}) ?n[^a-z]{{0,2}}t\b"  # whichever apostrophe: ʼ is a letter
    r"|\b(?:(?:all|any|every|no)\w*(?: \w+)? (?:but|save|bar)|except\w*|apart from|(?:other|rather) than|instead of)\b"
    r"|\bbut\W{1,3}(?:the )?(?=-?\d)"  # every number in the world but 42
    # words that make it another number
    r"|\b(?:minus|plus|negative|dozens?|hundreds?|thousands?|[mbtr]{1,2}illions?|doubled|halved)\b"
    r"|\b(?:squared|cubed|(?:square|cube) of|roots?|factorial|and a (?:half|third|quarter))\b"
    r"|\b(?:third|quarter|opposite|inverse|negation|multiple|divisor)s? of\b|\btimes (?:two|three|four|five|ten)\b"
    r"|\b(?:fourth|fifth|tenth|hundredth)s? of\W{1,3}(?=-?\d)"
    r"|\b(?:twice|thrice|double|triple|quadruple|half|without|excluding|besides|unlike)(?: \w+)?\W{1,3}(?=\d)"
    r"|(?<!\\)\b(?:times|almost|nearly|over|under|below|above|beyond|far from)\W{1,3}(?=\d)",
    re.IGNORECASE,
)
EQUALS = re.compile(r"\b(?:is|are|equals)\b")
COMPUTED = re.compile(r"-\s?\(|√|sqrt|\\pi|π|\^|\b(?:log|ln|sin|cos|tan|exp)\b")
COMMA = re.compile(r"(?<=\d),(?=\d)")
POINT = re.compile(r"(?<=\d)\.(?=\d{3}(?!\d))")


@dataclass(frozen=True)
class NumberReading:
    """The format and tolerances of a task's numbers."""

    form: str | None = None
    percent: bool = False
    decimal_comma: bool = False
    absolute: Fraction | None = None
    relative: Fraction | None = None

    def equal(self, answer: Fraction, expected: Fraction) -> bool:
        """Equal within the task's tolerances; by default whole numbers exactly and others to a millionth."""
        if self.absolute is None and self.relative is None:
            return same_number(answer, expected)
        allowed = max(self.absolute or Fraction(0), (self.relative or Fraction(0)) * abs(expected))
        return abs(answer - expected) <= allowed


def plain(text: str, reading: NumberReading) -> str:
    """Normalise minus signs, fractions, powers of ten and decimal marks."""
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
    """The only number in a statement; None if there are others. In an equation, the one after the last `=` or "is"."""
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
    """Whether the number has the task's `form`: a `fraction` in lowest terms, or a `decimal`."""
    if form == "fraction":
        lowest = f"{abs(value.numerator)}/{value.denominator}"
        return match.group().replace(" ", "").lstrip("-+") in (lowest, lowest.removesuffix("/1"))
    return form is None or match["below"] is None


def _stands_alone(text: str, match: re.Match[str]) -> bool:
    """Whether the text has no other digit, and no letter directly after the number as in `2x`."""
    behind = text[match.end() :]
    return not behind[:1].isalnum() and not any(char.isdigit() for char in text[: match.start()] + behind)


class Quantity(NamedTuple):
    """An amount in the base unit of a dimension, with the size and name of the unit it was written in."""

    dimension: str
    value: Fraction
    unit: Fraction
    name: str


# dimension: factor to its base unit, and the unit's names
TABLE: dict[str, dict[str, str]] = {
    "length": {
        "1": "m metre meter",
        "1000": "km kilometre kilometer",
        "1/10": "dm decimetre decimeter",
        "1/100": "cm centimetre centimeter",
        "1/1000": "mm millimetre millimeter",
        "1/1000000": "µm um micrometre micrometer micron",
        "1/1000000000": "nm nanometre nanometer",
        "1609.344": "mi mile",
        "0.9144": "yd yard",
        "0.3048": "ft foot feet",
        "0.0254": "in inch inches",
    },
    "time": {
        "1": "s sec second",
        "1/1000": "ms millisecond",
        "1/1000000": "µs us microsecond",
        "60": "min minute",
        "3600": "h hr hour",
        "86400": "d day",
        "604800": "week wk",
    },
    "mass": {
        "1": "kg kilogram kilogramme kilo",
        "1/1000": "g gram gramme",
        "1/1000000": "mg milligram",
        "1/1000000000": "µg ug microgram",
        "1000": "t tonne",
        "0.45359237": "lb pound",
        "0.028349523125": "oz ounce",
    },
    "volume": {
        "1": "l L litre liter",
        "1/1000": "ml mL millilitre milliliter cm3 cm^3 cm³",
        "1/100": "cl centilitre centiliter",
        "1000": "m3 m^3 m³",
        "3.785411784": "gal gallon",
    },
    "area": {
        "1": "m2 m^2 m²",
        "1000000": "km2 km^2 km²",
        "1/10000": "cm2 cm^2 cm²",
        "10000": "ha hectare",
        "4046.8564224": "acre",
    },
    "speed": {"1": "m/s", "5/18": "km/h kph kmh", "0.44704": "mph mi/h", "0.3048": "ft/s"},
    "data": {
        "8": "B byte",
        "1": "bit b",
        "8000": "kB KB kilobyte",
        "8000000": "MB megabyte",
        "8000000000": "GB gigabyte",
        "8000000000000": "TB terabyte",
        "8192": "KiB kibibyte",
        "8388608": "MiB mebibyte",
        "8589934592": "GiB gibibyte",
        "8796093022208": "TiB tebibyte",
        "1000000": "Mb Mbit megabit",
        "1000000000": "Gb Gbit gigabit",
    },
    "energy": {
        "1": "J joule",
        "1000": "kJ kilojoule",
        "1000000": "MJ megajoule",
        "3600": "Wh",
        "3600000": "kWh",
        "4.184": "cal calorie",
        "4184": "kcal kilocalorie",
    },
    "power": {"1": "W watt", "1000": "kW kilowatt", "1000000": "MW megawatt"},
    "pressure": {"1": "Pa pascal", "100": "hPa", "1000": "kPa kilopascal", "100000": "bar", "101325": "atm"},
    "angle": {"1": "deg degree °"},
    "USD": {"1": "$ USD US$ dollar", "1/100": "¢ cent"},
    "EUR": {"1": "€ EUR euro"},
    "GBP": {"1": "£ GBP", "1/100": "pence"},
    "JPY": {"1": "¥ JPY yen"},
    "CHF": {"1": "CHF"},
    "INR": {"1": "₹ INR rupee"},
}
TEMPERATURES = {"°C": "C", "C": "C", "celsius": "C", "°F": "F", "F": "F", "fahrenheit": "F", "K": "K", "kelvin": "K"}
SHIFTS = {
    "C": (Fraction(1), Fraction("273.15")),
    "F": (Fraction(5, 9), Fraction("459.67") * 5 / 9),
    "K": (Fraction(1), Fraction(0)),
}

UNIT = re.compile(
    r"\s?-?\s?(?:\\?(?:text|mathrm)\{)?\s?((?:degrees?\s)?[^\W\d_]+[²³]?(?:\^?[23](?!\d))?(?:/[a-z]+)?|[°$€£¥₹¢][CF]?)\}?"
)
CIRCLE = re.compile(r"(?:\^?\{?\\circ\}?|°)\s?")
GLUED = re.compile(r"(?<=\d[hd])(?=\d)|(?<=\dmin)(?=\d)")  # 1h30min
PER = re.compile(r"\s+per\s+(h|s)(?:ours?|ec|econds?)?\b", re.IGNORECASE)
OTHER_PER = re.compile(r"\bper\b", re.IGNORECASE)
DEGREES = re.compile(r"degrees?\s", re.IGNORECASE)
PREFIX = re.compile(r"(US\$|[$€£¥₹]|USD|EUR|GBP|JPY|CHF|INR)\s?$")
JOIN = re.compile(r"\s*(?:,|and)?\s*")


def _names() -> dict[str, tuple[str, Fraction]]:
    names = {}
    for dimension, units in TABLE.items():
        for factor, spellings in units.items():
            for name in spellings.split():
                names[name] = (dimension, Fraction(factor))
                if len(name) > 3 and name.isalpha():
                    names[name + "s"] = names[name]
    for name in ("hrs", "mins", "secs", "lbs", "kgs", "days"):
        names[name] = names[name.removesuffix("s")]
    return names


NAMES = _names()


def unit_of(name: str) -> tuple[str, Fraction] | None:
    """Dimension and factor of a unit. Case only matters if two units differ by it."""
    name = name.replace("μ", "µ")
    return NAMES.get(name) or NAMES.get(name.lower())


def quantity(value: Fraction, name: str) -> Quantity | None:
    """Convert an amount of a unit to the base unit of its dimension."""
    name = DEGREES.sub("", name)
    scale = TEMPERATURES.get(name) or TEMPERATURES.get(name.lower())
    if scale is not None:
        factor, shift = SHIFTS[scale]
        return Quantity("temperature", value * factor + shift, factor, scale)
    unit = unit_of(name)
    return None if unit is None else Quantity(unit[0], value * unit[1], unit[1], str(unit[1]))


def quantity_in(text: str, reading: NumberReading, unit: str | None = None) -> Quantity | None:
    """The only quantity in a statement: `3.5 km`, `$5`, `1 h 30 min`, `90 min (1.5 h)`; None if there are others.

    `unit` is the unit of a number without one.
    """
    if len(text) > MAX_TEXT:
        return None
    text = PER.sub(r"/\1", GLUED.sub(" ", CIRCLE.sub("°", plain(text, reading))))
    if OTHER_PER.search(text):
        return None
    parts: list[Quantity] = []
    end_of_last, other_text = 0, ""
    for match in NUMBER.finditer(text):
        if match.start() < end_of_last:  # part of the unit, as in m^2
            continue
        value = number_at(match, reading)
        start, name, after = match.start(), unit, match.end()
        before, behind = PREFIX.search(text[:start]), UNIT.match(text, after)
        if before is not None:
            name, start = before.group(1), before.start()
        elif behind is not None and (unit is None or quantity(Fraction(1), behind.group(1)) is not None):
            name, after = behind.group(1), behind.end()
        part = quantity(value, name) if value is not None and name is not None else None
        if part is None:
            return None
        previous = parts[-1] if parts else None
        if previous is not None and _continues(previous, part) and JOIN.fullmatch(text[end_of_last:start]):
            added = part.value if previous.value >= 0 else -part.value
            parts[-1] = part._replace(value=previous.value + added, name="several")
        else:
            parts.append(part)
        other_text += text[end_of_last:start]
        end_of_last = after
    is_single = len({part[:2] for part in parts}) == 1 and not any(map(str.isdigit, other_text + text[end_of_last:]))
    return parts[0] if is_single else None


def _continues(previous: Quantity, part: Quantity) -> bool:
    """Whether a part continues the previous one, as `30 min` after `1 h`: less than one of a larger unit."""
    return (
        previous.dimension == part.dimension != "temperature"
        and part.unit < previous.unit
        and 0 <= part.value < previous.unit
    )


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


def date_in(text: str, day_first: bool | None = None) -> date | None:
    """The only date in a statement; None if it has others or any more digits."""
    if len(text) > MAX_TEXT or ANOTHER_DAY.search(text):
        return None
    dates, other_text = [], text
    for form in FORMS:
        for match in form.finditer(text):
            dates.append(_date(match.groupdict(), day_first))
            other_text = other_text.replace(match.group(), " ")
    if len(set(dates)) != 1 or any(char.isdigit() for char in other_text):
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


Json = dict[str, Any]

KINDS = ("number", "unit", "date", "text", "set", "list")
ENCLOSED = re.compile(
    r"(?:[A-Za-z]\w{0,9}\s?(?:=|∈|\\in)\s?)?\s?(?:\\left)?(?:\\?\{|\[|\()(.*?)(?:\\right)?(?:\\?\}|\]|\))", re.DOTALL
)
LAST_COMMA = re.compile(r",?\s+(?:and|&)\s+")
OR = re.compile(r",?\s+or\s+")
NOTHING = ("", "none", "empty", "empty set", "∅", "\\emptyset")


@dataclass(frozen=True)
class Kind:
    """`read` parses a text to a value or None; `equal` compares the answer's value with the expected one."""

    read: Callable[[str], Any]
    equal: Callable[[Any, Any], bool]
    order: Callable[[Any], Any] = str


def kind_of(task: Mapping[str, Any], name: str) -> Kind:
    """The kind of that name, with the task's settings."""
    reading = reading_of(task)
    if name == "number":
        return Kind(certain(lambda text: number_in(text, reading)), reading.equal, Fraction)
    if name == "unit":
        unit, only = known_unit(task, "unit"), known_unit(task, "only_unit")

        def read(text: str) -> Quantity | None:
            value = quantity_in(text, reading, unit and task["unit"])
            return value if value is None or only is None or value.name == only.name else None

        return Kind(
            certain(read),
            lambda answer, expected: same_quantity(answer, expected, reading),
            lambda value: (value.dimension, value.value),
        )
    if name == "date":
        day_first = flag(task, "day_first")
        return Kind(certain(lambda text: date_in(text, day_first)), lambda answer, expected: bool(answer == expected))
    if name == "text":
        return Kind(lambda text: words(text[:MAX_TEXT]) or None, lambda answer, expected: bool(answer == expected))
    raise TaskError(f'"kind" must be one of {", ".join(KINDS)}, not {name[:80]!r}')


def known_unit(task: Mapping[str, Any], name: str) -> Quantity | None:
    """One of the unit in a field of the task; None if the task does not have the field."""
    unit = task.get(name)
    quantity_of_one = quantity_in(f"1 {unit}", NumberReading()) if isinstance(unit, str) else None
    if unit is not None and quantity_of_one is None:
        raise TaskError(f'"{name}" must be a unit that is known here, not {str(unit)[:80]!r}')
    return quantity_of_one


def certain(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Wrap `read` to refuse hedged texts: "36 or 37", "at least 36", "not 36"."""
    return lambda text: None if len(text) > MAX_TEXT or UNCERTAIN.search(text) else read(text)


def same_quantity(answer: Quantity, expected: Quantity, reading: NumberReading) -> bool:
    """Compare in the unit of the expected quantity, which is also that of the task's `abs_tolerance`."""
    return answer.dimension == expected.dimension and reading.equal(
        answer.value / expected.unit, expected.value / expected.unit
    )


def reading_of(task: Mapping[str, Any]) -> NumberReading:
    """Read the format and tolerances of the task's numbers."""
    form = task.get("form")
    if form not in (None, "fraction", "decimal"):
        raise TaskError(f'"form" must be fraction or decimal, not {str(form)[:80]!r}')
    return NumberReading(
        form=form,
        percent=bool(flag(task, "percent")),
        decimal_comma=bool(flag(task, "decimal_comma")),
        absolute=tolerance(task, "abs_tolerance"),
        relative=tolerance(task, "rel_tolerance"),
    )


def flag(task: Mapping[str, Any], name: str) -> bool | None:
    """A field of the task that is true, false, or absent (None)."""
    value = task.get(name)
    if value is not None and not isinstance(value, bool):
        raise TaskError(f'"{name}" must be true or false, not {str(value)[:80]!r}')
    return value


def tolerance(task: Mapping[str, Any], name: str) -> Fraction | None:
    """A tolerance of the task, a number that is not negative."""
    if task.get(name) is None:
        return None
    value = value_of(str(need(task, name, (int, float, str), "a number that is not negative")))
    if value is None or value < 0:
        raise TaskError(f'"{name}" must be a number that is not negative, not {str(task[name])[:80]!r}')
    return value


def items_in(text: str, kind: Kind, *, ordered: bool) -> tuple[Any, ...] | None:
    """The items of `{1, 2, 3}`, `[a; b]`, `1, 2 and 3`: their values, in order for a list; None if one is invalid."""
    if len(text) > MAX_TEXT:
        return None
    enclosed = ENCLOSED.fullmatch(text.strip())
    inner = enclosed.group(1) if enclosed else text
    if words(inner) in NOTHING or inner.strip() in NOTHING:
        return ()
    if ";" in inner:
        parts = inner.split(";")
    else:
        joined = LAST_COMMA.sub(", ", inner)
        parts = (joined if ordered else OR.sub(", ", joined)).split(",")
    values = [kind.read(bare(part)) for part in parts]
    if any(value is None for value in values):
        return None
    return tuple(values) if ordered else tuple(sorted(set(values), key=kind.order))


def same_items(answer: tuple[Any, ...], expected: tuple[Any, ...], kind: Kind) -> bool:
    """Compare item by item. Sets are sorted, so equal numbers have the same place within any sensible tolerance."""
    return len(answer) == len(expected) and all(map(kind.equal, answer, expected))


def beside(value: Any) -> str:
    """A clearly different value of the same kind, as text."""
    if isinstance(value, Fraction):
        return str(value * 3 + 7) if value >= 0 else str(value * 3 - 7)
    if isinstance(value, date):
        return (value + timedelta(days=1) if value < date.max else value - timedelta(days=1)).isoformat()
    return "7 acres" if isinstance(value, Quantity) else f"{value} of Nowhere"
