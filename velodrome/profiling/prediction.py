"""What a change would give: the time of the run as it was, the time with the change, and the ratio of the two.

A run takes as long as what is used up first: slots, places of a limiter, an interpreter, a rate; and at its end the
last rollouts run out. Predicted = observed x ratio, so what this leaves out is left out on both sides, and no more
than the tightest limit allows. It is made for limits whose count is known, not for changes of code.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from math import inf
from types import MappingProxyType
from typing import NamedTuple

from velodrome.profiling.attempts import CONNECTION, HERE, Stage, TimedAttempt
from velodrome.profiling.observed import Observed

_LOADED = 0.6  # from here on, waits for the interpreter are a part of what was recorded as waits for others
_LATE_S = 0.02
_ENOUGH = 200  # different rollouts
_NONE: Mapping[str, int] = MappingProxyType({})


class Capacity(NamedTuple):
    """Slots for rollouts, places of each limiter, calls per second of each stage, processes of each server.

    A limiter or a rate that is not named has no bound; a server that is not named is one process.
    """

    slots: int
    places: Mapping[str, int] = _NONE
    rates: Mapping[str, float] = _NONE
    processes: Mapping[str, int] = _NONE


Step = Sequence[Stage]  # side by side
Steps = Sequence[Step]


def run_time(rollouts: Sequence[Steps], capacity: Capacity, count: int) -> tuple[float, float]:
    """The seconds that `count` rollouts like these take, and for how long each of them uses up what is used most."""
    alone_s = 0.0
    used: dict[tuple[str, str], float] = defaultdict(float)
    for step in (step for steps in rollouts for step in steps):
        alone_s += max(stage.seconds for stage in step)
        for stage in step:
            if (limiter := stage.limiter or "") in capacity.places:
                used["place", limiter] += stage.seconds / capacity.places[limiter]
            if stage.name in capacity.rates:
                used["rate", stage.name] += 1 / capacity.rates[stage.name]
            used["process", stage.where] += (stage.cpu_s + stage.held_s) / max(
                capacity.processes.get(stage.where, 1), 1
            )
    alone_s /= len(rollouts) or 1
    most_s = max(alone_s / min(capacity.slots, count), *(each / len(rollouts) for each in used.values()), 0.0)
    return (count - 1) * most_s + max(alone_s, most_s), most_s


class Gain(NamedTuple):
    """A predicted throughput, and how many times the observed one it is."""

    rollouts_per_s: float
    gain: float


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
        self._share, rates = 1.0, {}
        model = observed.model
        if model is not None and model.saturated and model.per_s > 0:
            # it answers so many calls per second, each in the time it takes alone
            rates["model"] = model.per_s
            self._share = min(model.low_s / model.high_s, 1.0)
        slots = observed.limit if observed.steady else max(round(observed.mean_limit), 1)
        self.capacity = Capacity(slots, dict(places), rates, dict(observed.processes))

    def gain(self, capacity: Capacity | None = None, *, attempts: int | None = None) -> Gain:
        """With another capacity, or for another number of attempts."""
        seen, base = self.observed, self._as_it_was[0]
        rate, most = self._rate(capacity or self.capacity, attempts or seen.attempts)
        if base <= 0 or not seen.tried_per_s:
            return Gain(seen.per_s, 1.0)
        ratio = min(rate / base, most / seen.tried_per_s)
        return Gain(seen.per_s * ratio, ratio)

    @cached_property
    def _as_it_was(self) -> tuple[float, float]:
        return self._rate(self.capacity, self.observed.attempts)

    def _rate(self, capacity: Capacity, attempts: int) -> tuple[float, float]:
        """Attempts per second, and the most that the tightest limit allows."""
        seconds, most_s = run_time([self._steps(each) for each in self._rollouts], capacity, attempts)
        return attempts / seconds if seconds > 0 else 0.0, 1 / most_s if most_s > 0 else inf

    def _steps(self, rollout: TimedAttempt) -> list[Step]:
        """Each stage with its limiter and the time that it takes; then what the collector does for a rollout."""
        steps: list[Step] = [[self._limited_stage(each.stage) for each in step] for step in rollout.steps]
        own_s = self.own_s + self.observed.read_s + self.observed.write_s
        return [*steps, [Stage("own", held_s=own_s)]]

    def _limited_stage(self, stage: Stage) -> Stage:
        name, wait_s, cpu_s, held_s, _, where = stage
        if name == "model":
            wait_s *= self._share
        if self.observed.cpu_is_parallel and where == HERE:  # CPU that does not need the interpreter is a wait
            wait_s, cpu_s = wait_s + cpu_s, 0.0
        return Stage(name, wait_s, cpu_s, held_s, self._limited.get(name), where)
