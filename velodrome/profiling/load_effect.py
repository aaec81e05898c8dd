"""Whether something gets slower when it is asked more at once: how long calls took, by how many others ran meanwhile.

At the start of a run, at its end, and wherever its load varies, some calls meet few others and some meet many. A server
with a queue delays the calls that arrive when many are there; a server that shares its strength slows all of them down.
Either shows as a time that grows with the load. `growth` is the power: 0 not at all, 1 in proportion. What is about
as quick most of the time as it ever was does not get slower, whatever a few calls seem to say.

At the end of a run few others are left, and the calls are the last of their rollouts, which may be longer or shorter
than others whatever the load. So a call is compared with what a call like it takes at a high load: one at the same
place in its rollout, with as many tokens as far as those are seen to take time.

A provider that allows so many calls a second refuses more of them (429) when more are asked. One that refuses some at
any load does not, and answers more with more in flight. So busy and quiet moments are compared.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from math import exp, log, sqrt
from typing import NamedTuple

from velodrome.profiling.attempts import TimedAttempt
from velodrome.records.row_times import PARTS

_SOME, _LOW, _HIGH = 0.35, 0.6, 0.85  # shares of the highest load
_FEW = 4  # calls that a comparison needs on either side
_SATURATED = 0.5
_MOSTLY = 0.5  # of the highest load: a short peak did not bound the run
_FREE = 0.25
_EVEN = 1.25  # times the quickest calls: what takes no longer has not been slowed down
_MOST_CALLS = 0.95  # take no longer than is reported
_SURE = 2.0  # standard errors
_LARGEST = 1.3  # times the doubt: what is called slower is the largest growth of three comparisons
_QUICK = 8  # so many calls, or a quarter of those at once: at the end of a run no more meet a low load

# Of refused calls.
_TRIES = (4, 8, 16)  # in a moment, on average: limits differ in how many they let through at once
_FOLLOWS = 4.0  # standard errors
_FEW_REFUSED = 10  # tell nothing
_STRETCHES = 3.0  # times the variance of chance
_BACKOFF = PARTS.index("backoff")

Try = tuple[float, float]  # when, and whether it was refused: a share where other errors were tried again, too


class TimedCall(NamedTuple):
    """One call, from when it was let through to its answer. Calls of one `turn` are alike; 0 tokens: not known."""

    start: float
    end: float
    tokens: float = 0.0
    turn: int = 0
    work: float = 1.0  # what a call like it takes at a high load


class LoadEffect(NamedTuple):
    """What the load does. `growth` is None when the load did not vary enough to tell."""

    growth: float | None
    doubt: float  # by how much the growth may be off
    at_once: int  # calls in flight at the highest load
    usual: float  # calls in flight on average
    low_s: float  # a call's time at a low load
    high_s: float
    per_s: float  # calls answered per second while the load was high

    @property
    def saturated(self) -> bool | None:
        """None: not known."""
        if self.growth is None:
            return None
        if self.growth >= _SATURATED and self.growth - _LARGEST * self.doubt > _FREE / 2:
            return True if self.usual >= _MOSTLY * self.at_once else None
        return False if self.growth < _FREE and self.growth + self.doubt < _SATURATED else None

    @property
    def slows(self) -> float:
        """The growth that counts: a small one, or one whose interval holds 0, may be chance."""
        if self.growth is None or self.growth < max(_FREE, _LARGEST * self.doubt) or self.high_s <= _EVEN * self.low_s:
            return 0.0
        return self.growth


class _Growth(NamedTuple):
    growth: float
    doubt: float
    low_s: float
    high_s: float


def load_effect(windows: Sequence[Sequence[TimedCall]], late_s: float = 0.0) -> LoadEffect | None:
    """Compare calls under low and high load, of one window that holds all, or of one of the first and one of the last.

    Answers were read up to `late_s` late: a difference no larger than that is not the server's.
    """
    edges = ("start", "end") if len(windows) > 1 else ("",)
    loads = [_Load(calls, edge) for calls, edge in zip(windows, edges, strict=True) if calls]
    if sum(len(load.calls) for load in loads) < 2 * _FEW:
        return None
    high = [load.high() for load in loads]
    seconds = sum(each for each, _ in high)
    per_s = sum(answers for _, answers in high) / seconds if seconds > 0 else 0.0
    at_once = max(load.most for load in loads)
    _weigh(loads, at_once)
    usual = sum(load.low_area + load.high_area for load in loads) / max(sum(load.lasted for load in loads), 1e-9)
    work = _mean([call.work for load in loads for call in load.calls])
    times = sorted([(call.end - call.start) * work / call.work for load in loads for call in load.calls])
    median = _median(times)
    waiting, sharing = _by_arrival(loads, work), _by_speed(loads, work)
    shown = sharing
    if waiting is not None and waiting.growth >= _FREE and (sharing is None or waiting.growth > sharing.growth):
        shown = waiting
    real = sorted([call.end - call.start for load in loads for call in load.calls])
    if shown is None:
        return LoadEffect(None, 0.0, at_once, usual, real[0], _median(real), per_s)
    longest_s = real[int(_MOST_CALLS * (len(real) - 1))]
    low_s, high_s = (min(max(each, real[0]), longest_s) for each in (shown.low_s, shown.high_s))
    quick_s = times[max(min(_QUICK, at_once // 4, len(times) // 8), 1) - 1]
    if median <= _EVEN * quick_s or (shown.growth > 0 and high_s - low_s <= late_s):
        return LoadEffect(0.0, 0.0, at_once, usual, low_s, high_s, per_s)
    return LoadEffect(shown.growth, shown.doubt, at_once, usual, low_s, high_s, per_s)


class _Load:
    """How many calls were in flight, at any time.

    Calls in flight at the end of the first window, or at the start of the last, are missing from it. So from the start
    on the load is taken to stay at its highest so far, and before the end to have been at the highest that followed.
    """

    def __init__(self, calls: Sequence[TimedCall], edge: str) -> None:
        self.calls = calls
        changes = sorted([(call.start, 1) for call in calls] + [(call.end, -1) for call in calls])
        self._times = [at for at, _ in changes]
        self._levels: list[int] = []
        level = 0
        for _, change in changes:
            level += change
            self._levels.append(level)
        if edge == "start":
            self._levels = list(accumulate(self._levels, max))
        elif edge == "end":
            self._levels = list(accumulate(reversed(self._levels), max))[::-1]
        self.most = max(self._levels)
        self.lasted = self._times[-1] - self._times[0]
        low = _LOW * self.most
        self._low_s = [0.0]  # up to each change: how long the load was low
        self.low_area = self.low_square = self.high_area = self.high_square = 0.0
        for level, begun, end in zip(self._levels, self._times, self._times[1:], strict=False):
            lasted = end - begun
            if level <= low:
                self._low_s.append(self._low_s[-1] + lasted)
                self.low_area += level * lasted
                self.low_square += level * level * lasted
            else:
                self._low_s.append(self._low_s[-1])
                self.high_area += level * lasted
                self.high_square += level * level * lasted

    def at(self, time: float) -> int:
        """Calls in flight when one began, itself included."""
        return self._levels[bisect_right(self._times, time) - 1]

    def low_s(self, call: TimedCall) -> float:
        """For how long of a call the load was low."""
        return self._low_until(call.end) - self._low_until(call.start)

    def _low_until(self, time: float) -> float:
        index = bisect_right(self._times, time) - 1
        rest = time - self._times[index] if self._levels[index] <= _LOW * self.most else 0.0
        return self._low_s[index] + rest

    def high(self) -> tuple[float, int]:
        """From when the load first was high to when it last was: how long, and how many answers came."""
        high = [index for index, level in enumerate(self._levels) if level >= _LOW * self.most]
        begin, end = self._times[high[0]], self._times[min(high[-1] + 1, len(self._times) - 1)]
        return end - begin, sum([begin < call.end <= end for call in self.calls])


def _weigh(loads: Sequence[_Load], most: int) -> None:
    """Give every call its work: the mean of its turn among calls that began at a high load, and a time per token.

    The time per token is the least-squares slope within turns; one that may be chance counts as none.
    """
    turns: dict[int, list[tuple[float, float]]] = {}
    for load in loads:
        for call in load.calls:
            if load.at(call.start) >= _HIGH * most:
                turns.setdefault(call.turn, []).append((call.tokens, call.end - call.start))
    turns = {turn: points for turn, points in turns.items() if len(points) >= _FEW}
    means = {turn: tuple(map(_mean, zip(*points, strict=True))) for turn, points in turns.items()}
    apart = [(x - means[turn][0], y - means[turn][1]) for turn, points in turns.items() for x, y in points]
    squares = sum([x * x for x, _ in apart])
    slope = sum([x * y for x, y in apart]) / squares if squares else 0.0
    left = sum([(y - slope * x) ** 2 for x, y in apart]) / max(len(apart) - len(turns) - 1, 1)
    has_tokens = all(call.tokens > 0 for load in loads for call in load.calls)
    if not has_tokens or slope * sqrt(squares) <= _SURE * sqrt(left):
        slope = 0.0
    usual = _mean([call.end - call.start for load in loads for call in load.calls])
    for load in loads:
        load.calls = [call._replace(work=_work(call, means.get(call.turn), slope, usual)) for call in load.calls]


def _work(call: TimedCall, mean: tuple[float, ...] | None, slope: float, usual: float) -> float:
    if mean is None:  # too few like it
        return usual
    tokens, seconds = mean
    if slope * tokens >= seconds:  # in proportion: nothing takes less than no time
        return seconds * call.tokens / tokens
    return seconds + slope * (call.tokens - tokens)


def _by_arrival(loads: Sequence[_Load], work: float) -> _Growth | None:
    """Compare calls that came when few were there with those that came when many were: a queue."""
    most = max(load.most for load in loads)
    points = sorted(
        [(load.at(call.start), (call.end - call.start) * work / call.work) for load in loads for call in load.calls]
    )
    high = [point for point in points if point[0] >= _HIGH * most]
    few = [point for point in points if point[0] <= _LOW * most]
    some = [point for point in few if point[0] >= _SOME * most]  # a queue may form only from so many on
    growths = [_compared(low, high) for low in (few[: max(_FEW, len(few) // 3)], some)]
    return max((each for each in growths if each is not None), key=lambda each: each.growth, default=None)


def _compared(low: list[tuple[int, float]], high: list[tuple[int, float]]) -> _Growth | None:
    """Geometric means, whose logarithms have a known error; the variance is that of both together."""
    if len(low) < _FEW or len(high) < _FEW:
        return None
    logs = [[log(max(took, 1e-9)) for _, took in points] for points in (low, high)]
    means = [_mean(each) for each in logs]
    squares = sum([(value - mean) ** 2 for each, mean in zip(logs, means, strict=True) for value in each])
    error = sqrt(squares / (len(low) + len(high) - 2) * (1 / len(low) + 1 / len(high)))
    loads = [_mean([float(load) for load, _ in points]) for points in (low, high)]
    return _growth(loads[0], loads[1], exp(means[0]), exp(means[1]), error)


def _by_speed(loads: Sequence[_Load], work: float) -> _Growth | None:
    """How fast calls proceed while the load is low and while it is high, by least squares: a shared server.

    Of each call, work = speed when low x time when low + speed when high x time when high.
    """
    a = b = c = d = e = 0.0
    telling = count = 0
    for load in loads:
        for call in load.calls:
            low = load.low_s(call) / call.work
            high = max(call.end - call.start - low * call.work, 0.0) / call.work
            a, b, c, d, e = a + low * low, b + low * high, c + high * high, d + low, e + high
            telling += low > 0.2 * (low + high)
            count += 1
    determinant = a * c - b * b
    if telling < _FEW or determinant <= 1e-9 * a * c:
        return None
    low_speed, high_speed = (c * d - b * e) / determinant, (a * e - b * d) / determinant
    low_area, high_area = sum(load.low_area for load in loads), sum(load.high_area for load in loads)
    if low_speed <= 0 or high_speed <= 0 or low_area <= 0 or high_area <= 0:
        return None
    low_load = sum(load.low_square for load in loads) / low_area
    high_load = sum(load.high_square for load in loads) / high_area
    left = max(count - low_speed * d - high_speed * e, 0.0) / max(count - 2, 1)  # the squares that are left over
    spread = c / low_speed**2 + a / high_speed**2 + 2 * b / (low_speed * high_speed)
    error = sqrt(left * max(spread, 0.0) / determinant)
    return _growth(low_load, high_load, work / low_speed, work / high_speed, error)


def _growth(low_load: float, high_load: float, low_s: float, high_s: float, error: float) -> _Growth | None:
    """`error` is the standard error of the logarithm of high_s / low_s."""
    if min(low_s, high_s, low_load) <= 0 or high_load <= low_load:
        return None
    loads = log(high_load / low_load)
    return _Growth(log(high_s / low_s) / loads, _SURE * error / loads, low_s, high_s)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _median(ordered: Sequence[float]) -> float:
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


class RefusedCalls(NamedTuple):
    """The 429s of a sample: in all, per rollout, as a share of all calls, and the share of the back-off they caused."""

    number: int
    per_rollout: float
    share: float
    of_backoff: float
    follow_load: bool | None  # None: not known, since they were few, or came in stretches


def refused_calls(windows: Sequence[Sequence[TimedAttempt]], sample: Sequence[TimedAttempt]) -> RefusedCalls:
    """`windows` are those of a run's sample; only of the last are all tries known, from its first end on."""
    times = [each.attempt.times for each in sample]
    number, calls = sum(each.rate_limited for each in times), sum(each.model_calls + each.retries for each in times)
    backoff = [(each.attempt.times.parts[_BACKOFF], _limited(each)) for each in sample]
    of_backoff = sum(s * limited for s, limited in backoff) / (sum(s for s, _ in backoff) or 1.0)
    known = windows[-1] if windows else ()
    since = min((each.attempt.end for each in known), default=0.0) if len(windows) > 1 else 0.0
    tries = sorted(one for each in known for one in _tries(each) if one[0] >= since)
    moments = [_moments(tries, each) for each in _TRIES]
    excess = max(map(_excess, moments))
    follow_load: bool | None = excess >= _FOLLOWS
    if not follow_load and (number < _FEW_REFUSED or excess >= _FOLLOWS / 2 or _spread(moments[-1]) >= _STRETCHES):
        follow_load = None
    return RefusedCalls(number, number / max(len(times), 1), number / max(calls, 1), of_backoff, follow_load)


