"""The settings of two runs, from their run files, and the differences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from velodrome.errors import InputError
from velodrome.records.jsonl import open_regular
from velodrome.records.rollout import beside

Json = dict[str, Any]

MOST_SETTINGS = 1_000
_OF_A_RUN = ("input", "limit", "repeats", "stopped")
_DEEPEST = 20


def settings_that_differ(a: Sequence[Path], b: Sequence[Path]) -> list[Json] | None:
    """Each setting with both values; None if a run has no run file. Of several shards, the first run file counts."""
    settings_a, settings_b = _settings(a), _settings(b)
    if settings_a is None or settings_b is None:
        return None
    names = [name for name in dict.fromkeys((*settings_a, *settings_b)) if settings_a.get(name) != settings_b.get(name)]
    return [{"name": name, "a": settings_a.get(name), "b": settings_b.get(name)} for name in names[:MOST_SETTINGS]]


def _settings(paths: Sequence[Path]) -> Json | None:
    for path in paths:
        try:
            with open_regular(beside(path, "run.json")) as file:
                record = orjson.loads(file.read())
        except (OSError, InputError, orjson.JSONDecodeError):
            continue
        if isinstance(record, dict):
            return dict(_parts(record))
    return None


def _parts(record: Json) -> Iterator[tuple[str, Any]]:
    """The recipe, the request of the last run, and the versions."""
    recipe, runs = record.get("recipe"), record.get("runs")
    if isinstance(recipe, dict):
        yield from _leaves(recipe.get("instances"), "")
        yield from _leaves({name: value for name, value in recipe.items() if name != "instances"}, "")
    last = runs[-1] if isinstance(runs, list) and runs else None
    if isinstance(last, dict):
        yield from ((name, last[name]) for name in _OF_A_RUN if last.get(name) is not None)
    yield from _leaves(record.get("versions"), "versions")


def _leaves(value: Any, where: str, depth: int = 0) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and depth < _DEEPEST:
        for name, below in value.items():
            yield from _leaves(below, f"{where}.{name}" if where else name, depth + 1)
    elif value is not None:
        yield where, value
