"""How long and how often a call is tried."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from math import inf

MOST_DOUBLINGS = 3  # of the back-off after 429s: with a longer back-off, calls sleep while the server is free


@dataclass(frozen=True, slots=True)
class Retry:
    """How long and how often to try. Back-off before retry n is uniform in 0 … backoff_s * 2**n, capped."""

    max_retries: int = 5  # not counting retries after a 429
    backoff_s: float = 0.5
    backoff_cap_s: float = 30.0
    retry_after_cap_s: float = 120.0
    timeout_s: float = 600.0
    total_timeout_s: float = 1800.0
    rate_limit_timeout_s: float = 600.0  # how long to retry after 429s, from the first one
    replay: bool = True  # whether a request that may have arrived may be sent again

    def delay_s(self, retries: int, jitter: float, retry_after_s: float | None) -> float:
        """How long to wait; Retry-After is a lower bound, so the jitter is added to it."""
        # The exponent is bounded: 2.0**1024 does not exist.
        wait_s = jitter * min(self.backoff_cap_s, self.backoff_s * 2.0 ** min(retries, 64))
        return wait_s if retry_after_s is None else wait_s + min(retry_after_s, self.retry_after_cap_s)


class Unusable(Exception):
    """Raised by a call's `read` if the body of a 2xx is not an answer. The call is retried, as after a 5xx."""


class Tries:
    """The retries of one call, after failures and after 429s (`limited`), and its time limits."""

    __slots__ = ("failed", "limited", "limited_until", "policy", "until")

    def __init__(self, policy: Retry, now: float) -> None:
        self.policy = policy
        self.until = now + policy.total_timeout_s
        self.limited_until = inf
        self.failed = self.limited = 0

    def delay_s(self, jitter: float, retry_after_s: float | None, *, limited: bool) -> float:
        """How long to wait before the next try."""
        doublings = min(self.limited, MOST_DOUBLINGS) if limited else self.failed
        return self.policy.delay_s(doublings, jitter, retry_after_s)

    def over(self, now: float, delay_s: float, *, limited: bool) -> str | None:
        """None if the call may be retried after the delay; otherwise the reason, which may be empty."""
        policy, until, within_s = self.policy, self.until, self.policy.total_timeout_s
        if not policy.rate_limit_timeout_s if limited else self.failed >= policy.max_retries:
            return ""
        if limited and not self.limited:
            self.limited_until = now + policy.rate_limit_timeout_s
        if limited and self.limited_until < until:
            until, within_s = self.limited_until, policy.rate_limit_timeout_s
        return f" (no time for another within {within_s:g} s)" if now + delay_s >= until else None

    def count(self, *, limited: bool) -> None:
        """Count a retry."""
        self.limited += limited
        self.failed += not limited


def passes(status: int) -> bool:
    """Whether an error status may be temporary."""
    return status in (408, 429) or (status >= 500 and status != 501)


def retry_after_s(header: str | None, now: float) -> float | None:
    """Seconds to wait, from either form of Retry-After; None if the header is missing or invalid."""
    if not header:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            date = parsedate_to_datetime(header)
        except ValueError:
            return None
        seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now
    return max(seconds, 0.0) if seconds == seconds else None  # NaN is not a time
