"""The places of the limiters of a run, which its workers borrow (`http/leases.py`): never more in use than the limit.

A worker that asks gets what is free, and more than it asked for while much is free. If too little is free, others are
told how many places are wanted, which they give back when they are idle, and how many they owe: what they have beyond
an equal share goes back before it is used again. If there are fewer places than workers, places go around.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable

Send = Callable[[str, int, int, int], None]  # for a worker: name, places granted, owed, wanted


class RunPlaces:
    """All limiters of a run. A worker joins with how it is reached, and leaves when it has ended."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._limiters: dict[str, LentPlaces] = {}
        self._send: dict[Hashable, Send] = {}

    def join(self, worker: Hashable, send: Send) -> None:
        """A worker has started."""
        self._send[worker] = send

    def leave(self, worker: Hashable) -> None:
        """A worker has ended: its places are free."""
        if self._send.pop(worker, None) is not None:
            for name, limiter in self._limiters.items():
                self._answer(name, limiter.lose(worker))

    def trade(self, worker: Hashable, name: str, limit: int, given: int, lacking: int) -> None:
        """A worker gives places of a limiter back, and says how many it lacks."""
        if name not in self._limiters:
            self._limiters[name] = LentPlaces(limit, self._workers)
        self._answer(name, self._limiters[name].trade(worker, given, lacking))

    def _answer(self, name: str, messages: dict[Hashable, tuple[int, int, int]]) -> None:
        for worker, message in messages.items():
            self._send[worker](name, *message)


class LentPlaces:
    """The places of one limiter: free, or held by a worker. What it returns is for workers: granted, owed, wanted."""

    def __init__(self, limit: int, workers: int) -> None:
        self._limit = limit
        self._workers = workers
        self._free = limit
        self._held: Counter[Hashable] = Counter()
        self._lacking: dict[Hashable, int] = {}  # who waited longest is first
        self._told: dict[Hashable, tuple[int, int]] = {}  # how many places it owes, how many are wanted

    def trade(self, worker: Hashable, given: int, lacking: int) -> dict[Hashable, tuple[int, int, int]]:
        """A worker gives places back, and lacks so many."""
        self._free += given
        self._held[worker] -= given
        owed, wanted = self._told.get(worker, (0, 0))
        self._told[worker] = max(owed - given, 0), max(wanted - given, 0)
        if given or not lacking:
            self._lacking.pop(worker, None)  # others come first
        if lacking:
            self._lacking[worker] = lacking
        return self._shared_out()

    def lose(self, worker: Hashable) -> dict[Hashable, tuple[int, int, int]]:
        """A worker has ended."""
        self._free += self._held.pop(worker, 0)
        self._lacking.pop(worker, None)
        self._told.pop(worker, None)
        return self._shared_out()

    def _shared_out(self) -> dict[Hashable, tuple[int, int, int]]:
        granted = self._grant()
        recalled = self._recall() if self._lacking else set()
        return {each: (granted[each], *self._told.get(each, (0, 0))) for each in {*granted, *recalled}}

    def _grant(self) -> Counter[Hashable]:
        """Hand out what is free, one to each that lacks some in turn; then a part of what is left."""
        granted: Counter[Hashable] = Counter()
        while self._free and self._lacking:
            worker = next(iter(self._lacking))
            lacking = self._lacking.pop(worker) - 1
            if lacking:
                self._lacking[worker] = lacking
            granted[worker] += 1
            self._free -= 1
        for worker in granted:
            spare = self._free // self._workers
            granted[worker] += spare
            self._free -= spare
        self._held += granted
        return granted

    def _recall(self) -> set[Hashable]:
        """Whom to tell that more is owed or wanted than before."""
        fair = self._limit // len({*+self._held, *self._lacking})
        due = sum(min(lacking, max(max(fair, 1) - self._held[each], 0)) for each, lacking in self._lacking.items())
        changed, in_all = set(), sum(self._lacking.values())
        for worker, held in (+self._held).most_common():
            told, wanted = self._told.get(worker, (0, 0))
            owed = min(due, max(held - fair, 0))
            due -= owed
            if owed > told or (not wanted and in_all > self._lacking.get(worker, 0)):
                self._told[worker] = max(owed, told), in_all
                changed.add(worker)
        return changed
