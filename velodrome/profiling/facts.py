"""The numbers of one run that the verdict is drawn from, each a mean over its sampled rollouts.

Nothing is judged here. Where a number cannot be known from the file it is None, and whoever uses it says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Any

from velodrome.profiling.replay import HERE
from velodrome.profiling.sample import Run
from velodrome.profiling.saturation import Call, Effect, load_effect
from velodrome.profiling.stages import Limit, Rollout, Span, taken_apart
from velodrome.records.facts import HOSTILE, PARTS, timed_parts

Json = dict[str, Any]
Used = dict[tuple[str, str], float]  # seconds a rollout, by process and stage

LIMITERS = {"model": "model", "judge": "judge", "library": "library"}  # of a stage; sync code shares "threads"
_ROUNDED_S = 2e-6  # times in a row are rounded: one that follows another must not seem to overlap it
_BUSY = 0.6
_NONE = Effect(None, 0.0, 0, 0.0, 0.0, 0.0, 0.0)
_OWN_S = 0.0005  # of the collector's CPU a rollout, where the file does not say
_SETTLED_S = 1.0
_OVERLAP = 1.2  # slots in use
_UNSEEN = 0.3  # of the time, at most


@dataclass
class Facts:
    """Of one run. Times are seconds a rollout; `cpu` and `held` are by process and stage."""

    kept: int
    attempts: int
    seconds: float
    rollouts: list[Rollout]
    parts: dict[str, float]
    total_s: float
    limit: int
    limits: tuple[int, int]  # the lowest and the highest
    mean_limit: float
    slots_used: float  # of the limit, over time
    full: float | None  # share of rollouts at whose end every slot was in use
    model_calls: float
    rate_limited: float
    queues: dict[str, float]
    busy_s: dict[str, float]  # time in each limiter's places
    cpu: Used
    held: Used
    processes: dict[str, int]
    threaded: set[str]
    cpu_share: float | None
    lag_s: float | None
    read_s: float
    write_s: float
    agent: str | None
    windows: list[list[Rollout]]  # of which none in between is missing
    shares: dict[str, float] = field(default_factory=dict)  # of a core, that a server's processes said they needed
    calls: dict[str, float] = field(default_factory=dict)
    connected: set[str] = field(default_factory=set)  # stages that waited for a connection
    connection_limit: Limit | None = None

    @cached_property
    def model(self) -> Effect | None:
        """What the load does to the model."""
        return self.effect("model", self.lag_s or 0.0)

    @property
    def model_in_process(self) -> bool:
        """Whether the model answers in the collector's own process, and not over HTTP."""
        spans = [span for each in self.rollouts for span in each.spans if span.stage.name == "model"]
        return bool(spans) and not any(span.remote or span.stage.where != HERE for span in spans)

    @property
    def model_use(self) -> float:
        """The share of the time in which the model had at least one call to answer."""
        used = lasted = 0.0
        for window in self.windows:
            calls = sorted(
                (span.start, span.end) for each in window for span in each.spans if span.stage.name == "model"
            )
            end = calls[0][0] if calls else 0.0
            for start, ended in calls:
                used += max(ended - max(start, end), 0.0)
                end = max(end, ended)
            lasted += end - calls[0][0] if calls else 0.0
        return used / lasted if lasted > 0 else 0.0

    def effect(self, name: str, late_s: float = 0.0) -> Effect | None:
        """What the load does to one stage. Of calls that were folded into one span nobody knows when they were."""
        windows = [
            [span for each in window for span in each.spans if span.stage.name == name and span.calls == 1]
            for window in self.windows
        ]
        return load_effect([_calls(spans) for spans in windows], late_s)

    @property
    def steady(self) -> bool:
        """Whether the limit stayed what it was."""
        return self.limits[0] == self.limits[1]

    @property
    def one_by_one(self) -> bool:
        """Whether rollouts ran one after the other though every slot had one: something never let go of the loop."""
        return self.limits[0] > 1 and self.full is not None and self.full > 0.8 and self.slots_used < _OVERLAP

    @property
    def served(self) -> bool:
        """Whether servers took part."""
        return bool(self.shares)

    def crowded(self, where: str) -> bool:
        """Whether the code of the user's has to wait for a server's interpreter.

        A machine that others use too may not give it a whole core. Then it shows in code that burns CPU and takes the
        longer the more of it there is.
        """
        busy = self.busy(where)
        names = [name for (place, name), seconds in self.cpu.items() if place == where and seconds > 0]
        return busy >= _BUSY or (busy >= _BUSY / 2 and any((self.effect(name) or _NONE).saturated for name in names))

    @property
    def per_s(self) -> float:
        """Rollouts kept a second."""
        return self.kept / self.seconds if self.seconds > 0 else 0.0

    @property
    def tried_per_s(self) -> float:
        """Attempts a second: failed ones use what there is as well."""
        return self.attempts / self.seconds if self.seconds > 0 else 0.0

    def at(self, of: Used, where: str) -> float:
        """What all stages in one process use."""
        return sum(seconds for (place, _), seconds in of.items() if place == where)

    def busy(self, where: str) -> float:
        """The share of time that the processes of a server spent on the user's code."""
        used = self.at(self.cpu, where) + self.at(self.held, where)
        return used * self.tried_per_s / self.processes.get(where, 1)

    @property
    def servers(self) -> set[str]:
        """Those that ran code of the user's."""
        return {where for where, _ in (*self.cpu, *self.held) if where != HERE}

    @property
    def cpu_is_parallel(self) -> bool:
        """Whether threads burned more than one core: then their code does not need the interpreter."""
        return self.tried_per_s * self.at(self.cpu, HERE) > 1.1

    @property
    def held_burns(self) -> bool:
        """Whether code that keeps the event loop computes, rather than waits."""
        held, cpu = self.at(self.held, HERE), self.cpu_s
        return cpu is not None and held > 0 and cpu - self.at(self.cpu, HERE) > 0.6 * held

    @property
    def cpu_s(self) -> float | None:
        """CPU of the collector's process a rollout."""
        if self.cpu_share is None or not self.tried_per_s:
            return None
        return self.cpu_share / self.tried_per_s

    def own_s(self, *, at_most: float | None = None) -> float:
        """CPU a rollout that the event loop needs for itself: what is not the user's code."""
        cpu = self.cpu_s
        if cpu is None:  # and not so much that it would bound the run: nobody has seen that
            return min(_OWN_S, _UNSEEN / self.tried_per_s) if self.tried_per_s else _OWN_S
        own = cpu - self.at(self.cpu, HERE) - (self.at(self.held, HERE) if self.held_burns else 0.0)
        own = max(own, 0.1 * _OWN_S)
        return own if at_most is None else min(own, at_most)


