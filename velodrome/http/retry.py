"""How long and how often a call is tried."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime

import aiohttp

CONNECT_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Retry:
    """How long and how often to try. Back-off before retry n is uniform in 0 … backoff_s * 2**n, capped."""

    max_retries: int = 5
    backoff_s: float = 0.5
    backoff_cap_s: float = 30.0
    retry_after_cap_s: float = 120.0
    timeout_s: float = 600.0
    total_timeout_s: float = 1800.0
    replay: bool = True  # whether a request that may have arrived may be sent again
    first_timeout: aiohttp.ClientTimeout = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "first_timeout", self.timeout(self.total_timeout_s))

    def timeout(self, left_s: float) -> aiohttp.ClientTimeout:
        """The timeout of one attempt, with so much of the whole left."""
        total_s = min(self.timeout_s, left_s)
        return aiohttp.ClientTimeout(total=total_s, sock_connect=min(CONNECT_TIMEOUT_S, total_s))

    def delay_s(self, retries: int, jitter: float, retry_after_s: float | None) -> float:
        """How long to wait; Retry-After is a lower bound, so the jitter goes on top of it."""
        # The exponent is bounded: 2.0**1024 does not exist.
        wait_s = jitter * min(self.backoff_cap_s, self.backoff_s * 2.0 ** min(retries, 64))
        return wait_s if retry_after_s is None else wait_s + min(retry_after_s, self.retry_after_cap_s)


def retry_after_s(header: str | None, now: float) -> float | None:
    """Seconds to wait, from either form of Retry-After; None if there is none that makes sense."""
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
