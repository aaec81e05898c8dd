"""One group of rollouts, kept as sums and not as rows.

Each field has its distribution and a sum per task; each task has its tries, its passes and its answers. docs/metrics.md
defines every number.
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
_ANSWER = 2**62 - 1  # the bits of the answer in a vote (repeat, answer, passed)
_RATES = (("pass@", pass_at_k), ("pass^", pass_hat_k))


def _level(value: float) -> float:
    if value and not 0.5 <= value <= 0.999:
        raise ValueError(f"expected a share from 0.5 to 0.999, such as 0.95, or 0 for none, not {value!r:.40}")
    return value


class MetricsSettings(Settings):
    """The settings of `velo metrics`: groups, fields, the k of rates, and levels."""

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
    """A mean, and the data of its interval: the value and the weight of each task, by place."""

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
    """One field of one group: the distribution of its numbers, their sum, and the sum of each task."""

    def __init__(self) -> None:
        self.distribution = Quantiles(exact=_MOST_DISTINCT)
        self._moments = Moments()
        self._tasks = TaskSums()

    def add(self, value: float, place: int) -> None:
        self._tasks.add(value, place)
        self._moments.add(value)
        self.distribution.add(value)

    def measure(self, name: str) -> Measure:
        """The mean over rollouts. A reward that is always 0 or always 1 could have been the other."""
        distribution, distinct = self.distribution, self.distribution.distinct
        share_of = None
        if name == "reward" and distribution.low == distribution.high and distribution.low in (0.0, 1.0):
            share_of = (0.0, 1.0)
        elif distinct is not None and len(distinct) == 2:
            share_of = (distribution.low, distribution.high)
        weights = [count for count in self._tasks.counts if count]
        constant = distribution.low == distribution.high
        amount = name in TIMES or name in COUNTS
        within = range_of(distribution.low, distribution.high, amount=amount)
        return Measure(self._moments.mean or 0.0, self._tasks.means(), weights, share_of, constant, within)

    def summary(self, name: str, level: float) -> Json:
        interval = self.measure(name).interval(level)
        numbers = {
            "mean": self._moments.mean,
            "std": self._moments.std,
            "min": self.distribution.low,
            "median": self.distribution.quantile(0.5),
            "max": self.distribution.high,
            **_ends(interval),
        }
        finite = {each: value if value is not None and isfinite(value) else None for each, value in numbers.items()}
        return {"n": self.distribution.count, **finite, "median_error": self.distribution.error}


class RolloutGroup:
    """Running sums over the rollouts of one group, which may be added in any order."""

    def __init__(self, settings: MetricsSettings) -> None:
        self._settings = settings
        self.rows = 0
        self.deferred = 0
        self.incomplete = 0
        self.outcomes = dict.fromkeys(OUTCOMES, 0)
        self.tasks: dict[str, int] = {}
        self.cells = FirstNames(MOST_FIELDS, Cell, field_order)
        self.tried = array("i")  # by place: one per task, and one per row without a key
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
            insort(votes, facts.repeat << 64 | answer << 1 | passed)  # sorted, so that the first repeats are kept
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

    def keep_only(self, fields: Collection[str]) -> None:
        """Drop all other fields."""
        for name in [name for name in self.cells if name not in fields]:
            del self.cells[name]

    def ballot(self, place: int) -> Ballot:
        """The votes of a task's tries; of more than `MOST_VOTES`, those of the first repeats."""
        return ballot((vote >> 1 & _ANSWER, bool(vote & 1)) for vote in self._votes[place])

    def ks(self, requested: Sequence[int] | None) -> list[int]:
        """The requested ks, or 1, 2, 4, … and the largest that at least half of the tasks have."""
        return sizes(largest_k(self.tried)) if requested is None else sorted(set(requested))

    def rates(self, ks: Sequence[int]) -> Iterator[tuple[str, Measure]]:
        """pass@k, pass^k and majority@k, over the tasks that have k scored rollouts.

        With k = 1 all three are the same. Without a single answer there is no majority.
        """
        for k in ks:
            places = [place for place, tried in enumerate(self.tried) if tried >= k]
            if not places:
                continue
            pairs = {(self.tried[place], self.passed[place]) for place in places}
            for name, rate in _RATES if k > 1 else _RATES[:1]:
                rate_of_pair = {pair: rate(*pair, k) for pair in pairs}
                yield f"{name}{k}", _rate({at: rate_of_pair[self.tried[at], self.passed[at]] for at in places})
            if 1 < k <= MOST_VOTES:
                ballots = {place: self.ballot(place) for place in places}
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
    """A rate, with equal weights of tasks."""
    return Measure(mean_of(list(values.values())), values, [1] * len(values), (0.0, 1.0))


def field_order(name: str) -> tuple[bool, str]:
    """The reward first."""
    return name != "reward", name


def _ends(interval: tuple[float, float] | None) -> Json:
    return {"low": None, "high": None} if interval is None else {"low": interval[0], "high": interval[1]}


def answer_of(facts: RowFacts) -> int:
    """A hash of the answer that a rollout votes for; 0 if it has no answer.

    The answer is `extracted_answer` if the row has that field, else the final text. Letter case, spaces and a final
    full stop are ignored.
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
