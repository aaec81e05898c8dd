"""One group of rollouts, and what is known of it: sums, never rows.

Of each field its spread, and its sum in each task; of each task how many tries passed and what they answered.
docs/metrics.md defines every number.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import chain
from math import isfinite
from operator import itemgetter
from typing import Annotated, Any, NamedTuple

import orjson
from pydantic import AfterValidator, Field

from velodrome.records.facts import RowFacts
from velodrome.settings.model import Settings
from velodrome.settings.values import Counts, Names, Text
from velodrome.stats.draws import MOST_VOTES, Ballot, ballot, majority_at_k, pass_hat_k
from velodrome.stats.exact import Moments, TaskSums, mean_of
from velodrome.stats.intervals import Interval, mean_interval
from velodrome.stats.metrics import PASS_REWARD, largest_k, pass_at_k
from velodrome.stats.numbers import numbers_of
from velodrome.timing.percentiles import Quantiles

Json = dict[str, Any]

MOST_FIELDS = 1000
_MOST_DISTINCT = 4096
_VOTE_BYTES = 16  # the repeat, then the answer and whether it passed
_RATES = (("pass@", pass_at_k), ("pass^", pass_hat_k))


def _level(value: float) -> float:
    if value and not 0.5 <= value <= 0.999:
        raise ValueError(f"expected a share from 0.5 to 0.999, such as 0.95, or 0 for none, not {value!r:.40}")
    return value


class MetricsSettings(Settings):
    """What to compute."""

    by: Text | None = Field(
        None, title="FIELD", description="agent, task, or any field of the rows (info.level reaches inside)"
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


class Cell(Quantiles):
    """One field of one group: how its numbers are spread, their sums, and the sum in each task."""

    def __init__(self) -> None:
        super().__init__(exact=_MOST_DISTINCT)
        self.tasks = TaskSums()
        self._moments = Moments()  # of all numbers, once they are not kept as they are

    def add_values(self, values: list[float], places: list[int]) -> None:
        """Count numbers, each in the task beside it."""
        self.tasks.extend(values, places)
        if self.distinct is None:
            self._moments.extend(values)
        self.extend(values)

    def _fold(self) -> None:
        self._moments.extend(self._counts, self._counts.values())
        super()._fold()

    def add_cell(self, other: Cell, places: Sequence[int]) -> None:
        """Count the numbers of another cell, whose places are these here."""
        folded = self.distinct is None
        self.merge(other)
        self.tasks.merge(other.tasks, places)
        if other.distinct is None:
            self._moments.merge(other._moments)
        elif folded:
            self._moments.extend(other.distinct, other.distinct.values())

    @property
    def moments(self) -> Moments:
        """What the mean and the standard deviation over rollouts come from."""
        if self.distinct is None:
            return self._moments
        moments = Moments()
        moments.extend(self.distinct, self.distinct.values())
        return moments

    @property
    def mean(self) -> float:
        """The exact mean over rollouts, of which a cell has at least one."""
        return self.moments.mean or 0.0

    def share_of(self, name: str) -> Interval | None:
        """The two values that rollouts have; a reward that is always 0 or always 1 could have been the other."""
        if name == "reward" and self.low == self.high and self.low in (0.0, 1.0):
            return 0.0, 1.0
        return (self.low, self.high) if self.distinct is not None and len(self.distinct) == 2 else None

    def interval(self, name: str, level: float) -> Interval | None:
        """The confidence interval of the mean over rollouts."""
        weights = [count for count in self.tasks.counts if count]
        return mean_interval(list(self.tasks.means().values()), weights, level, share_of=self.share_of(name))

    def summary(self, name: str, level: float) -> Json:
        """Everything the field says, as JSON."""
        moments = self.moments
        numbers = {
            "mean": moments.mean,
            "std": moments.std,
            "min": self.low,
            "median": self.quantile(0.5),
            "max": self.high,
            **_ends(self.interval(name, level)),
        }
        known = {each: value if value is not None and isfinite(value) else None for each, value in numbers.items()}
        return {"n": self.count, **known, "median_error": self.error}


class GroupRow(NamedTuple):
    """What a group needs to know of one rollout."""

    task: str | None
    repeat: int
    numbers: dict[str, float]
    answer: int
    deferred: bool
    incomplete: bool

    def only(self, name: str) -> GroupRow:
        """The same with one number alone."""
        return self._replace(numbers={name: self.numbers[name]} if name in self.numbers else {})


def group_row(facts: RowFacts) -> GroupRow:
    """What a group keeps of a row."""
    return GroupRow(
        facts.task,
        facts.repeat,
        numbers_of(facts),
        answer_of(facts),
        facts.deferred,
        facts.status == "incomplete",
    )


class RolloutGroup:
    """Running sums over the rollouts of one group. The order they come in makes no difference."""

    def __init__(self, settings: MetricsSettings) -> None:
        self._settings = settings
        self.rows = 0
        self.deferred = 0
        self.incomplete = 0
        self.tasks: dict[str, int] = {}
        self.cells: dict[str, Cell] = {}
        self._past_last: str | None = None  # this field and all after it, in their order, are not kept
        self._places = 0  # of tasks, and of rows without a key, which are each their own
        self.tried = array("i")
        self.passed = array("i")
        self._votes: list[bytes] = []

    def extend(self, rollouts: Sequence[GroupRow]) -> None:
        """Count rollouts; many at once take a fraction of the time."""
        self.rows += len(rollouts)
        pass_at = self._settings.pass_at
        places = []
        for task, repeat, numbers, answer, deferred, incomplete in rollouts:
            self.deferred += deferred
            self.incomplete += incomplete
            place = self._place(task)
            places.append(place)
            reward = numbers.get("reward")
            if task is not None and reward is not None:
                passed = reward >= pass_at
                self.tried[place] += 1
                self.passed[place] += passed
                self._vote(place, _packed(repeat, answer << 1 | passed))
        self._spread([rollout.numbers for rollout in rollouts], places)

    def _spread(self, rows: list[dict[str, float]], places: list[int]) -> None:
        for name in dict.fromkeys(chain.from_iterable(rows)):
            cell = self._cell(name)
            if cell is None:
                continue
            try:
                cell.add_values(list(map(itemgetter(name), rows)), places)
            except KeyError:  # some rows are without it
                having = [(row[name], place) for row, place in zip(rows, places, strict=True) if name in row]
                cell.add_values([value for value, _ in having], [place for _, place in having])

    def _cell(self, name: str) -> Cell | None:
        """The cell of a field. Of too many fields the first by name are kept, whichever came first."""
        if name not in self.cells:
            if self._past_last is not None and _field_order(name) >= _field_order(self._past_last):
                return None
            self.cells[name] = Cell()
            if len(self.cells) > MOST_FIELDS:
                self._past_last = max(self.cells, key=_field_order)
                del self.cells[self._past_last]
        return self.cells.get(name)

    def _place(self, task: str | None) -> int:
        place = self._places if task is None else self.tasks.setdefault(task, self._places)
        if place == self._places:
            self._places += 1
            self.tried.append(0)
            self.passed.append(0)
            self._votes.append(b"")
        return place

    def _vote(self, place: int, vote: bytes) -> None:
        """Keep the vote; of many, those of the first repeats."""
        votes = self._votes[place] + vote
        if len(votes) > MOST_VOTES * _VOTE_BYTES:
            votes = b"".join(sorted(_apart(votes))[:MOST_VOTES])
        self._votes[place] = votes

    def ballot(self, place: int) -> Ballot:
        """How the tries of a task voted; of very many, the first repeats."""
        votes = (int.from_bytes(vote[8:]) for vote in _apart(self._votes[place]))
        return ballot((vote >> 1, bool(vote & 1)) for vote in votes)

    def merge(self, other: RolloutGroup) -> None:
        """Count the rollouts of another group as well."""
        self.rows += other.rows
        self.deferred += other.deferred
        self.incomplete += other.incomplete
        names: list[str | None] = [None] * other._places
        for task, place in other.tasks.items():
            names[place] = task
        places = [self._place(task) for task in names]
        for place, tried, passed, votes in zip(places, other.tried, other.passed, other._votes, strict=True):
            self.tried[place] += tried
            self.passed[place] += passed
            for vote in _apart(votes):
                self._vote(place, vote)
        for name, theirs in other.cells.items():
            cell = self._cell(name)
            if cell is not None:
                cell.add_cell(theirs, places)

    def task_means(self, name: str) -> dict[int, float]:
        """The mean of a field in every task that has it, by place."""
        return self.cells[name].tasks.means()

    @property
    def cut(self) -> bool:
        """Whether rollouts have more different numbers than are kept."""
        return self._past_last is not None

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
        level = self._settings.level
        found: Json = {"rollouts": self.rows, "tasks": len(self.tasks)}
        found |= {name: count for name, count in self._odd() if count}
        names = sorted(self.cells, key=_field_order)
        found["fields"] = {name: self.cells[name].summary(name, level) for name in names}
        found["rates"] = {}
        for name, values in self.rates(ks):
            rates = [rate for _, rate in values]
            interval = mean_interval(rates, [1] * len(rates), level, share_of=(0.0, 1.0))
            found["rates"][name] = {"tasks": len(rates), "value": mean_of(rates), **_ends(interval)}
        return found

    def _odd(self) -> Iterator[tuple[str, int]]:
        yield "deferred", self.deferred
        yield "incomplete", self.incomplete


def _field_order(name: str) -> tuple[bool, str]:
    return name != "reward", name


def _packed(repeat: int, vote: int) -> bytes:
    """A vote as bytes that sort by repeat."""
    return min(max(repeat, 0), 2**63).to_bytes(8) + vote.to_bytes(8)


def _apart(votes: bytes) -> list[bytes]:
    return [votes[at : at + _VOTE_BYTES] for at in range(0, len(votes), _VOTE_BYTES)]


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
    return hashed(text) & (2**62 - 1) | 1 if text else 0


def hashed(text: str) -> int:
    """A text as a number of 64 bits, the same in every process."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def text_for(value: Any) -> str:
    """A JSON value as text: a text as it is, anything else as JSON."""
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except TypeError:
        return "(nested too deeply)"  # it can be read, but not written
