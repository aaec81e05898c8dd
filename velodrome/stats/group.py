"""One group of rollouts, and what is known of it: sums, never rows.

Of each field its spread, and its sum in each task; of each task how many tries passed and what they answered.
docs/metrics.md defines every number.
"""

from __future__ import annotations

from array import array
from bisect import insort
from collections.abc import Collection, Iterator, Sequence
from math import isfinite
from typing import Annotated, Any, NamedTuple

import orjson
from pydantic import AfterValidator, Field

from velodrome.records.facts import RowFacts
from velodrome.records.outcomes import OUTCOMES
from velodrome.records.task import hashed
from velodrome.settings.model import Settings
from velodrome.settings.values import Counts, Names, Text
from velodrome.stats.draws import MOST_VOTES, Ballot, ballot, majority_at_k, pass_hat_k
from velodrome.stats.exact import Moments, TaskSums, mean_of
from velodrome.stats.first_names import FirstNames
from velodrome.stats.intervals import Interval, mean_interval, range_of
from velodrome.stats.metrics import PASS_REWARD, largest_k, pass_at_k, sizes
from velodrome.stats.numbers import COUNTS, TIMES
from velodrome.timing.percentiles import Quantiles

Json = dict[str, Any]

MOST_FIELDS = 1000
_MOST_DISTINCT = 4096
_ANSWER = 2**62 - 1  # the bits of an answer in a vote, which is a repeat, an answer, and whether it passed
_RATES = (("pass@", pass_at_k), ("pass^", pass_hat_k))


def _level(value: float) -> float:
    if value and not 0.5 <= value <= 0.999:
        raise ValueError(f"expected a share from 0.5 to 0.999, such as 0.95, or 0 for none, not {value!r:.40}")
    return value


class MetricsSettings(Settings):
    """What to compute."""

    by: Text | None = Field(
        None,
        title="FIELD",
        description="agent, task, status, outcome, or any field of the rows (info.level reaches inside)",
    )
    fields: Names | None = Field(None, title="NAMES", description="only these numbers, and the reward (reward,tokens)")
    ks: Counts | None = Field(
        None,
        alias="k",
        title="1,2,4",
        description="the k of pass@k, pass^k, majority@k [1, 2, 4, … and the largest that half of the tasks have]",
    )
    pass_at: float = Field(PASS_REWARD, title="REWARD", description="the reward from which a rollout passes")
    level: Annotated[float, AfterValidator(_level)] = Field(
        0.95, alias="ci", title="LEVEL", description="the level of confidence intervals, 0 for none"
    )


class Measure(NamedTuple):
    """A mean, and what its interval comes from: the value of each task by its place, and the weight of that task."""

    mean: float
    values: dict[int, float]
    weights: Sequence[int]
    share_of: Interval | None = None  # the two values that rollouts have, or the bounds of a rate
    constant: bool = False  # every rollout has the same number
    within: Interval | None = None  # where its true mean is

    def interval(self, level: float) -> Interval | None:
        values = list(self.values.values())
        return mean_interval(values, self.weights, level, share_of=self.share_of, within=self.within)


class Cell:
    """One field of one group: how its numbers are spread, their sums, and the sum in each task."""

    def __init__(self) -> None:
        self.spread = Quantiles(exact=_MOST_DISTINCT)
        self._moments = Moments()
        self._tasks = TaskSums()

    def add(self, value: float, place: int) -> None:
        self._tasks.add(value, place)
        self._moments.add(value)
        self.spread.add(value)

    def measure(self, name: str) -> Measure:
        """The mean over rollouts. A reward that is always 0 or always 1 could have been the other."""
        spread, distinct = self.spread, self.spread.distinct
        share_of = None
        if name == "reward" and spread.low == spread.high and spread.low in (0.0, 1.0):
            share_of = (0.0, 1.0)
        elif distinct is not None and len(distinct) == 2:
            share_of = (spread.low, spread.high)
        weights = [count for count in self._tasks.counts if count]
        constant = spread.low == spread.high
        amount = name in TIMES or name in COUNTS
        within = range_of(spread.low, spread.high, amount=amount)
        return Measure(self._moments.mean or 0.0, self._tasks.means(), weights, share_of, constant, within)

    def summary(self, name: str, level: float) -> Json:
        interval = self.measure(name).interval(level)
        numbers = {
            "mean": self._moments.mean,
            "std": self._moments.std,
            "min": self.spread.low,
            "median": self.spread.quantile(0.5),
            "max": self.spread.high,
            **_ends(interval),
        }
        known = {each: value if value is not None and isfinite(value) else None for each, value in numbers.items()}
        return {"n": self.spread.count, **known, "median_error": self.spread.error}


