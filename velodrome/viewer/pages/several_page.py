"""The page of three runs or more: a table of their numbers, and the tasks in which they differ most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from velodrome.viewer.pages.links import Address, Links, task_pair_address
from velodrome.viewer.pages.run_page import PATIENCE_S
from velodrome.viewer.viewed_file import ViewedFile

Json = dict[str, Any]

MOST_RUNS = 12  # at once
AT_ONCE = 100  # tasks on one page


def several_page(sources: Sequence[ViewedFile], address: Address) -> Json:
    """The values of the template."""
    result = sources[0].measurements.read("several", *sources, patience_s=PATIENCE_S)
    slugs = [source.slug for source in sources]
    compared = result.value
    values: Json = {
        "runs": [_run(letter, source, slugs) for letter, source in zip("ABCDEFGHIJKL", sources, strict=False)],
        "result": result,
        "compared": compared,
        "choose": Links("").runs(run=slugs),
    }
    if not compared:
        return values
    tasks = compared["tasks"]
    since = address.since if address.since < len(tasks) else 0
    end = min(since + AT_ONCE, len(tasks))

    def at(place: int) -> str:
        return f"{Links('').compare_several(slugs, since=place)}#tasks"

    return values | {
        "level": f"{compared['level']:.0%}",
        "tasks": [_task(each, sources) for each in tasks[since:end]],
        "tasks_shown": (since + 1, end, len(tasks)),
        "tasks_previous": at(max(since - AT_ONCE, 0)) if since else None,
        "tasks_next": at(end) if end < len(tasks) else None,
        "unlisted": compared["differ"] - len(tasks),
    }


def _run(letter: str, source: ViewedFile, slugs: Sequence[str]) -> Json:
    others = [slug for slug in slugs if slug != source.slug]
    without = Links("").compare_several(others)
    return {"letter": letter, "name": source.name, "href": Links(source.slug).run(), "without": without}


def _task(task: Json, sources: Sequence[ViewedFile]) -> Json:
    """A task with its pass rate in every run. Its link opens the worst and the best run as a pair."""
    rates = task["rates"]
    best, worst = rates.index(max(rates)), rates.index(min(rates))
    cells = [
        {"rate": rate, "tried": tried, "href": Links(source.slug).task(task["task"]), "sign": _sign(at, best, worst)}
        for at, (rate, tried, source) in enumerate(zip(rates, task["tried"], sources, strict=True))
    ]
    href = task_pair_address(sources[worst].slug, sources[best].slug, task["task"])
    return {"task": task["task"], "prompt": task["prompt"], "href": href, "cells": cells}


def _sign(at: int, best: int, worst: int) -> str:
    return "best" if at == best else "worst" if at == worst else ""
