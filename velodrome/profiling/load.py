"""Whether a server gets slower under load: the times of calls, by the number of other calls in flight.

At the start of a run, at its end, and wherever its load varies, some calls meet few others and some meet many. A server
with a queue delays the calls that arrive when many are there; a server that shares its strength slows all of them down.
So the logarithm of a call's time is fitted twice, to the load at its arrival and to the mean load while it ran.
`growth` is the slope: 0 is no effect, 1 is in proportion. The fit allows for the place of a call in its rollout and for
its tokens, because the last calls of a run meet few others and may be longer or shorter than the rest.

A provider with a limit of calls per second refuses more of them (429) under load. Others refuse some calls at any load.
To tell them apart, busy and quiet moments are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velodrome.profiling.stages import Stage, TimedAttempt
from velodrome.records.row_times import PARTS

Array = NDArray[Any]

_LOW, _HIGH = 0.6, 0.85  # shares of the highest load
_TELLING = 0.2  # of a call's time, at a low load
_FEW = 4  # calls that a comparison needs on either side
_SATURATED = 0.5  # a growth
_FREE = 0.25
_MOSTLY = 0.5  # of the highest load: a short peak did not bound the run
_EVEN = 1.25  # times the quickest calls: shorter calls were not slowed down
_MOST_CALLS = 0.95  # quantile: the longest reported time
_SURE = 2.0  # standard errors
_LARGEST = 1.3  # times the doubt, because the larger of two fits is used
_QUICK = 8  # calls, or a quarter of those at once: at the end of a run no more meet a low load

# Of refused calls.
_TRIES = (4, 8, 16)  # in a moment, on average: limits differ in how many they let through at once
_FOLLOWS = 4.0  # standard errors
_FEW_REFUSED = 10  # too few to know
_STRETCHES = 3.0  # times the variance of chance
_BACKOFF = PARTS.index("backoff")


class TimedCall(NamedTuple):
    """One call, from when it was let through to its answer. Calls of one `turn` are alike; 0 tokens: not known."""

    start: float
    end: float
    tokens: float = 0.0
    turn: int = 0


class LoadEffect(NamedTuple):
    """The effect of the load. `growth` is None if the load did not vary enough."""

    growth: float | None
    doubt: float  # by how much the growth may be off
    at_once: int  # calls in flight at the highest load
    usual: float  # calls in flight on average
    low_s: float  # a call's time at a low load
    high_s: float
    per_s: float  # calls answered per second while the load was high

    @property
    def saturated(self) -> bool | None:
        """Whether more calls at once do not lead to more answers; None if that is not known."""
        if self.growth is None:
            return None
        if self.growth >= _SATURATED and self.growth - _LARGEST * self.doubt > _FREE / 2:
            return True if self.usual >= _MOSTLY * self.at_once else None
        # nothing is quicker under load: a negative growth comes from long calls at the end
        return False if abs(self.growth) < _FREE and self.growth + self.doubt < _SATURATED else None

    @property
    def slows(self) -> float:
        """The growth, or 0 if it may be chance: if it is small, or its interval includes 0."""
        if self.growth is None or self.growth < max(_FREE, _LARGEST * self.doubt) or self.high_s <= _EVEN * self.low_s:
            return 0.0
        return self.growth


def load_effect(windows: Sequence[Sequence[TimedCall]], late_s: float = 0.0) -> LoadEffect | None:
    """Compare calls under low and high load, from one window of all calls, or from a first and a last window.

    Answers were read up to `late_s` late, so a difference up to that is ignored.
    """
    edges = ("start", "end") if len(windows) > 1 else ("",)
    loads = [_Load(calls, edge) for calls, edge in zip(windows, edges, strict=True) if calls]
    calls = [call for load in loads for call in load.calls]
    if len(calls) < 2 * _FEW:
        return None
    high = [load.high() for load in loads]
    seconds = sum(each for each, _ in high)
    per_s = float(sum(answers for _, answers in high) / seconds) if seconds > 0 else 0.0
    at_once = int(max(load.most for load in loads))
    usual = sum(load.usual for load in loads) / max(sum(load.lasted for load in loads), 1e-9)
    durations = np.array([call.end - call.start for call in calls])
    median = float(np.median(durations))
    alike = _alike(calls)
    arrival, running = (
        np.concatenate([getattr(load, field) for load in loads]) for field in ("at_arrival", "while_running")
    )
    is_low = np.concatenate([load.was_low for load in loads])
    waiting, sharing = (
        _fit(arrival, arrival <= _LOW * at_once, durations, alike),
        _fit(running, is_low, durations, alike),
    )
    fit = sharing
    if waiting is not None and waiting.growth >= _FREE and (sharing is None or waiting.growth > sharing.growth):
        fit = waiting  # a queue: calls that arrived together would not show it
    if fit is None:
        return LoadEffect(None, 0.0, at_once, usual, float(durations.min()), median, per_s)
    longest_s = float(np.quantile(durations, _MOST_CALLS))
    low_s, high_s = (min(max(each, float(durations.min())), longest_s) for each in (fit.low_s, fit.high_s))
    times = np.sort(fit.times)
    quick_s = times[max(min(_QUICK, at_once // 4, len(times) // 8), 1) - 1]
    if np.median(times) <= _EVEN * quick_s or (fit.growth > 0 and high_s - low_s <= late_s):
        return LoadEffect(0.0, 0.0, at_once, usual, low_s, high_s, per_s)
    return LoadEffect(fit.growth, fit.doubt, at_once, usual, low_s, high_s, per_s)


class _Load:
    """The number of calls in flight over time, and the load of each call.

    Calls in flight at the end of the first window, or at the start of the last, are missing from it. So from the start
    on the load is taken to stay at its highest so far, and before the end to have been at the highest that followed.
    """

    def __init__(self, calls: Sequence[TimedCall], edge: str) -> None:
        self.calls = calls
        changes = sorted([(call.start, 1) for call in calls] + [(call.end, -1) for call in calls])
        self.times = np.array([at for at, _ in changes])
        levels = np.cumsum([change for _, change in changes])
        if edge == "start":
            levels = np.maximum.accumulate(levels)
        elif edge == "end":
            levels = np.maximum.accumulate(levels[::-1])[::-1]
        self.levels: Array = levels
        self.most = levels.max()
        self.lasted = self.times[-1] - self.times[0]
        self.usual = float(levels[:-1] @ np.diff(self.times))  # calls x seconds
        starts, ends = np.array([call.start for call in calls]), np.array([call.end for call in calls])
        self.at_arrival: Array = levels[np.searchsorted(self.times, starts, side="right") - 1]
        self.while_running: Array = np.maximum(self._mean(levels, starts, ends), 1.0)
        self.was_low: Array = self._mean(levels <= _LOW * self.most, starts, ends) > _TELLING

    def _mean(self, levels: Array, starts: Array, ends: Array) -> Array:
        """The mean of `levels` over the time of each call."""
        area = np.concatenate([[0.0], np.cumsum(levels[:-1] * np.diff(self.times))])
        within = np.interp(ends, self.times, area) - np.interp(starts, self.times, area)
        mean: Array = within / np.maximum(ends - starts, 1e-9)
        return mean

    def high(self) -> tuple[float, int]:
        """The time from the first to the last high load, and the number of answers in it."""
        high = np.flatnonzero(self.levels >= _LOW * self.most)
        begin, end = self.times[high[0]], self.times[min(high[-1] + 1, len(self.times) - 1)]
        return float(end - begin), sum(bool(begin < call.end <= end) for call in self.calls)


def _alike(calls: Sequence[TimedCall]) -> Array:
    """Other factors of a call's time: a column for each turn, and one for its tokens."""
    turns = sorted({call.turn for call in calls})
    columns = [[float(call.turn == turn) for call in calls] for turn in turns]
    if all(call.tokens > 0 for call in calls) and len({call.tokens for call in calls}) > len(turns):
        columns.append([np.log(call.tokens) for call in calls])
    return np.array(columns).T


