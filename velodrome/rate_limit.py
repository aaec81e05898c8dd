"""Requests and tokens per minute: the bookkeeping, by a clock that it is given. Who waits, and where, is in `rates`.

What a call costs in tokens is known when it is answered. Until then it counts as much as calls did of late; the
difference is settled afterwards. A bucket spreads the calls over time, and what the last minute has used is added up:
with what its running calls can cost more than expected, it stays within 2% of the limit.
"""

from __future__ import annotations

from itertools import count
from math import sqrt
from typing import NamedTuple

REQUESTS, TOKENS = "requests_per_minute", "tokens_per_minute"
_MINUTE_S = 60.0
_BURST_S = 0.5  # that may be saved up while nothing is asked: a minute has at most 60.5 seconds' worth
PATIENCE_S = 0.25  # until a call that waits looks again: an answer may have left tokens
_ABOVE = 1.02  # of the tokens of a minute, at the most
_ENOUGH = 20  # calls whose cost is known, before their mean is used
_WEIGHT, _FAST_WEIGHT = 0.002, 0.05  # of the last call in what the next one is expected to cost
_CHANGED = 0.8  # standard deviations between the two: calls cost something else now
_SPREAD = 2.5  # standard deviations of what running calls cost together


class Permit(NamedTuple):
    """Leave for one call: the tokens that were counted for it, and which limit it waited for, if any.

    `guessed`: too little was known of what calls cost. `unused`: no call was made with it.
    """

    tokens: float = 0.0
    waited_for: str = ""
    guessed: bool = False
    number: int = 0
    unused: bool = False


class Bucket:
    """Fills steadily, up to `_BURST_S`; what is taken beyond that is a debt that the next ones wait for.

    What is given back may fill it further.
    """

    def __init__(self, per_minute: float, least: float) -> None:
        self.per_s = per_minute / _MINUTE_S
        self._most = max(self.per_s * _BURST_S, least)
        self.level = self._most
        self._at: float | None = None

    def wait_s(self, now: float, amount: float) -> float:
        """How long until so much can be taken; a larger amount than fits waits for a full bucket."""
        if self._at is not None:
            self.level = max(self.level, min(self._most, self.level + (now - self._at) * self.per_s))
        self._at = now
        return max(0.0, (min(amount, self._most) - self.level) / self.per_s)


class Costs:
    """What calls cost in tokens: the mean, which follows a change at once, and how much they vary."""

    def __init__(self) -> None:
        self.known = 0
        self.mean = self.largest = 0.0
        self._fast_mean = self._variance = 0.0

    def add(self, tokens: float) -> None:
        self.known += 1
        weight = max(_WEIGHT, 1 / self.known)
        self._variance += weight * ((tokens - self.mean) ** 2 - self._variance)
        self.mean += weight * (tokens - self.mean)
        self._fast_mean += max(_FAST_WEIGHT, 1 / self.known) * (tokens - self._fast_mean)
        if abs(self._fast_mean - self.mean) > _CHANGED * self.deviation:
            self.mean = self._fast_mean
        self.largest = max(self.largest, tokens)

    @property
    def deviation(self) -> float:
        return sqrt(self._variance)


class LastMinute:
    """The calls of the last minute, by number: when each was let through, its tokens, and whether it is running."""

    def __init__(self) -> None:
        self.tokens = 0.0  # of all: what they cost, or are expected to
        self.running = 0
        self._calls: dict[int, tuple[float, float, bool]] = {}

    def add(self, number: int, now: float, tokens: float) -> None:
        self._calls[number] = now, tokens, True
        self.tokens += tokens
        self.running += 1

    def settle(self, number: int, tokens: float) -> None:
        if number in self._calls:
            began, expected, running = self._calls[number]
            self._calls[number] = began, tokens, False
            self.tokens += tokens - expected
            self.running -= running

    def forget(self, now: float) -> None:
        """Drop what is older than a minute."""
        while self._calls:
            number = next(iter(self._calls))
            began, tokens, running = self._calls[number]
            if began > now - _MINUTE_S:
                return
            del self._calls[number]
            self.tokens -= tokens
            self.running -= running


class RateLimit:
    """Requests and tokens of a run, by the clock of the caller. None is no limit."""

    def __init__(self, requests_per_minute: int | None, tokens_per_minute: int | None) -> None:
        self.limits = {REQUESTS: requests_per_minute, TOKENS: tokens_per_minute}
        self._requests = None if requests_per_minute is None else Bucket(requests_per_minute, 1.0)
        self._tokens = None if tokens_per_minute is None else Bucket(tokens_per_minute, tokens_per_minute / 30)
        self._costs, self._minute = Costs(), LastMinute()
        self._numbers = count(1)

    @property
    def _cost(self) -> float:
        """What a call is expected to cost: at first much, so that few are let through before it is known."""
        if self._costs.known >= _ENOUGH or self._tokens is None:
            return self._costs.mean
        return self._costs.largest if self._costs.known else self._tokens.per_s

    def _is_full(self, now: float, cost: float) -> bool:
        """Whether the last minute can have more tokens with one more call than it may."""
        if self._tokens is None:
            return False
        self._minute.forget(now)
        more = _SPREAD * self._costs.deviation * sqrt(self._minute.running + 1)
        used = self._minute.tokens
        return used > 0 and used + cost + more > _ABOVE * _MINUTE_S * self._tokens.per_s

    def take(self, now: float) -> tuple[float, Permit]:
        """A permit for one call; or how long to wait before asking again, and for which limit."""
        wait_s, why, cost = 0.0, "", self._cost
        for bucket, amount, name in ((self._requests, 1.0, REQUESTS), (self._tokens, cost, TOKENS)):
            if bucket is not None and (least_s := bucket.wait_s(now, amount)) > wait_s:
                wait_s, why = least_s, name
        if wait_s <= 1e-9 and self._is_full(now, cost):
            wait_s, why = PATIENCE_S, TOKENS
        if wait_s > 1e-9:  # else a rounding error of the clock
            return wait_s, Permit(0.0, why)
        permit = Permit(cost, guessed=self._costs.known < _ENOUGH, number=next(self._numbers))
        if self._requests is not None:
            self._requests.level -= 1
        if self._tokens is not None:
            self._tokens.level -= cost
            self._minute.add(permit.number, now, cost)
        return 0.0, permit

    def settle(self, permit: Permit, tokens: int | None) -> None:
        """The call of this permit has used so many tokens; None if it failed."""
        if permit.unused and self._requests is not None:
            self._requests.level += 1
        if self._tokens is not None:
            left = permit.tokens - (tokens or 0)
            keeps = permit.guessed and not permit.unused  # a guess leaves no savings to spend
            self._tokens.level += min(left, 0.0) if keeps else left
            self._minute.settle(permit.number, tokens or 0.0)
            if tokens is not None:
                self._costs.add(tokens)
