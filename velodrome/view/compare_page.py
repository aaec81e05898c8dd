"""The page of two runs: their metrics side by side, how sure each difference is, and the tasks that flipped."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

from markupsafe import Markup

from velodrome.view.links import Served
from velodrome.view.run_page import PATIENCE_S
from velodrome.view.source import Source

Json = dict[str, Any]

_MOST_FLIPS = 200
_MOST_FIELDS = 80
_WHICH = (("all", ""), ("better", "better"), ("worse", "worse"))


def compare_page(sources: Sequence[Source], a: Source, b: Source, only: str) -> Json:
    """What the template needs."""
    result = a.facts.ask("compare", a.path, b.path, patience_s=PATIENCE_S)
    found: Json = {
        "a": a,
        "b": b,
        "choices": sources,
        "result": result,
        "compared": result.value,
        "level": "95%",
        "paired": False,
        "fields": [],
        "flips": [],
        "flips_total": 0,
        "flips_more": 0,
        "which": [
            (label, f"{Served('').compare(a=a.slug, b=b.slug, only=each)}#flips", each == only)
            for label, each in _WHICH
        ],
    }
    if result.value:
        flips = [each for each in result.value["flips"] if _wanted(each, only)]
        found |= {
            "level": f"{result.value.get('level', 0.95):.0%}",
            "paired": any(each.get("paired") for each in result.value["fields"]),
            "fields": _fields(result.value["fields"]),
            "flips": [_flip(each, a, b) for each in flips[:_MOST_FLIPS]],
            "flips_total": len(flips),
            "flips_more": max(len(flips) - _MOST_FLIPS, 0),
        }
    return found


def _wanted(flip: Json, only: str) -> bool:
    better = flip["b_rate"] > flip["a_rate"]
    return only not in ("better", "worse") or better == (only == "better")


def _flip(flip: Json, a: Source, b: Source) -> Json:
    return {**flip, "a_href": Served(a.slug).task(flip["task"]), "b_href": Served(b.slug).task(flip["task"])}


def _fields(fields: Sequence[Json]) -> list[Json]:
    return [
        {**each, "sure": _sure(each), "picture": Markup(interval(each["difference"], each["low"], each["high"]))}
        for each in fields[:_MOST_FIELDS]
    ]


def _sure(each: Json) -> bool:
    return each["low"] is not None and (each["low"] > 0 or each["high"] < 0)


def interval(difference: float | None, low: float | None, high: float | None) -> str:
    """A difference and how far it may be off, about zero in the middle. The numbers stand beside it as text."""
    if difference is None or low is None or high is None or not all(map(isfinite, (difference, low, high))):
        return ""
    widest = max(abs(low), abs(high), abs(difference)) or 1.0

    def at(value: float) -> str:
        return f"{50 + 46 * value / widest:.2f}%"

    sure = " sure" if low > 0 or high < 0 else ""
    return (
        f'<svg class="interval{sure}" width="100%" height="16" aria-hidden="true">'
        '<line class="zero" x1="50%" x2="50%" y1="0" y2="16"/>'
        f'<line class="line" x1="{at(low)}" x2="{at(high)}" y1="8" y2="8"/>'
        f'<circle class="point" cx="{at(difference)}" cy="8" r="4"/></svg>'
    )
