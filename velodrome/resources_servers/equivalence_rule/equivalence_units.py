"""Quantities: a number with a unit, converted exactly. The table is small; currencies are labels, not rates."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

from velodrome.resources_servers.equivalence_rule.equivalence_numbers import (
    MAX_TEXT,
    NUMBER,
    NumberReading,
    number_at,
    plain,
)


class Quantity(NamedTuple):
    """So much of the base unit of a dimension; the size and the name of the unit it was written in."""

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
    """Dimension and factor of a unit. The case counts only where two units differ by it."""
    name = name.replace("μ", "µ")
    return NAMES.get(name) or NAMES.get(name.lower())


def quantity(value: Fraction, name: str) -> Quantity | None:
    """So much of a unit, in the base unit of its dimension."""
    name = DEGREES.sub("", name)
    scale = TEMPERATURES.get(name) or TEMPERATURES.get(name.lower())
    if scale is not None:
        factor, shift = SHIFTS[scale]
        return Quantity("temperature", value * factor + shift, factor, scale)
    unit = unit_of(name)
    return None if unit is None else Quantity(unit[0], value * unit[1], unit[1], str(unit[1]))


def quantity_in(text: str, reading: NumberReading, unit: str | None = None) -> Quantity | None:
    """The one quantity that a statement holds: `3.5 km`, `$5`, `1 h 30 min`, `90 min (1.5 h)`.

    `unit` is the unit of a number that has none.
    """
    if len(text) > MAX_TEXT:
        return None
    text = PER.sub(r"/\1", GLUED.sub(" ", CIRCLE.sub("°", plain(text, reading))))
    if OTHER_PER.search(text):
        return None
    parts: list[Quantity] = []
    end, beside = 0, ""
    for match in NUMBER.finditer(text):
        if match.start() < end:  # of the unit, as in m^2
            continue
        value = number_at(match, reading)
        start, name, after = match.start(), unit, match.end()
        before, behind = PREFIX.search(text[:start]), UNIT.match(text, after)
        if before is not None:
            name, start = before.group(1), before.start()
        elif behind is not None and (unit is None or quantity(Fraction(1), behind.group(1)) is not None):
            name, after = behind.group(1), behind.end()
        found = quantity(value, name) if value is not None and name is not None else None
        if found is None:
            return None
        last = parts[-1] if parts else None
        if last is not None and _continues(last, found) and JOIN.fullmatch(text[end:start]):
            more = found.value if last.value >= 0 else -found.value
            parts[-1] = found._replace(value=last.value + more, name="several")
        else:
            parts.append(found)
        beside += text[end:start]
        end = after
    same = len({part[:2] for part in parts}) == 1 and not any(map(str.isdigit, beside + text[end:]))
    return parts[0] if same else None


def _continues(last: Quantity, found: Quantity) -> bool:
    """`30 min` after `1 h`: a smaller unit, and less than one of the larger."""
    return (
        last.dimension == found.dimension != "temperature" and found.unit < last.unit and 0 <= found.value < last.unit
    )
