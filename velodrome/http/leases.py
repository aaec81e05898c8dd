"""The places of limiters in a worker, which are the run's: what is lent, what is asked for, what is given back.

The other side is `collector/executors/places.py`. A place that is free here stays here until another worker needs it,
so most calls ask nobody.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from threading import RLock
from typing import Protocol


class Borrower(Protocol):
    """A limiter whose places are lent to it."""

    limit: int | None
    lock: RLock

    def lend(self, granted: int, owed: int, wanted: int) -> None:
        """The run lends so many places more, and says how many it needs back."""
        ...

    def keep(self) -> None:
        """Nobody lends any more."""
        ...


class Lease:
    """What one limiter has borrowed and lacks. Its lock is held whenever this is used."""

    def __init__(self, report: Callable[[], None]) -> None:
        self._report = report  # soon, once for everything that changes at a moment
        self._owed = 0  # places to give back before anybody here gets one
        self._wanted = 0  # places to give back if nobody here waits for them
        self._given = self._lacking = 0  # as it is to be reported
        self._asked = 0  # places that the run knows to be lacking
        self._reporting = False

    def told(self, granted: int, owed: int, wanted: int) -> None:
        """The run has sent this."""
        self._asked = max(self._asked - granted, 0)
        self._owed, self._wanted = owed, wanted

    def pay(self, free: int) -> int:
        """How many of the free places are given back although they may be needed here."""
        paid = min(free, self._owed)
        self._owed -= paid
        return self._give(paid)

    def settle(self, idle: int, lacking: int) -> int:
        """How many of the idle places are given back. Those that lack are asked for."""
        given = self._give(min(idle, self._wanted))
        self._lacking = lacking
        if not self._reporting and (self._given or lacking > self._asked or (self._asked and not lacking)):
            self._reporting = True
            self._report()
        return given

    def _give(self, count: int) -> int:
        self._wanted = max(self._wanted - count, 0)
        self._given += count
        return count

    def take_report(self) -> tuple[int, int]:
        """How many places are given back since the last report, and how many lack."""
        given, self._given, self._asked, self._reporting = self._given, 0, self._lacking, False
        return given, self._lacking


class LeasedLimiters:
    """The limiters of a worker. `send` takes a report for the run: name, limit, places given back and lacking."""

    def __init__(self, send: Callable[[str, int, int, int], None]) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._made: Counter[str] = Counter()
        self._limiters: dict[str, Borrower] = {}

    def add(self, limiter: Borrower, kind: str) -> Lease:
        """A limiter is made. Workers make theirs in the same order, so the number tells which is which."""
        name = f"{kind} {self._made[kind]}"
        self._made[kind] += 1
        self._limiters[name] = limiter

        def report() -> None:
            with limiter.lock:
                given, lacking = lease.take_report()
            self._send(name, limiter.limit or 0, given, lacking)

        def soon() -> None:
            with suppress(RuntimeError):  # the worker has ended
                self._loop.call_soon_threadsafe(report)

        lease = Lease(soon)
        return lease

    def lend(self, name: str, granted: int, owed: int, wanted: int) -> None:
        """The run has sent this for a limiter."""
        self._limiters[name].lend(granted, owed, wanted)

    def close(self) -> None:
        """The worker has ended. A limiter of a module may be there for another one in this process (Ray)."""
        for limiter in self._limiters.values():
            limiter.keep()


_joined: ContextVar[LeasedLimiters | None] = ContextVar("velodrome_leases", default=None)


@contextmanager
def joining(leases: LeasedLimiters) -> Iterator[None]:
    """Limiters that are made in the block borrow their places."""
    token = _joined.set(leases)
    try:
        yield
    finally:
        _joined.reset(token)


def join(limiter: Borrower, kind: str) -> Lease | None:
    """The lease of a limiter that is made now; None if its places are its own."""
    leases = _joined.get()
    return None if leases is None else leases.add(limiter, kind)
