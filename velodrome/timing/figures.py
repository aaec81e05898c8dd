"""How a number, a time, a share and a count are written, in every report and on every page."""

from __future__ import annotations

from math import isfinite


def figure(value: float | None, digits: int = 3, *, sign: bool = False) -> str:
    """A number with `digits` digits, or with commas: `0.123`, `13,512`, `2e+12`; `-` for none."""
    if value is None:
        return "-"
    plus = "+" if sign else ""
    return f"{value:{plus},.0f}" if 999.5 <= abs(value) < 1e12 else f"{value:{plus}.{digits}g}"


def counted(count: int, noun: str) -> str:
    """`1 rollout`, `1,200 rollouts`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def percent(share: float) -> str:
    """A share as a person reads it: `<0.1%`, `3.2%`, `45%`."""
    if 0 < share < 0.001:
        return "<0.1%"
    return f"{share:.1%}" if share < 0.0995 else f"{share:.0%}"


def duration(ms: float | None) -> str:
    """A time in the unit that suits its size: `40 µs`, `18.0 ms`, `790 ms`, `1.9 s`."""
    if ms is None or not isfinite(ms):
        return "-"
    size = abs(ms)
    if size >= 999.5:
        return f"{ms / 1000:.0f} s" if size >= 99_950 else f"{ms / 1000:.1f} s"
    if size >= 0.9995:
        return f"{ms:.0f} ms" if size >= 99.95 else f"{ms:.1f} ms"
    return f"{ms * 1000:.0f} µs" if size >= 0.0005 else "0 ms"


def long_duration(seconds: float) -> str:
    """A length of time in its two largest units: `1 h 20 min`."""
    whole = round(seconds)
    for name, length, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= length:
            return f"{whole // length} {name} {whole % length // part} {smaller}"
    return f"{whole} s"