def _tries(attempt: TimedAttempt) -> list[Try]:
    """Every try of a model call in one attempt. Nothing tells the back-off after a 429 from that after a 500."""
    limited = _limited(attempt)
    calls = [each for each in attempt.stages if each.stage.name == "model" and each.calls == 1]
    tries = [(at, limited) for each in calls for at, _ in each.backoffs]
    return tries + [(each.backoffs[-1][1] if each.backoffs else each.start, 0.0) for each in calls]


def _limited(attempt: TimedAttempt) -> float:
    """The share of its retries that followed a 429."""
    times = attempt.attempt.times
    return times.rate_limited / max(times.retries, times.rate_limited, 1)


def _moments(tries: Sequence[Try], count: int) -> list[list[float]]:
    """The tries by when they were made, in moments of equal length that have so many on average."""
    moments: dict[int, list[float]] = {}
    width_s = (tries[-1][0] - tries[0][0]) * count / len(tries) if tries else 0.0
    for at, refused in tries if width_s > 0 else ():
        moments.setdefault(int((at - tries[0][0]) / width_s), []).append(refused)
    return list(moments.values())


def _excess(moments: Sequence[Sequence[float]]) -> float:
    """How many standard errors more were refused in busy moments than chance alone would have."""
    tries = sum(map(len, moments)) or 1
    share = sum(map(sum, moments)) / tries
    usual = sum(len(each) ** 2 for each in moments) / tries
    excess = sum((sum(each) - share * len(each)) * (len(each) - usual) for each in moments)
    variance = share * (1 - share) * sum(len(each) * (len(each) - usual) ** 2 for each in moments)
    return excess / sqrt(variance) if variance > 0 else 0.0


def _spread(moments: Sequence[Sequence[float]]) -> float:
    """How many times what chance alone gives the numbers of refused calls differ between moments."""
    share = sum(map(sum, moments)) / (sum(map(len, moments)) or 1)
    usual = share * (1 - share) * max(len(moments) - 1, 1)
    return sum((sum(each) - share * len(each)) ** 2 / len(each) for each in moments) / usual if usual > 0 else 0.0
