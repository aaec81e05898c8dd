"""The observations of one run, for the rules of the verdict. Each number is a mean over sampled attempts.

A number that is not in the file is None.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property

from velodrome.profiling.load import LoadEffect, TimedCall, last_try, load_effect, refused_calls
from velodrome.profiling.sample import RunSample
from velodrome.profiling.stages import CONNECTION, HERE, THREADS, Limiters, Stage, TimedAttempt, read_attempts
from velodrome.records.row_times import PARTS
from velodrome.stats.stretches import Stretches

Used = dict[tuple[str, str], float]  # seconds per rollout, by process and stage

_ROUNDED_S = 2e-6  # times are rounded: successive calls must not seem to overlap
_OWN_S = 0.0005  # of the collector's CPU per rollout, if it is not in the file
_WARM_UP_S = 1.0
_OVERLAP = 1.2  # slots in use
_ROUNDS = 1.5  # rollouts for each slot
_UNSEEN = 0.3  # of the time, at most


class Observed:
    """One run that took `seconds`. Times are seconds per rollout; `cpu` and `held` are by process and stage."""

    def __init__(self, sample: RunSample, seconds: float) -> None:
        windows, fair = sample.windows, sample.fair
        attempts = list({id(each): each for each in (*fair, *(each for window in windows for each in window))}.values())
        limiters = Limiters(attempts)
        timed = read_attempts(attempts, limiters)
        self.windows = [[timed[id(each)] for each in window if id(each) in timed] for window in windows]
        self.rollouts = [timed[id(each)] for each in fair if id(each) in timed]
        self.limiters, self.limited = limiters.seen, limiters.of
        self._effects: dict[str, LoadEffect | None] = {}
        self.kept, self.attempts = sample.kept, sample.kept + sample.failed
        self.seconds, self.agent = seconds, sample.agent
        self.per_s = self.kept / seconds  # rollouts kept per second
        self.tried_per_s = self.attempts / seconds  # failed attempts use slots and CPU as well
        self.total_s = sample.total_s / self.attempts
        self.parts = {name: s / self.attempts for name, s in zip(PARTS, sample.parts, strict=True)}
        times = [each.attempt.times for each in self.rollouts]
        count = max(len(times), 1)
        limits = [int(each.limit) for each in times if each.limit and each.limit >= 1]
        self.limit = max(limits[-1] if limits else _peak(self.rollouts), 1)
        self.limits = (min(limits, default=self.limit), max(limits, default=self.limit))
        self.steady = self.limits[0] == self.limits[1]  # whether the limit did not change
        self.mean_limit = sum(limits) / len(limits) if limits else float(self.limit)
        self.slots_used = sample.total_s / seconds
        loads = [(each.in_flight, each.limit) for each in times]
        # share of rollouts at whose end every slot was in use
        self.full = _mean([int(used >= limit) for used, limit in loads if used is not None and limit is not None])
        self.model_calls = sum(each.model_calls for each in times) / count
        self.refusals = refused_calls(self.windows, self.rollouts)
        self.workers = max((each.workers for each in times), default=1)
        self.cpu_share = _mean([each.cpu for each in times if each.cpu is not None])
        lags = sorted(each.lag_s for each in times if each.lag_s is not None)
        self.lag_s = lags[len(lags) // 2] if lags else None
        self.read_s = sum(each.read_s for each in times) / count
        self.write_s = _mean([each.write_s for each in times if each.write_s is not None]) or 0.0
        self._add_stages([stage for timed in self.rollouts for stage in timed.stages], count)
        self._add_servers()

    def _add_stages(self, stages: Sequence[Stage], count: int) -> None:
        self.cpu: Used = defaultdict(float)
        self.held: Used = defaultdict(float)
        self.calls: dict[str, float] = defaultdict(float)
        self.waits: dict[str, float] = defaultdict(float)  # for others, by stage
        self.queues: dict[str, float] = defaultdict(float)  # by limiter
        self.busy_s: dict[str, float] = defaultdict(float)  # in each limiter's places
        self.connected = {each.name for each in stages if each.connection_s}
        for each in stages:
            if each.cpu_s:  # code in a thread of the environment
                self.limited.setdefault(each.name, THREADS)
        for each in stages:
            if each.cpu_s or each.held_s:
                self.cpu[each.where, each.name] += each.cpu_s / count
                self.held[each.where, each.name] += each.held_s / count
            self.calls[each.name] += each.calls / count
            self.waits[each.name] += each.wait_s / count
            limiter = self.limited.get(each.name)
            if limiter is not None:
                self.queues[limiter] += each.queue_s / count
                self.busy_s[limiter] += each.seconds / count
        if CONNECTION in self.limiters:  # a served rollout holds a connection all its time
            reaching = [each for each in self.rollouts if each.connection_s]
            used = sum(each.seconds for each in stages if each.name in self.connected)
            used += sum(each.attempt.total_s - each.connection_s for each in reaching)
            self.queues[CONNECTION], self.busy_s[CONNECTION] = self.parts["connection"], used / count
        queued_s = sum(each.attempt.times.parts[PARTS.index("queue")] for each in self.rollouts) / count
        for name in self.queues.keys() - {CONNECTION}:  # as much in all as the part of all attempts
            self.queues[name] *= self.parts["queue"] / queued_s if queued_s else 1.0

    def _add_servers(self) -> None:
        """Add the processes and the load of servers. A server that reports no load is idle; the warm-up is left out."""
        begun = min((each.attempt.start for each in self.rollouts), default=0.0)
        warm = begun + min(_WARM_UP_S, self.seconds / 2)
        late = [each for each in self.rollouts if each.attempt.end >= warm]
        names = {name for each in self.rollouts for name in each.pids}
        pids = {name: set().union(*(each.pids.get(name, ()) for each in self.rollouts)) for name in names}
        self.processes = {name: len(each) for name, each in pids.items() if each}
        if self.workers > 1:
            self.processes[HERE] = self.workers
        self.shares: dict[str, float] = {}  # of a core, as reported by a server's processes
        for name in names:
            shares = [_mean(each.shares.get(name, ())) or 0.0 for each in late]
            self.shares[name] = sum(shares) / max(len(late), 1)

    @property
    def model(self) -> LoadEffect | None:
        """The effect of the load on the model."""
        return self.effect("model")

    @property
    def model_in_process(self) -> bool:
        """Whether the model answers in the collector's own process, and not over HTTP."""
        calls = [each for taken in self.rollouts for each in taken.stages if each.name == "model"]
        return bool(calls) and not any(each.remote or each.where != HERE for each in calls)

    @cached_property
    def model_use(self) -> float:
        """The share of the time in which the model had at least one call to answer."""
        used = lasted = 0.0
        for window in self.windows:
            busy = Stretches(gap_s=0.0)
            calls = [each for taken in window for each in taken.stages if each.name == "model"]
            for each in calls:
                busy.add(each.start, each.end)
            used += busy.seconds
            lasted += max(each.end for each in calls) - min(each.start for each in calls) if calls else 0.0
        return used / lasted if lasted > 0 else 0.0

    def effect(self, name: str) -> LoadEffect | None:
        """The effect of the load on one stage, without calls that were folded into one span."""
        if name not in self._effects:
            windows = [[call for taken in window for call in _calls(taken, name)] for window in self.windows]
            if len(windows) > 1:  # of the last window no short call is missing that began in it; of the first many long
                since = min(each.attempt.end for each in self.windows[-1])
                first = windows[0] if _ROUNDS * self.limit <= len(self.windows[0]) else []
                windows = [first, [call for call in windows[-1] if call.start >= since]]
            self._effects[name] = load_effect(windows, self.lag_s or 0.0)
        return self._effects[name]

    @property
    def one_by_one(self) -> bool:
        """Whether rollouts ran one after another although all slots were in use: something blocked the event loop."""
        return self.limits[0] > 1 and self.full is not None and self.full > 0.8 and self.slots_used < _OVERLAP

    def at(self, of: Used, where: str) -> float:
        """The sum over all stages in one process."""
        return sum(seconds for (place, _), seconds in of.items() if place == where)

    def busy(self, where: str) -> float:
        """The share of time that the processes of a server spent on the user's code."""
        used = self.at(self.cpu, where) + self.at(self.held, where)
        return used * self.tried_per_s / self.processes.get(where, 1)

    @property
    def cpu_is_parallel(self) -> bool:
        """Whether threads used more than one core per process, so their code does not need the interpreter."""
        return self.tried_per_s * self.at(self.cpu, HERE) > 1.1 * self.workers

    @property
    def held_burns(self) -> bool:
        """Whether code that blocks the event loop computes, and does not wait."""
        held, cpu = self.at(self.held, HERE), self.cpu_s
        return cpu is not None and held > 0 and cpu - self.at(self.cpu, HERE) > 0.6 * held

    @property
    def cpu_s(self) -> float | None:
        """CPU of the collector's process, or of its workers, per rollout."""
        return None if self.cpu_share is None else self.cpu_share * self.workers / self.tried_per_s

    @property
    def own_s(self) -> float:
        """CPU per rollout of the event loop itself, without the user's code."""
        cpu = self.cpu_s
        if cpu is None:  # unknown: too little to bound the run
            return min(_OWN_S, _UNSEEN / self.tried_per_s)
        own = cpu - self.at(self.cpu, HERE) - (self.at(self.held, HERE) if self.held_burns else 0.0)
        return max(own, 0.1 * _OWN_S)


def _calls(rollout: TimedAttempt, name: str) -> Iterator[TimedCall]:
    """The calls of one stage, from their last try on. `turn` marks the first and the last of a rollout."""
    stages = sorted([each for each in rollout.stages if each.name == name], key=lambda each: each.start)
    for place, each in enumerate(stages, 1):
        begun = last_try(each) + _ROUNDED_S
        if each.calls == 1 and each.end > begun:
            yield TimedCall(begun, each.end, each.tokens, (place == 1) + 2 * (place == len(stages)))


def _peak(rollouts: Sequence[TimedAttempt]) -> int:
    """The most rollouts that ran at once."""
    changes = [(each.attempt.start + _ROUNDED_S, 1) for each in rollouts]
    changes += [(each.attempt.end, -1) for each in rollouts]
    level = highest = 0
    for _, change in sorted(changes):
        level += change
        highest = max(highest, level)
    return highest


def _mean(values: Sequence[float] | tuple[()]) -> float | None:
    return sum(values) / len(values) if values else None
