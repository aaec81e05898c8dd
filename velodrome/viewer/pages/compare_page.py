"""The page of two runs: their metrics side by side, the confidence of each difference, and the tasks that flipped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from velodrome.index.pictures import quoted
from velodrome.stats.metrics_text import setting_text
from velodrome.viewer.pages.links import Address, Links, task_pair_address
from velodrome.viewer.pages.run_page import PATIENCE_S
from velodrome.viewer.parts.render import number
from velodrome.viewer.runs.known_runs import KnownRun
from velodrome.viewer.viewed_file import ViewedFile

Json = dict[str, Any]

FLIPS = 200  # on one page
_MOST_FIELDS = 80
_MOST_SETTINGS = 100
_MOST_CHOICES = 200  # in one menu; with more runs, choose in the list of runs
_WHICH = (("all", ""), ("better", "better"), ("worse", "worse"))


def compare_page(runs: Sequence[KnownRun], a: ViewedFile, b: ViewedFile, address: Address) -> Json:
    """The values of the template. `only` filters the flips, `since` is the offset of the first."""
    only = address.only if address.only in ("better", "worse") else ""
    result = a.measurements.read("compare", a, b, patience_s=PATIENCE_S)
    values: Json = {
        "a": a,
        "b": b,
        "choices": runs if len(runs) <= _MOST_CHOICES else [],
        "choose": Links("").runs(run=[a.slug, b.slug]) if len(runs) > 2 else None,
        "result": result,
        "compared": result.value,
        "which": [(label, _at(a, b, each), each == only) for label, each in _WHICH],
    }
    if result.value:
        values |= _flips(result.value, a, b, only, address.since)
        values |= {
            "level": f"{result.value.get('level', 0.95):.0%}",
            "paired": any(each.get("paired") for each in result.value["fields"]),
            "settings": _settings(result.value.get("settings")),
            "fields": _fields(result.value["fields"][:_MOST_FIELDS], result.value),
        }
    return values


def _settings(settings: Sequence[Json] | None) -> list[tuple[str, str, str]] | None:
    """The settings that differ between the run files; None if a run has no run file."""
    if settings is None:
        return None
    return [(each["name"], setting_text(each["a"]), setting_text(each["b"])) for each in settings[:_MOST_SETTINGS]]


def _at(a: ViewedFile, b: ViewedFile, only: str, since: int = 0) -> str:
    return f"{Links('').compare(a=a.slug, b=b.slug, only=only, since=since)}#flips"


def _flips(compared: Json, a: ViewedFile, b: ViewedFile, only: str, since: int) -> Json:
    """A page of the flipped tasks. The comparison counts all of them and lists a bounded number."""
    flips = [each for each in compared["flips"] if _is_shown(each, only)]
    flipped = compared["flipped"]
    total = {"better": flipped["to_pass"], "worse": flipped["to_fail"]}.get(only, sum(flipped.values()))
    since = since if since < len(flips) else 0
    end = min(since + FLIPS, len(flips))
    return {
        "flips": [_flip(each, a, b) for each in flips[since:end]],
        "flips_total": total,
        "flips_shown": (since + 1, end, len(flips)),
        "flips_unlisted": total - len(flips),
        "flips_previous": _at(a, b, only, max(since - FLIPS, 0)) if since else None,
        "flips_next": _at(a, b, only, end) if end < len(flips) else None,
    }


def _is_shown(flip: Json, only: str) -> bool:
    better = flip["b_rate"] > flip["a_rate"]
    return not only or better == (only == "better")


def _flip(flip: Json, a: ViewedFile, b: ViewedFile) -> Json:
    """A flipped task, with links to its page and its rollouts in both runs."""
    task, q = flip["task"], f"task={quoted(flip['task'])}"
    links = {"href": task_pair_address(a.slug, b.slug, task)}
    for side, source in (("a", a), ("b", b)):
        links[f"{side}_href"] = Links(source.slug).task(task)
        links[f"{side}_rollouts"] = Links(source.slug).rollouts(q=q)
    return {**flip, **links}


def _fields(fields: Sequence[Json], compared: Json) -> list[Json]:
    """Each field with whether its difference is significant, and the mean over all rollouts if that differs."""
    return [
        {
            **each,
            "sure": each["low"] is not None and (each["low"] > 0 or each["high"] < 0),
            **{f"{side}_overall": _other_mean(each, compared, side) for side in "ab"},
        }
        for each in fields
    ]


def _other_mean(field: Json, compared: Json, side: str) -> float | None:
    """The mean on the page of the run, over all its rollouts, if it differs from the mean over common tasks."""
    here, overall = field[side], compared[side].get(field["name"])
    if not isinstance(here, int | float) or not isinstance(overall, int | float):
        return None
    return None if number(here) == number(overall) else overall  # equal as shown
