"""The predicted effect of a change: the ratio of the run's time to its time with the change.

A run is as fast as its scarcest resource: slots, places of a limiter, an interpreter or a rate. Its last rollouts add
to its end. Predicted = observed x ratio, so omissions of the model cancel out, up to the tightest limit. It serves for
limits of a known size, not for changes of code.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from types import MappingProxyType
from typing import NamedTuple

from velodrome.profiling.observed import Observed
from velodrome.profiling.stages import HERE

_LOADED = 0.6  # from here on, recorded waits include waits for the interpreter
_LATE_S = 0.02
_NONE: Mapping[str, int] = MappingProxyType({})


class Demand(NamedTuple):
    """The needs of one rollout: time alone, seconds in each limiter's places, calls of each rate, CPU by process."""

    alone_s: float
    places: Mapping[str, float] = _NONE
    calls: Mapping[str, float] = _NONE
    cpu_s: Mapping[str, float] = _NONE


class Capacity(NamedTuple):
    """Slots for rollouts, places of each limiter, calls per second of each rate, processes of each server.

    A limiter or a rate that is not named has no bound; a server that is not named is one process.
    """

    slots: int
    places: Mapping[str, int] = _NONE
    rates: Mapping[str, float] = _NONE
    processes: Mapping[str, int] = _NONE


def run_time(demand: Demand, capacity: Capacity, count: int) -> tuple[float, float]:
    """The seconds for `count` such rollouts, and the seconds of the scarcest resource per rollout."""
    most_s = max(
        demand.alone_s / min(capacity.slots, count),
        *(demand.places.get(name, 0.0) / places for name, places in capacity.places.items()),
        *(demand.calls.get(name, 0.0) / per_s for name, per_s in capacity.rates.items()),
        *(seconds / max(capacity.processes.get(where, 1), 1) for where, seconds in demand.cpu_s.items()),
        0.0,
    )
    return (count - 1) * most_s + max(demand.alone_s, most_s), most_s


class Gain(NamedTuple):
    """A predicted throughput, and its ratio to the observed one."""

    rollouts_per_s: float
    gain: float


class Prediction:
    """The demand and the capacity of a run. `own_s` is the collector's CPU per rollout."""

    def __init__(self, observed: Observed, places: Mapping[str, int], own_s: float) -> None:
        self.observed, self.own_s = observed, own_s
        seen = observed
        own_s += seen.read_s + seen.write_s
        burned = 0.0 if seen.cpu_is_parallel else seen.at(seen.cpu, HERE)
        held = seen.read_s + seen.write_s + seen.at(seen.held, HERE) + (0.0 if seen.cpu_s is None else self.own_s)
        delayed = (seen.lag_s or 0.0) >= _LATE_S
        busy = seen.tried_per_s * (held + burned) / seen.workers
        self.loaded = busy >= _LOADED or (delayed and busy >= _LOADED / 2)
        cpu_s = {where: seen.at(seen.cpu, where) + seen.at(seen.held, where) for where, _ in seen.cpu}
        cpu_s[HERE] = burned + seen.at(seen.held, HERE) + own_s
        alone_s = seen.total_s - seen.parts["queue"] - seen.parts["connection"] + own_s
        busy_s, rates = dict(seen.busy_s), {}
        if seen.model is not None and seen.model.saturated and seen.model.per_s > 0:
            # the model answers a fixed number of calls per second, each in the time it takes alone
            rates["model"] = seen.model.per_s
            saving_s = (1 - min(seen.model.low_s / seen.model.high_s, 1.0)) * seen.waits["model"]
            alone_s -= saving_s
            busy_s["model"] = busy_s.get("model", 0.0) - saving_s
        self._demand = Demand(alone_s, busy_s, seen.calls, cpu_s)
        slots = seen.limit if seen.steady else max(round(seen.mean_limit), 1)
        self.capacity = Capacity(slots, dict(places), rates, dict(seen.processes))

    def gain(self, capacity: Capacity | None = None, *, attempts: int | None = None) -> Gain:
        """The gain with another capacity, or with another number of attempts."""
        seen = self.observed
        base = seen.attempts / run_time(self._demand, self.capacity, seen.attempts)[0]
        count = attempts or seen.attempts
        seconds, most_s = run_time(self._demand, capacity or self.capacity, count)
        ratio = min(count / seconds / base, 1 / most_s / seen.tried_per_s if most_s > 0 else inf)
        return Gain(seen.per_s * ratio, ratio)
