"""Trials and their file: a line per trial that has ended, whole or absent. A failed trial has a reason and no value."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from velodrome.records.appender import Appender
from velodrome.training.explain import written

TRIALS = "trials.jsonl"
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial: the values tried, and the mean of the metric over its runs, or why there is none."""

    trial: int
    values: Json
    value: float | None
    runs: list[Json]  # folder, seed and the metric of each
    reason: str | None = None

    @property
    def words(self) -> str:
        """The values as they are typed after `velo train RECIPE`."""
        return typed(self.values)

    def as_json(self) -> Json:
        return {**asdict(self), "words": self.words}


def typed(values: Json) -> str:
    """Values as `key=value` words."""
    return " ".join(shlex.quote(f"{name}={written(value)}") for name, value in values.items())


def read_trials(file: Appender) -> dict[int, Trial]:
    """The trials in a file by number. A damaged line is a trial to run again: at no cost, if its runs are there."""
    trials: dict[int, Trial] = {}
    for line in file.whole_lines():
        row = orjson.loads(line)
        row.pop("words", None)
        if row.keys() == Trial.__dataclass_fields__.keys():
            trials.setdefault(row["trial"], Trial(**row))
    return trials


def best_first(trials: Iterable[Trial], goal: str) -> list[Trial]:
    """Those with a value; equal ones in the order they were run."""
    sign = -1 if goal == "maximize" else 1
    return sorted((each for each in trials if each.value is not None), key=lambda each: sign * (each.value or 0.0))
