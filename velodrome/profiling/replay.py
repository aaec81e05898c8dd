"""Run recorded rollouts again under other limits: a small discrete-event simulation.

A rollout is a list of steps; a step is one or more stages side by side. A stage may need one of a limited number of
places (a limiter), then time on its process's interpreter, which does one thing at a time, then it waits for somebody
else, then it burns CPU in a thread, which needs the interpreter again. Every queue is first come, first served.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from types import MappingProxyType
from typing import NamedTuple

MOST_STAGES = 2000  # of one replay, which then takes about ten milliseconds

HERE = ""  # the collector's own process
_NONE: Mapping[str, int] = MappingProxyType({})


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


class Capacity(NamedTuple):
    """Slots for rollouts, places of each limiter, calls per second of each stage, processes of each server.

    A limiter or a rate that is not named has no bound; a server that is not named is one process.
    """

    slots: int
    places: Mapping[str, int] = _NONE
    rates: Mapping[str, float] = _NONE
    processes: Mapping[str, int] = _NONE


def replay(rollouts: Sequence[Steps], capacity: Capacity, count: int | None = None) -> float:
    """The seconds that `count` rollouts take, these over and over (by default each once).

    Of a large number only the start and the end are run; between them it continues as in the middle.
    """
    count = len(rollouts) if count is None else count
    if not rollouts or count < 1:
        return 0.0
    stages = sum([len(step) for steps in rollouts for step in steps]) / len(rollouts)
    some = min(count, max(int(MOST_STAGES / max(stages, 1)), 3 * capacity.slots))
    ends = _Simulation(rollouts, capacity, some).run()
    if count == some:
        return ends[-1]
    slots = min(capacity.slots, some // 3 or 1)
    low, turns = some // 4, max(some // 2 // slots, 1) * slots  # whole turns: rollouts may march in step
    return ends[-1] + (count - some) * (ends[low + turns] - ends[low]) / turns


class _Running:
    """One rollout under way: its steps, the next of them, and how many stages of this one still run."""

    __slots__ = ("next", "open", "steps")

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.next = self.open = 0


class _Simulation:
    def __init__(self, rollouts: Sequence[Steps], capacity: Capacity, count: int) -> None:
        self._rollouts = rollouts
        self._capacity = capacity
        self._count = count
        self._begun = self._order = 0
        self._events: list[tuple[float, int, bool, Stage, _Running]] = []
        self._free = dict(capacity.places)
        self._waiting: dict[str, deque[tuple[Stage, _Running]]] = {name: deque() for name in capacity.places}
        self._next_at = dict.fromkeys(capacity.rates, 0.0)
        self._interpreters: dict[str, list[float]] = {}  # when each process of a server is free
        self._ends: list[float] = []

    def run(self) -> list[float]:
        """When each rollout ended."""
        for _ in range(min(self._capacity.slots, self._count)):
            self._begin_rollout(0.0)
        events = self._events
        while events:
            now, _, burns, stage, rollout = heappop(events)
            if burns:
                self._put(self._interpreted(stage.where, stage.cpu_s, now), False, stage, rollout)
            else:
                self._end_stage(now, stage, rollout)
        return self._ends

    def _begin_rollout(self, now: float) -> None:
        if self._begun < self._count:
            self._begun += 1
            self._begin_step(now, _Running(self._rollouts[(self._begun - 1) % len(self._rollouts)]))

    def _begin_step(self, now: float, rollout: _Running) -> None:
        if rollout.next == len(rollout.steps):
            self._ends.append(now)
            self._begin_rollout(now)
            return
        step = rollout.steps[rollout.next]
        rollout.next += 1
        rollout.open = len(step)
        for stage in step:
            free = self._free.get(stage.limiter or "")
            if free is None:
                self._begin_stage(now, stage, rollout)
            elif free > 0:
                self._free[stage.limiter or ""] = free - 1
                self._begin_stage(now, stage, rollout)
            else:
                self._waiting[stage.limiter or ""].append((stage, rollout))

    def _begin_stage(self, now: float, stage: Stage, rollout: _Running) -> None:
        at = self._interpreted(stage.where, stage.held_s, now)
        if stage.name in self._next_at:
            at = max(at, self._next_at[stage.name])
            self._next_at[stage.name] = at + 1 / self._capacity.rates[stage.name]
        self._put(at + stage.wait_s, stage.cpu_s > 0, stage, rollout)

    def _end_stage(self, now: float, stage: Stage, rollout: _Running) -> None:
        limiter = stage.limiter
        if limiter is not None and limiter in self._free:
            if self._waiting[limiter]:
                self._begin_stage(now, *self._waiting[limiter].popleft())
            else:
                self._free[limiter] += 1
        rollout.open -= 1
        if rollout.open == 0:
            self._begin_step(now, rollout)

    def _interpreted(self, where: str, seconds: float, now: float) -> float:
        """When an interpreter has done this. Requests come in the order of time."""
        free_at = self._interpreters.get(where)
        if free_at is None:
            free_at = self._interpreters[where] = [0.0] * max(self._capacity.processes.get(where, 1), 1)
        least = free_at.index(min(free_at)) if len(free_at) > 1 else 0
        at = max(now, free_at[least]) + seconds
        if seconds:
            free_at[least] = at
        return at

    def _put(self, at: float, burns: bool, stage: Stage, rollout: _Running) -> None:
        self._order += 1
        heappush(self._events, (at, self._order, burns, stage, rollout))
