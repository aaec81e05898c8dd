"""Limits of a pool's concurrent calls: in total, and per host. aiohttp's own limit is off.

A wait is recorded as a span `connection` whose count names the limit. A call that does not wait has no span.
"""

from __future__ import annotations

from velodrome.http.limiter import Limiter

PER_HOST, IN_ALL = "limit_per_host", "limit"


class Connections:
    """The limits of one pool; 0 means no limit."""

    def __init__(self, limit: int, limit_per_host: int) -> None:
        self._per_host = limit_per_host
        self._in_all = _limiter(IN_ALL, limit)
        self._hosts: dict[str, Limiter] = {}

    def to(self, host: str) -> Connection:
        """A connection to this host; call `take` before its use."""
        limiter = self._hosts.get(host)
        if limiter is None:
            limiter = self._hosts[host] = _limiter(PER_HOST, self._per_host)
        return Connection(limiter, self._in_all)


class Connection:
    """The places of one call. `waits_for` names the limit it is waiting for, with its value."""

    __slots__ = ("_limiters", "_taken_count", "waits_for")

    def __init__(self, *limiters: Limiter) -> None:
        self._limiters = limiters
        self._taken_count = 0
        self.waits_for: str | None = None

    async def take(self) -> None:
        """Wait for a place."""
        for limiter in self._limiters:
            if not limiter.take_at_once():
                self.waits_for = f"global_aiohttp_connector_{limiter.name}={limiter.limit}"
                await limiter.__aenter__()
                self.waits_for = None
            self._taken_count += 1

    def give_back(self) -> None:
        """Release the places of this call."""
        for limiter in self._limiters[: self._taken_count]:
            limiter.give_back()
        self._taken_count = 0


def _limiter(name: str, limit: int) -> Limiter:
    limiter = Limiter(name, limit if limit > 0 else None, name)
    limiter.span = "connection"
    return limiter