def gather(run: Run, seconds: float) -> Facts | None:
    """The facts of a run; None if there are none."""
    rollouts = taken_apart(list(run))
    if not rollouts or seconds <= 0:
        return None
    count = len(rollouts)
    timings = [rollout.recorded.timing for rollout in rollouts]
    limits = [int(value) for value in _numbers(timings, "limit") if value >= 1]
    limit = max(limits[-1] if limits else _peak(rollouts), 1)
    total_s = fmean(rollout.recorded.total_s for rollout in rollouts)
    attempts = run.kept + run.failed
    full = [int(t["in_flight"] >= t["limit"]) for t in timings if _has_load(t)]
    found = Facts(
        kept=run.kept,
        attempts=attempts,
        seconds=seconds,
        rollouts=rollouts,
        parts=_mean_parts(timings),
        total_s=total_s,
        limit=limit,
        limits=(min(limits, default=limit), max(limits, default=limit)),
        mean_limit=fmean(limits) if limits else limit,
        slots_used=total_s * attempts / seconds,
        full=fmean(full) if full else None,
        model_calls=sum(_numbers(timings, "model_calls")) / count,
        rate_limited=sum(_numbers(timings, "rate_limited")) / count,
        queues={},
        busy_s={},
        cpu={},
        held={},
        processes={},
        threaded=set(),
        cpu_share=_mean(_numbers(timings, "cpu")),
        lag_s=_median(_numbers(timings, "lag_s")),
        read_s=sum(_numbers(timings, "read_s")) / count,
        write_s=_mean(_numbers(timings, "write_s")) or 0.0,
        agent=run.agent,
        windows=_windows(run, rollouts),
    )
    _add_spans(found)
    _add_servers(found)
    return found


