"""What a change would give: the run replayed as it was, replayed with the change, and the ratio of the two.

Predicted = observed x ratio, so what a replay leaves out is left out on both sides. Where the interpreter was busy the
recorded waits hold waits for it; then calls are replayed with the times they take alone, and compared with what was
observed. As many rollouts are replayed as there were: the start and the end, when slots are idle, weigh as much.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import NamedTuple

from velodrome.profiling.attempts import CONNECTION, TimedAttempt
from velodrome.profiling.observed import Observed
from velodrome.profiling.replay import HERE, Capacity, Stage, Step, replay

Change = Callable[[Stage], Stage | None]  # None: it is left out

_LOADED = 0.6  # from here on, waits for the interpreter are a part of what was recorded as waits for others
_LATE_S = 0.02
_ENOUGH = 200  # different rollouts for a replay
_HIDES = 0.5  # of what was recorded as the model's time


class Gain(NamedTuple):
    """A predicted throughput, and how many times the observed one it is."""

    rollouts_per_s: float
    gain: float


def unchanged(stage: Stage) -> Stage:
    """The change that is none."""
    return stage


def without(*names: str) -> Change:
    """These stages are left out."""
    return lambda stage: None if stage.name in names else stage


def in_thread(name: str) -> Change:
    """The code runs in a thread in place of the event loop: what it waits for holds nobody up."""

    def moved(stage: Stage) -> Stage:
        if stage.name != name:
            return stage
        return stage._replace(held_s=0.0, wait_s=stage.wait_s + stage.held_s, limiter="threads")

    return moved


class Prediction:
    """The run as it was, ready to be changed. `own_s` is the collector's CPU per rollout."""

    def __init__(self, observed: Observed, places: Mapping[str, int], own_s: float) -> None:
        self.observed, self.own_s = observed, own_s
        here = observed.read_s + observed.write_s + observed.at(observed.held, HERE)
        burned = 0.0 if observed.cpu_is_parallel else observed.at(observed.cpu, HERE)
        used = here + burned + (0.0 if observed.cpu_s is None else own_s)
        self.busy = observed.tried_per_s * used / observed.workers
        late = (observed.lag_s or 0.0) >= _LATE_S
        self.loaded = self.busy >= _LOADED or (late and self.busy >= _LOADED / 2)
        self._rollouts = observed.rollouts[:: -(-len(observed.rollouts) // _ENOUGH) or 1]
        self._limited = dict(observed.limited)
        for name in observed.connected:  # the narrower of two limits is the one that counts
            if places.get(CONNECTION, 0) <= places.get(self._limited.get(name, ""), observed.limit):
                self._limited[name] = CONNECTION
        self._least = self._least_waits()
        late_s = min(self.busy, 1.0) * (observed.lag_s or 0.0) if self.loaded else 0.0
        self._late_s = late_s
        waits = self._waits("model")
        self.model_hidden = bool(waits) and late_s > _HIDES * sum(waits) / len(waits)  # by a late event loop
        self._quickest = min(waits, default=0.0)
        self._share, rates = 1.0, {}
        model = observed.model
        if not self.loaded and model is not None and model.saturated and model.per_s > 0:
            # it answers so many calls per second, each in the time it takes alone
            rates["model"] = model.per_s
            self._share = min(model.low_s / model.high_s, 1.0)
        slots = observed.limit if observed.steady else max(round(observed.mean_limit), 1)
        self.capacity = Capacity(slots, dict(places), rates, dict(observed.processes))

    def gain(
        self, capacity: Capacity | None = None, change: Change = unchanged, *, attempts: int | None = None
    ) -> Gain:
        """With another capacity, or with each stage changed, or for another number of attempts."""
        base = self.observed.tried_per_s if self.loaded else self._as_it_was
        rate = self._rate(capacity or self.capacity, change, attempts or self.observed.attempts)
        ratio = rate / base if base > 0 else 1.0
        return Gain(self.observed.per_s * ratio, ratio)

    @cached_property
    def _as_it_was(self) -> float:
        return self._rate(self.capacity, unchanged, self.observed.attempts)

    def _rate(self, capacity: Capacity, change: Change, attempts: int) -> float:
        """Attempts per second of a replay."""
        seconds = replay([self._steps(each, change) for each in self._rollouts], capacity, attempts)
        return attempts / seconds if seconds > 0 else 0.0

    def _steps(self, rollout: TimedAttempt, change: Change) -> list[Step]:
        """Each stage alone, changed and with its limiter; the collector's own CPU is spread over those here."""
        kept = []
        for step in rollout.steps:
            stages = [new for each in step if (new := change(self._alone(each.stage))) is not None]
            if stages:
                kept.append(stages)
        own_s = self.own_s / max(sum(map(len, kept)), 1)
        steps: list[Step] = []
        elsewhere = True
        for stages in kept:
            elsewhere = elsewhere and all(stage.where != HERE for stage in stages)
            steps.append(tuple([_loaded(stage, own_s) for stage in stages]))
        if elsewhere:
            steps.append((Stage("own", held_s=self.own_s),))
        for name, seconds in (("read", self.observed.read_s), ("write", self.observed.write_s)):
            if seconds and (stage := change(Stage(name, held_s=seconds))) is not None:
                steps.insert(0 if name == "read" else len(steps), (stage,))
        return steps

    def _alone(self, stage: Stage) -> Stage:
        """The stage with its limiter and the time that it takes by itself."""
        name, wait_s, cpu_s, held_s, _, where = stage
        if name == "model":
            # an answer that comes while the interpreter is in use is read when it is free again
            wait_s = max(wait_s - self._late_s, self._quickest) if self.loaded else wait_s * self._share
        elif (where, name) in self._least and _needs_its_process(stage):
            wait_s = self._least[where, name]
        if self.observed.cpu_is_parallel and where == HERE:  # CPU that does not need the interpreter is a wait
            wait_s, cpu_s = wait_s + cpu_s, 0.0
        return Stage(name, wait_s, cpu_s, held_s, self._limited.get(name), where)

    def _least_waits(self) -> dict[tuple[str, str], float]:
        """Of code that needs a busy process: the shortest wait, which it had when it was alone there."""
        observed = self.observed
        crowded = {where for where in observed.servers if observed.crowded(where)} | ({HERE} if self.loaded else set())
        least: dict[tuple[str, str], float] = {}
        for stage in (each.stage for rollout in self._rollouts for each in rollout.stages) if crowded else ():
            if stage.where in crowded and _needs_its_process(stage):
                key = stage.where, stage.name
                least[key] = min(least.get(key, stage.wait_s), stage.wait_s)
        return least

    def _waits(self, name: str) -> list[float]:
        return [each.stage.wait_s for rollout in self._rollouts for each in rollout.stages if each.stage.name == name]


def _needs_its_process(stage: Stage) -> bool:
    """Code that keeps the collector's own event loop shows as late answers of the model instead."""
    return bool(stage.cpu_s or (stage.held_s and stage.where != HERE))


def _loaded(stage: Stage, own_s: float) -> Stage:
    """What the collector does for a stage in another process is not that process's work, and it waits meanwhile."""
    if stage.where != HERE:
        return stage
    name, wait_s, cpu_s, held_s, limiter, _ = stage
    return Stage(name, max(wait_s - own_s, 0.0), cpu_s, held_s + own_s, limiter, HERE)