class RolloutGroup:
    """Running sums over the rollouts of one group. The order they come in makes no difference."""

    def __init__(self, settings: MetricsSettings) -> None:
        self._settings = settings
        self.rows = 0
        self.deferred = 0
        self.incomplete = 0
        self.outcomes = dict.fromkeys(OUTCOMES, 0)
        self.tasks: dict[str, int] = {}
        self.cells = FirstNames(MOST_FIELDS, Cell, field_order)
        self.tried = array("i")  # by place: of tasks, and of rows without a key, which are each their own
        self.passed = array("i")
        self._votes: list[list[int]] = []

    def add(self, facts: RowFacts, numbers: dict[str, float], answer: int) -> None:
        self.rows += 1
        self.deferred += facts.deferred
        self.incomplete += facts.status == "incomplete"
        self.outcomes[facts.outcome] += 1
        place = self._place(facts.task)
        reward = numbers.get("reward")
        if facts.task is not None and reward is not None:
            passed = reward >= self._settings.pass_at
            self.tried[place] += 1
            self.passed[place] += passed
            votes = self._votes[place]
            insort(votes, facts.repeat << 64 | answer << 1 | passed)  # of many, those of the first repeats count
            del votes[MOST_VOTES:]
        for name, value in numbers.items():
            cell = self.cells.of(name)
            if cell is not None:
                cell.add(value, place)

    def _place(self, task: str | None) -> int:
        new = len(self.tried)
        place = new if task is None else self.tasks.setdefault(task, new)
        if place == new:
            self.tried.append(0)
            self.passed.append(0)
            self._votes.append([])
        return place

    def keep_only(self, averaged: Collection[str]) -> None:
        """Drop fields of tasks, which are not `averaged`."""
        for name in [name for name in self.cells if name not in averaged]:
            del self.cells[name]

    def ballot(self, place: int) -> Ballot:
        """How the tries of a task voted; of very many, the first repeats."""
        return ballot((vote >> 1 & _ANSWER, bool(vote & 1)) for vote in self._votes[place])

    def ks(self, requested: Sequence[int] | None) -> list[int]:
        """Those requested, or 1, 2, 4, … and the largest that at least half of the tasks have."""
        return sizes(largest_k(self.tried)) if requested is None else sorted(set(requested))

    def rates(self, ks: Sequence[int]) -> Iterator[tuple[str, Measure]]:
        """pass@k, pass^k and majority@k, over the tasks that have k scored rollouts.

        With k = 1 all three are the same. Without a single answer there is no majority.
        """
        for k in ks:
            enough = [place for place, tried in enumerate(self.tried) if tried >= k]
            if not enough:
                continue
            pairs = {(self.tried[place], self.passed[place]) for place in enough}
            for name, rate in _RATES if k > 1 else _RATES[:1]:
                known = {pair: rate(*pair, k) for pair in pairs}
                yield f"{name}{k}", _rate({at: known[self.tried[at], self.passed[at]] for at in enough})
            if 1 < k <= MOST_VOTES:
                ballots = {place: self.ballot(place) for place in enough}
                if any(answers for answers, _ in ballots.values()):
                    yield f"majority@{k}", _rate({place: majority_at_k(votes, k) for place, votes in ballots.items()})

    def summary(self, ks: Sequence[int]) -> Json:
        level = self._settings.level
        summary: Json = {"rollouts": self.rows, "tasks": len(self.tasks)}
        counts = {"deferred": self.deferred, "incomplete": self.incomplete}
        summary |= {name: count for name, count in counts.items() if count}
        summary["outcomes"] = {name: count for name, count in self.outcomes.items() if count}
        names = sorted(self.cells, key=field_order)
        summary["fields"] = {name: self.cells[name].summary(name, level) for name in names}
        summary["rates"] = {
            name: {"tasks": len(rate.values), "value": rate.mean, **_ends(rate.interval(level))}
            for name, rate in self.rates(ks)
        }
        return summary


def _rate(values: dict[int, float]) -> Measure:
    """A rate: every task counts alike."""
    return Measure(mean_of(list(values.values())), values, [1] * len(values), (0.0, 1.0))


def field_order(name: str) -> tuple[bool, str]:
    """The reward first."""
    return name != "reward", name


def _ends(interval: tuple[float, float] | None) -> Json:
    return {"low": None, "high": None} if interval is None else {"low": interval[0], "high": interval[1]}


def answer_of(facts: RowFacts) -> int:
    """The answer a rollout votes for, as a number; 0 if it gives none.

    `extracted_answer` where the row has that field, else the final text; letter case, spaces and a full stop at the end
    make no difference.
    """
    answer = facts.row.get("extracted_answer", facts.answer)
    if answer is None:
        return 0
    text = " ".join(text_for(answer).split()).casefold().rstrip(".")
    return hashed(text) & _ANSWER | 1 if text else 0


def text_for(value: Any) -> str:
    """A JSON value as text: a text as it is, anything else as JSON."""
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except TypeError:
        return "(nested too deeply)"  # it can be read, but not written
