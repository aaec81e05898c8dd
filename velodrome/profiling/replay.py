"""Run recorded rollouts again under other limits: a small discrete-event simulation.

A rollout is a list of steps, a step one or more stages side by side. A stage may need one of a limited number of
places (a limiter), then time on its process's interpreter, of which one thing at a time has the use, then it waits for
somebody else, then it burns CPU in a thread, which needs the interpreter again. Everybody is served in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

MOST_STAGES = 6000  # what a replay takes: a few hundredths of a second

HERE = ""  # the collector's own process


class Stage(NamedTuple):
    """A part of a rollout. `limiter` names what it takes a place of, `where` the process whose interpreter it uses."""

    name: str
    wait_s: float = 0.0
    cpu_s: float = 0.0
    held_s: float = 0.0
    limiter: str | None = None
    where: str = HERE


Step = tuple[Stage, ...]
Steps = Sequence[Step]


@dataclass(frozen=True)
class Limits:
    """What there is: slots for rollouts, places of each limiter, calls a second of each stage, processes of a server.

    A limiter or a rate that is not named has no bound; a server that is not named is one process.
    """

    slots: int
    places: Mapping[str, int] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    processes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Replayed:
    """How it went. `in_flight` is the mean over time; `busy` the share of time an interpreter was in use."""

    rollouts_per_s: float
    seconds: float
    total_s: float
    in_flight: float
    busy: Mapping[str, float]


def replay(rollouts: Sequence[Steps], limits: Limits, count: int | None = None) -> Replayed:
    """Run `count` rollouts, these over and over (by default each once).

    A large number is not run to its end: the start and the end are, and what lies between goes on as in the middle.
    """
    count = len(rollouts) if count is None else count
    if not rollouts or count < 1:
        return Replayed(0.0, 0.0, 0.0, 0.0, {})
    stages = sum(len(step) for steps in rollouts for step in steps) / len(rollouts)
    run = min(count, max(int(MOST_STAGES / max(stages, 1)), 3 * limits.slots))
    simulation = _Simulation(rollouts, limits, run)
    simulation.run()
    return simulation.result(count)


class _Simulation:
    def __init__(self, rollouts: Sequence[Steps], limits: Limits, count: int) -> None:
        self._rollouts = rollouts
        self._limits = limits
        self._count = count
        self._begun = 0
        self._order = 0
        self._events: list[tuple[float, int, bool, Stage, list[float]]] = []
        self._free = dict(limits.places)
        self._waiting: dict[str, deque[tuple[Stage, list[float]]]] = {name: deque() for name in limits.places}
        self._next_at = dict.fromkeys(limits.rates, 0.0)
        self._interpreters: dict[str, list[float]] = {}
        self._used: dict[str, float] = {}
        self._totals = 0.0
        self._ends: list[float] = []

    def run(self) -> None:
        for _ in range(min(self._limits.slots, self._count)):
            self._begin_rollout(0.0)
        events = self._events
        while events:
            now, _, burns, stage, rollout = heappop(events)
            if burns:
                self._put(self._interpreted(stage.where, stage.cpu_s, now), False, stage, rollout)
            else:
                self._end_stage(now, stage, rollout)

    def _begin_rollout(self, now: float) -> None:
        if self._begun < self._count:
            # which rollout, its next step, stages of this step that still run, when it began
            rollout = [self._begun % len(self._rollouts), 0, 0, now]
            self._begun += 1
            self._begin_step(now, rollout)

    def _begin_step(self, now: float, rollout: list[float]) -> None:
        steps = self._rollouts[int(rollout[0])]
        at = int(rollout[1])
        if at == len(steps):
            self._ends.append(now)
            self._totals += now - rollout[3]
            self._begin_rollout(now)
            return
        rollout[1] = at + 1
        rollout[2] = len(steps[at])
        for stage in steps[at]:
            limiter = stage.limiter
            if limiter is None or limiter not in self._free:
                self._begin_stage(now, stage, rollout)
            elif self._free[limiter] > 0:
                self._free[limiter] -= 1
                self._begin_stage(now, stage, rollout)
            else:
                self._waiting[limiter].append((stage, rollout))

    def _begin_stage(self, now: float, stage: Stage, rollout: list[float]) -> None:
        at = self._interpreted(stage.where, stage.held_s, now)
        if stage.name in self._next_at:
            at = max(at, self._next_at[stage.name])
            self._next_at[stage.name] = at + 1 / self._limits.rates[stage.name]
        self._put(at + stage.wait_s, stage.cpu_s > 0, stage, rollout)

    def _end_stage(self, now: float, stage: Stage, rollout: list[float]) -> None:
        limiter = stage.limiter
        if limiter is not None and limiter in self._free:
            waiting = self._waiting[limiter]
            if waiting:
                self._begin_stage(now, *waiting.popleft())
            else:
                self._free[limiter] += 1
        rollout[2] -= 1
        if rollout[2] == 0:
            self._begin_step(now, rollout)

    def _interpreted(self, where: str, seconds: float, now: float) -> float:
        """When the interpreter has done this. It is asked in the order of time: first come, first served."""
        free_at = self._interpreters.get(where)
        if free_at is None:
            free_at = self._interpreters[where] = [0.0] * max(self._limits.processes.get(where, 1), 1)
        least = free_at.index(min(free_at)) if len(free_at) > 1 else 0
        at = max(now, free_at[least]) + seconds
        if seconds:
            free_at[least] = at
            self._used[where] = self._used.get(where, 0.0) + seconds
        return at

    def _put(self, at: float, burns: bool, stage: Stage, rollout: list[float]) -> None:
        self._order += 1
        heappush(self._events, (at, self._order, burns, stage, rollout))

    def result(self, count: int) -> Replayed:
        seconds, ran = self._ends[-1], len(self._ends)
        busy = {
            where: used / (seconds * len(self._interpreters[where])) if seconds else 0.0
            for where, used in self._used.items()
        }
        whole_s = seconds
        if count > ran:
            low, high = ran // 4, (3 * ran) // 4
            middle_s = (self._ends[high] - self._ends[low]) / max(high - low, 1)
            whole_s += (count - ran) * middle_s
        return Replayed(
            rollouts_per_s=count / whole_s if whole_s > 0 else 0.0,
            seconds=whole_s,
            total_s=self._totals / ran,
            in_flight=self._totals / seconds if seconds else 0.0,
            busy=busy,
        )
