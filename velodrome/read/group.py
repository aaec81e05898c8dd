"""One group of rollouts, and what is known of it: sums, never rows.

Of each field its spread, and its sum in each task; of each task how many tries passed and what they answered.
docs/metrics.md defines every number.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import isfinite
from operator import itemgetter
from sys import byteorder
from typing import Any, NamedTuple

import orjson

from velodrome.read.draws import MOST_VOTES, Ballot, ballot, majority_at_k, pass_hat_k
from velodrome.read.intervals import MOST, Sampling
from velodrome.read.metrics import PASS_REWARD, largest_k, pass_at_k
from velodrome.read.numbers import final_text, numbers_of
from velodrome.read.spread import Spread
from velodrome.records.rollout import split_key

Json = dict[str, Any]

MOST_FIELDS = 1000
_VOTE_BYTES = 8
_RATES = (("pass@", pass_at_k), ("pass^", pass_hat_k))


@dataclass(frozen=True, slots=True)
class Settings:
    """What to compute. Without `ks` they are 1, 2, 4, … and the largest that at least half of the tasks have."""

    by: str | None = None
    ks: tuple[int, ...] | None = None
    pass_at: float = PASS_REWARD
    sampling: Sampling = field(default_factory=Sampling)
    fields: frozenset[str] | None = None


class Cell:
    """One field of one group: its spread, and its sum in each cluster of tasks."""

    __slots__ = ("counts", "spread", "sums")

    def __init__(self) -> None:
        self.spread = Spread()
        self.sums = array("d")
        self.counts = array("i")

    def extend(self, values: list[float], clusters: list[int]) -> None:
        """Count numbers, each in the cluster beside it."""
        self.spread.extend(values)
        short = max(clusters) + 1 - len(self.sums)
        if short > 0:
            self.sums.extend([0.0] * short)
            self.counts.extend([0] * short)
        sums, counts = self.sums, self.counts
        for cluster, value in zip(clusters, values, strict=True):
            sums[cluster] += value
            counts[cluster] += 1


class Rollout(NamedTuple):
    """What a group needs to know of one rollout."""

    task: str | None
    numbers: dict[str, float]
    answer: int
    deferred: bool
    incomplete: bool

    def only(self, name: str) -> Rollout:
        """The same with one number alone."""
        return self._replace(numbers={name: self.numbers[name]} if name in self.numbers else {})


def rollout_of(row: Json) -> Rollout:
    """The facts of a row as a `Tally` gives it back."""
    meta = row.get("meta") or {}
    return Rollout(
        split_key(meta["key"])[0] if meta.get("key") is not None else None,
        numbers_of(row),
        answer_of(row),
        meta.get("verification") == "deferred",
        (row.get("response") or {}).get("status") == "incomplete",
    )


class Group:
    """Running sums over the rollouts of one group.

    For the intervals tasks are dealt out to so many `clusters`; with None each is its own.
    """

    def __init__(self, settings: Settings, *, clusters: int | None = MOST) -> None:
        self._settings = settings
        self._clusters = clusters
        self._chance: random.Random | None = None  # made when needed: it is larger than all else in a small group
        self.rows = 0
        self.deferred = 0
        self.incomplete = 0
        self.tasks: dict[str, int] = {}
        self.cells: dict[str, Cell] = {}
        self._places = 0  # of tasks, and of rows without a key, which are each their own
        self.tried = array("i")
        self.passed = array("i")
        self._votes: list[bytes] = []

    def extend(self, rollouts: Sequence[Rollout]) -> None:
        """Count rollouts; many at once take a fraction of the time."""
        self.rows += len(rollouts)
        pass_at = self._settings.pass_at
        clusters = []
        for task, numbers, answer, deferred, incomplete in rollouts:
            self.deferred += deferred
            self.incomplete += incomplete
            place = self._place(task)
            clusters.append(place if self._clusters is None else place % self._clusters)
            reward = numbers.get("reward")
            if task is not None and reward is not None:
                passed = reward >= pass_at
                self.tried[place] += 1
                self.passed[place] += passed
                self._vote(place, answer << 1 | passed)
        self._spread([rollout.numbers for rollout in rollouts], clusters)

    def _spread(self, rows: list[dict[str, float]], clusters: list[int]) -> None:
        for name in dict.fromkeys(chain.from_iterable(rows)):
            cell = self.cells.get(name)
            if cell is None:
                if len(self.cells) >= MOST_FIELDS:
                    continue
                cell = self.cells[name] = Cell()
            try:
                cell.extend(list(map(itemgetter(name), rows)), clusters)
            except KeyError:  # some rows are without it
                having = [(row[name], cluster) for row, cluster in zip(rows, clusters, strict=True) if name in row]
                cell.extend([value for value, _ in having], [cluster for _, cluster in having])

    def _place(self, task: str | None) -> int:
        place = self._places if task is None else self.tasks.setdefault(task, self._places)
        if place == self._places:
            self._places += 1
            self.tried.append(0)
            self.passed.append(0)
            self._votes.append(b"")
        return place

    def _vote(self, place: int, vote: int) -> None:
        """Keep the vote, or of many a fair sample."""
        votes, packed = self._votes[place], vote.to_bytes(_VOTE_BYTES, byteorder)
        tried = self.tried[place]
        if tried <= MOST_VOTES:
            self._votes[place] = votes + packed
            return
        self._chance = self._chance or random.Random(self._settings.sampling.seed)
        at = self._chance.randrange(tried) * _VOTE_BYTES
        if at < len(votes):
            self._votes[place] = votes[:at] + packed + votes[at + _VOTE_BYTES :]

    def ballot(self, place: int) -> Ballot:
        """How the tries of a task voted; of very many, those in a fair sample."""
        return ballot((vote >> 1, bool(vote & 1)) for vote in array("Q", self._votes[place]))

    def task_means(self, name: str) -> dict[int, float]:
        """The mean of a field in every task that has it, by place; only where each task is its own cluster."""
        cell = self.cells[name]
        counted = zip(cell.sums, cell.counts, strict=True)
        return {place: total / count for place, (total, count) in enumerate(counted) if count}

    @property
    def most_tried(self) -> int:
        """The most scored rollouts that any task has."""
        return max(self.tried, default=0)

    @property
    def largest_k(self) -> int:
        """The most scored rollouts that at least half of the tasks have."""
        return largest_k(self.tried)

    def rates(self, ks: Sequence[int]) -> Iterator[tuple[str, list[tuple[int, float]]]]:
        """pass@k, pass^k and majority@k: for each its value in every task that has k scored rollouts, by place.

        With k = 1 all three are the same. Without a single answer there is no majority.
        """
        ballots: dict[int, Ballot] = {}
        for k in ks:
            enough = [place for place, tried in enumerate(self.tried) if tried >= k]
            if not enough:
                continue
            pairs = {(self.tried[place], self.passed[place]) for place in enough}
            for name, rate in _RATES if k > 1 else _RATES[:1]:
                values = {pair: rate(*pair, k) for pair in pairs}
                yield f"{name}{k}", [(place, values[self.tried[place], self.passed[place]]) for place in enough]
            if 1 < k <= MOST_VOTES:
                ballots = ballots or {place: self.ballot(place) for place in enough}
                if any(answers for answers, _ in ballots.values()):
                    yield f"majority@{k}", [(place, majority_at_k(ballots[place], k)) for place in enough]

    def summary(self, ks: Sequence[int]) -> Json:
        """Everything the group says, as JSON."""
        sampling = self._settings.sampling
        found: Json = {"rollouts": self.rows, "tasks": len(self.tasks)}
        found |= {name: count for name, count in self._odd() if count}
        found["fields"] = {name: _described(cell, sampling) for name, cell in sorted(self.cells.items(), key=_first)}
        found["rates"] = {}
        for name, values in self.rates(ks):
            rates = [rate for _, rate in values]
            interval = sampling.mean(rates, [1] * len(rates), within=(0.0, 1.0))
            found["rates"][name] = {
                "tasks": len(rates),
                "value": sum(rates) / len(rates),
                **_ends(interval),
            }
        return found

    def _odd(self) -> Iterator[tuple[str, int]]:
        yield "deferred", self.deferred
        yield "incomplete", self.incomplete


def _first(named: tuple[str, Cell]) -> tuple[bool, str]:
    return named[0] != "reward", named[0]


def _ends(interval: tuple[float, float] | None) -> Json:
    return {"low": None, "high": None} if interval is None else {"low": interval[0], "high": interval[1]}


def _described(cell: Cell, sampling: Sampling) -> Json:
    spread = cell.spread
    numbers = {
        "mean": spread.mean,
        "std": spread.std,
        "min": spread.low,
        "median": spread.median,
        "max": spread.high,
        **_ends(sampling.mean(cell.sums, cell.counts)),
    }
    known = {name: value if value is not None and isfinite(value) else None for name, value in numbers.items()}
    return {"n": spread.n, **known, "median_error": spread.error}


def answer_of(row: Json) -> int:
    """The answer a rollout votes for, as a number; 0 if it gives none.

    `extracted_answer` where the row has that field, else the final text; letter case, spaces and a full stop at the end
    make no difference.
    """
    answer = row["extracted_answer"] if "extracted_answer" in row else final_text(row)
    if answer is None:
        return 0
    text = " ".join(text_for(answer).split()).casefold().rstrip(".")
    return (hash(text) & (2**62 - 1)) | 1 if text else 0


def text_for(value: Any) -> str:
    """A JSON value as text: a text as it is, anything else as JSON."""
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except TypeError:
        return "(nested too deeply)"  # it can be read, but not written