class _Fit(NamedTuple):
    growth: float
    doubt: float
    low_s: float
    high_s: float
    times: Array  # of calls, corrected to a usual call


def _fit(load: Array, is_low: Array, took: Array, alike: Array) -> _Fit | None:
    """Least squares of log(time) = growth x log(load) + other factors of the call."""
    is_high = load >= _HIGH * load.max()
    low_loads, high_loads = np.sort(load[is_low]), load[is_high]
    if len(low_loads) < _FEW or len(high_loads) < _FEW:
        return None
    x, y = np.log(np.maximum(load, 1.0)), np.log(np.maximum(took, 1e-9))
    load_rest, time_rest = (each - alike @ np.linalg.lstsq(alike, each, rcond=None)[0] for each in (x, y))
    squares = float(load_rest @ load_rest)
    if squares <= 1e-9 * len(x):
        return None
    growth = float(load_rest @ time_rest) / squares
    residual = time_rest - growth * load_rest
    error = sqrt(float(residual @ residual) / max(len(x) - alike.shape[1] - 1, 1) / squares)
    times = np.exp(time_rest - time_rest.mean() + y.mean() + growth * (x - load_rest - x.mean()))
    low, high = (float(np.log(each).mean()) for each in (low_loads[:_FEW], high_loads))
    high_s = exp(float(np.log(times[is_high]).mean()))
    low_s = high_s * exp(growth * min(low - high, log(_LOW)))
    return _Fit(growth, _SURE * error, low_s, high_s, times)


