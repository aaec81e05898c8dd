"""The template environment of all pages: values are escaped, a missing name is an error, and numbers and times have one
format.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from math import isfinite
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from velodrome.timing.figures import duration
from velodrome.timing.report import clean
from velodrome.viewer.parts.safe_text import attribute, plain_line, visible

NONE = "–"
_UNITS = ("bytes", "KB", "MB", "GB", "TB")


@cache
def environment() -> Environment:
    """Templates and filters."""
    templates = Environment(
        loader=PackageLoader("velodrome.viewer"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[..., Any]] = {
        "duration": duration,
        "seconds": lambda value: NONE if _unknown(value) else duration(value * 1000),
        "clean": lambda value, longest=60: clean(str(value), longest=longest),
        "share": lambda value: NONE if value is None else f"{value:.1%}",
        "rate": lambda value: NONE if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.1f}",
        "count": count,
        "many": many,
        "number": number,
        "signed": signed,
        "size": size,
        "moment": moment,
        "day": day,
        "visible": lambda value: visible(str(value)),
        "line": lambda value, longest=200: plain_line(str(value), longest),
        "attribute": lambda value, longest=200: attribute(str(value), longest),
        "reward_kind": reward_kind,
        "place": lambda value: f"{value:.2f}".rstrip("0").rstrip("."),
    }
    templates.filters.update(filters)
    return templates


def page(template: str, **values: Any) -> str:
    """A page as text. `visible` replaced the characters that UTF-8 cannot encode."""
    return environment().get_template(template).render(**values)


def content_policy(**inline: str) -> str:
    """The policy of a page that carries its own `style` (and `script`) and loads nothing."""
    own = [f"{kind}-src 'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for kind, text in inline.items()]
    return "; ".join(("default-src 'none'", *own, "base-uri 'none'", "form-action 'none'"))


def _unknown(value: Any) -> bool:
    return not isinstance(value, int | float) or not isfinite(value)


def count(value: Any) -> str:
    """A whole number with thousands separators."""
    return NONE if _unknown(value) else f"{value:,.0f}"


def many(amount: float, noun: str) -> str:
    """`1 rollout`, `1,200 rollouts`."""
    return f"{count(amount)} {noun}{'' if amount == 1 else 's'}"


def number(value: Any) -> str:
    """A number with the digits that matter."""
    if _unknown(value):
        return NONE
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 1000:
        return f"{value:,.0f}" if abs(value) < 1e15 else f"{value:.3g}"
    return f"{value:.3f}".rstrip("0") if abs(value) >= 0.01 else f"{value:.2g}"


def signed(value: Any) -> str:
    """A difference, with its sign."""
    text = number(value)
    return f"+{text}" if not _unknown(value) and value > 0 else text.replace("-", "−")


def size(value: float) -> str:
    """Bytes in a readable unit."""
    if value == 1:
        return "1 byte"
    unit = 0
    while abs(value) >= 999.5 and unit < len(_UNITS) - 1:
        value /= 1000
        unit += 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 or value >= 99.95 else f"{value:.1f} {_UNITS[unit]}"


def moment(value: Any) -> Markup:
    """A time since 1970 as a date and an hour, in UTC."""
    if _unknown(value) or not 0 < value < 253402300800:
        return Markup(NONE)
    at = datetime.fromtimestamp(value, UTC)
    return Markup(f'<time datetime="{at:%Y-%m-%dT%H:%M:%SZ}">{at:%Y-%m-%d %H:%M:%S} UTC</time>')


def day(value: Any) -> Markup:
    """A time since 1970 as a date and the minute, in UTC, short for a table."""
    if _unknown(value) or not 0 < value < 253402300800:
        return Markup(NONE)
    at = datetime.fromtimestamp(value, UTC)
    return Markup(f'<time datetime="{at:%Y-%m-%dT%H:%M:%SZ}" title="{at:%H:%M:%S} UTC">{at:%Y-%m-%d %H:%M}</time>')


def reward_kind(value: Any) -> str:
    """The class for the colour of a reward: good, bad, or partly."""
    if _unknown(value):
        return "unknown"
    return "good" if value >= 1 else "bad" if value <= 0 else "partly"
