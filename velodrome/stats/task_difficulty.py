"""Which tasks are solved, hopeless or useful for learning, from the rewards of a few rollouts each.

Few repeats say little about one task: every rate has an interval (Clopper and Pearson), and what a task that looks
solved may hide is printed with the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from velodrome.records.facts import RowFacts
from velodrome.records.rows import Unread, read_attempts
from velodrome.stats.intervals import mean_interval

Json = dict[str, Any]

CLASSES = ("solved", "useful", "hopeless", "unknown")
ABOUT = {
    "solved": "every rollout is right",
    "useful": "rollouts differ: some right, or other rewards",
    "hopeless": "none is right, all earn the same",
    "unknown": "no rollout with a reward",
}


@dataclass(slots=True)
class TaskRewards:
    """The rewards of one task."""

    rollouts: int = 0
    right: int = 0
    failures: int = 0
    lowest: float = 0.0
    highest: float = 0.0

    def add(self, reward: float, right_at: float) -> None:
        """Count one rollout."""
        self.lowest = min(self.lowest, reward) if self.rollouts else reward
        self.highest = max(self.highest, reward) if self.rollouts else reward
        self.rollouts += 1
        self.right += reward >= right_at

    def name(self) -> str:
        """The class it belongs to."""
        if not self.rollouts:
            return "unknown"
        if self.right == self.rollouts:
            return "solved"
        return "useful" if self.right or self.lowest != self.highest else "hopeless"


class Difficulty:
    """The tasks of a run by name; a few numbers are kept of each."""

    def __init__(self, right_at: float = 1.0, level: float = 0.95) -> None:
        self.right_at, self.level = right_at, level
        self.tasks: dict[str, TaskRewards] = {}
        self.without_name = 0

    def add(self, facts: RowFacts) -> None:
        """Count a rollout, or a failed attempt."""
        if facts.task is None:
            self.without_name += 1
            return
        task = self.tasks.setdefault(facts.task, TaskRewards())
        if facts.failed or facts.reward is None:
            task.failures += 1
        else:
            task.add(facts.reward, self.right_at)

    def names(self, wanted: str) -> set[str]:
        """The tasks of one class."""
        return {name for name, task in self.tasks.items() if task.name() == wanted}

    def as_json(self) -> Json:
        """Counts with intervals, then every task."""
        tasks = {
            name: {
                "class": task.name(),
                "rollouts": task.rollouts,
                "right": task.right,
                "failures": task.failures,
                "rate_interval": rate_interval(task.right, task.rollouts, self.level),
            }
            for name, task in sorted(self.tasks.items())
        }
        fewest = min((task.rollouts for task in self.tasks.values() if task.rollouts), default=0)
        hidden = {"rollouts": fewest, "at_rate": 0.75, "share": 0.75**fewest} if fewest else None
        return {"tasks": len(self.tasks), **self._classes(), "looks_solved": hidden, "each": tasks}

    def _classes(self) -> Json:
        known = [task.name() for task in self.tasks.values() if task.rollouts]
        counts = {each: sum(task.name() == each for task in self.tasks.values()) for each in CLASSES}
        shares: Json = {}
        for each in CLASSES[:3]:
            values = [float(name == each) for name in known]
            within = mean_interval(values, [1.0] * len(values), self.level, share_of=(0.0, 1.0))
            shares[each] = list(within) if within is not None else None
        return {"classes": counts, "share_intervals": shares}

    def lines(self, most: int = 20) -> Iterable[str]:
        """The table: classes, then the tasks that are useful, the hardest first."""
        report = self.as_json()
        for each in CLASSES:
            count, within = report["classes"][each], report["share_intervals"].get(each)
            share = f"{count / len(self.tasks):6.1%}" if self.tasks else ""
            near = f" ({within[0]:.0%} to {within[1]:.0%} of such tasks)" if within else ""
            if count or each != "unknown":
                yield f"{each:<9} {count:>7} {share}  {ABOUT[each]}{near}"
        if report["looks_solved"]:
            count, share = report["looks_solved"]["rollouts"], report["looks_solved"]["share"]
            yield f"with {count} rollouts, a task that is right 3 times in 4 looks solved in {share:.0%} of cases"
        if self.tasks and max(task.rollouts for task in self.tasks.values()) < 2:
            yield "one rollout per task cannot show a useful one; collect more of each: +num_repeats=4 (or more)"
        useful = sorted(self.names("useful"), key=lambda name: (self._rate(name), name))
        for name in useful[:most]:
            task, (low, high) = self.tasks[name], report["each"][name]["rate_interval"]
            yield f"  {name[:60]:<60} {task.right} of {task.rollouts} right, so {low:.0%} to {high:.0%}"
        if len(useful) > most:
            yield f"  … and {len(useful) - most} more"

    def _rate(self, name: str) -> float:
        task = self.tasks[name]
        return task.right / task.rollouts


def rate_interval(right: int, rollouts: int, level: float) -> list[float] | None:
    """Where the rate of a task is, whatever it is, at this level: Clopper and Pearson's interval."""
    if not rollouts:
        return None
    from scipy.special import betaincinv

    tail = (1 - level) / 2
    low = float(betaincinv(right, rollouts - right + 1, tail)) if right else 0.0
    high = float(betaincinv(right + 1, rollouts - right, 1 - tail)) if right < rollouts else 1.0
    return [low, high]


def read_difficulty(paths: Sequence[Path], right_at: float, level: float) -> tuple[Difficulty, list[str]]:
    """The tasks of rollouts files and their failures, and notes on lines that could not be read."""
    result, notes = Difficulty(right_at, level), []
    for path in paths:
        lost = Unread(path)
        for facts in read_attempts(path, lost):
            result.add(facts)
        notes += lost.notes
    return result, notes