def _add_spans(found: Facts) -> None:
    spans = [span for rollout in found.rollouts for span in rollout.spans]
    _add_connections(found, spans)
    for span in spans:
        if span.stage.name not in LIMITERS and (span.queue_s or span.stage.cpu_s):
            found.threaded.add(span.stage.name)
    for span in spans:
        name, share = span.stage.name, 1 / len(found.rollouts)
        place = (span.stage.where, name)
        found.cpu[place] = found.cpu.get(place, 0.0) + span.stage.cpu_s * share
        found.held[place] = found.held.get(place, 0.0) + span.stage.held_s * share
        found.calls[name] = found.calls.get(name, 0.0) + span.calls * share
        limiter = "threads" if name in found.threaded else LIMITERS.get(name)
        if limiter is not None:
            found.queues[limiter] = found.queues.get(limiter, 0.0) + span.queue_s * share
            found.busy_s[limiter] = found.busy_s.get(limiter, 0.0) + (span.end - span.start) * share


def _add_connections(found: Facts, spans: Sequence[Span]) -> None:
    """How long was waited for connections, and how long they were in use; a served rollout holds one all its time."""
    found.connected = {span.stage.name for span in spans if span.connection_s}
    waited: dict[Limit | None, float] = {}
    waits = [(each.limit, each.connection_s) for each in found.rollouts]
    waits += [(span.limit, span.connection_s) for span in spans]
    for limit, seconds in waits:
        waited[limit] = waited.get(limit, 0.0) + seconds
    waited.pop(None, None)
    if not waited:
        return
    found.connection_limit = max(waited, key=lambda limit: waited[limit])
    used = sum(span.end - span.start for span in spans if span.stage.name in found.connected)
    used += sum(each.recorded.total_s - each.connection_s for each in found.rollouts if each.limit is not None)
    found.queues["connection"] = sum(waited.values()) / len(found.rollouts)
    found.busy_s["connection"] = used / len(found.rollouts)


def _add_servers(found: Facts) -> None:
    """A server that does not say how busy it is has time; at the start of a run it cannot know yet."""
    pids: dict[str, set[float]] = {}
    settled = min(each.recorded.start for each in found.rollouts) + min(_SETTLED_S, found.seconds / 2)
    late = [each for each in found.rollouts if each.recorded.start + each.recorded.total_s >= settled]
    for rollout in found.rollouts:
        for name, server in rollout.servers.items():
            pids.setdefault(name, set()).update(server.pids)
    found.processes = {name: len(each) for name, each in pids.items() if each}
    for name in pids:
        told = [rollout.servers[name].shares for rollout in late if name in rollout.servers]
        found.shares[name] = sum(fmean(shares) for shares in told if shares) / max(len(late), 1)


def _has_load(timing: Json) -> bool:
    return all(isinstance(timing.get(name), int | float) for name in ("in_flight", "limit"))


def _windows(run: Run, rollouts: Sequence[Rollout]) -> list[list[Rollout]]:
    readable = {id(rollout.recorded): rollout for rollout in rollouts}
    return [[readable[id(each)] for each in window if id(each) in readable] for window in run.windows]


def _calls(spans: Sequence[Span]) -> list[Call]:
    """With their tokens as a measure of their work, if all have some and they differ."""
    tokens = [span.tokens for span in spans]
    varied = bool(tokens) and min(tokens) > 0 and max(tokens) > 1.1 * min(tokens)
    return [
        Call(span.start + _ROUNDED_S, span.end, span.tokens if varied else 1.0)
        for span in spans
        if span.end > span.start + _ROUNDED_S
    ]


def _peak(rollouts: Sequence[Rollout]) -> int:
    """The most rollouts that ran at once."""
    changes = [(rollout.recorded.start + _ROUNDED_S, 1) for rollout in rollouts]
    changes += [(rollout.recorded.start + rollout.recorded.total_s, -1) for rollout in rollouts]
    level = most = 0
    for _, change in sorted(changes):
        level += change
        most = max(most, level)
    return most


def _mean_parts(timings: Sequence[Json]) -> dict[str, float]:
    sums = dict.fromkeys(PARTS, 0.0)
    for timing in timings:
        try:
            _, parts = timed_parts(timing)
        except HOSTILE:
            continue
        for name, seconds in zip(PARTS, parts, strict=True):
            sums[name] += seconds
    return {name: seconds / len(timings) for name, seconds in sums.items()}


def _numbers(timings: Iterable[Json], name: str) -> list[float]:
    found = [timing.get(name) for timing in timings]
    return [value for value in found if isinstance(value, int | float) and 0 <= value < 1e9]


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _median(values: Sequence[float]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None