class RefusedCalls(NamedTuple):
    """The 429s of a sample: the number, per rollout, as a share of calls, and their share of the back-off."""

    number: int
    per_rollout: float
    share: float
    of_backoff: float
    follow_load: bool | None  # None: not known, because they were few or clustered


def refused_calls(windows: Sequence[Sequence[TimedAttempt]], sample: Sequence[TimedAttempt]) -> RefusedCalls:
    """The refused calls of a sample. Only its last window, after the first end in it, has all tries."""
    times = [each.attempt.times for each in sample]
    number, calls = sum(each.rate_limited for each in times), sum(each.model_calls + each.retries for each in times)
    backoff = [(each.attempt.times.parts[_BACKOFF], _limited(each)) for each in sample]
    of_backoff = sum(s * limited for s, limited in backoff) / (sum(s for s, _ in backoff) or 1.0)
    last_window = windows[-1] if windows else ()
    since = min((each.attempt.end for each in last_window), default=0.0) if len(windows) > 1 else 0.0
    tries = sorted(one for each in last_window for one in _tries(each) if one[0] >= since)
    moments = [_moments(tries, each) for each in _TRIES]
    excess, spread = max(each for each, _ in moments), moments[-1][1]
    follow_load: bool | None = excess >= _FOLLOWS
    if not follow_load and (number < _FEW_REFUSED or excess >= _FOLLOWS / 2 or spread >= _STRETCHES):
        follow_load = None
    return RefusedCalls(number, number / max(len(times), 1), number / max(calls, 1), of_backoff, follow_load)


def _tries(attempt: TimedAttempt) -> list[tuple[float, float]]:
    """The tries of model calls: the time, and the probability that it was refused."""
    limited = _limited(attempt)
    calls = [each for each in attempt.stages if each.name == "model" and each.calls == 1]
    return [(at, limited) for each in calls for at, _ in each.backoffs] + [(last_try(each), 0.0) for each in calls]


def last_try(call: Stage) -> float:
    """The start of a call's last try, which was answered."""
    return call.backoffs[-1][1] if call.backoffs else call.start


def _limited(attempt: TimedAttempt) -> float:
    """The share of its retries that followed a 429; the back-off itself does not record the status."""
    times = attempt.attempt.times
    return times.rate_limited / max(times.retries, times.rate_limited, 1)


def _moments(tries: Sequence[tuple[float, float]], count: int) -> tuple[float, float]:
    """The excess of refusals in busy moments, in standard errors, and their variance relative to chance.

    Moments have equal lengths, with `count` tries on average.
    """
    width_s = (tries[-1][0] - tries[0][0]) * count / len(tries) if tries else 0.0
    if width_s <= 0:
        return 0.0, 0.0
    moment = ((np.array([at for at, _ in tries]) - tries[0][0]) / width_s).astype(int)
    counts = np.bincount(moment).astype(float)
    refused = np.bincount(moment, weights=[each for _, each in tries])[counts > 0]
    counts = counts[counts > 0]
    share, usual = refused.sum() / len(tries), (counts @ counts) / len(tries)
    excess, chance = refused - share * counts, share * (1 - share)
    variance = chance * float(counts @ (counts - usual) ** 2)
    spread = float((excess * excess / counts).sum() / (chance * max(len(counts) - 1, 1))) if chance > 0 else 0.0
    return (float(excess @ (counts - usual)) / sqrt(variance) if variance > 0 else 0.0), spread
