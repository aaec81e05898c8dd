"""Several addresses of the same service: choose one for each call, and track which are down.

A rollout stays with its address, whose prefix cache has the conversation, unless it is busier than the least busy
one by more than a margin. An address is down if it cannot be reached, fails three times in a row, or is silent and also
fails a health check. Health checks continue, with back-off; the address is up again when it answers one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from yarl import URL

from velodrome import context
from velodrome.http.target import Target
from velodrome.timing.deadline import deadline

STICKY_MARGIN = 2
CHECK_S = 30.0
LOOK_EVERY_S = 1.0

_STRIKES = 3  # failures in a row
_BACKOFF_S, _BACKOFF_CAP_S = 1.0, 60.0
_AVOIDED, _DOWN = 1 << 32, 1 << 33  # more than any load
_MAX_SESSIONS = 16_384  # recently used, whose address is remembered


class Replica(Target):
    """One of several addresses, and its health."""

    __slots__ = ("again_at", "answered_at", "health", "is_down", "span", "strikes", "waiting")

    def __init__(self, url: str | URL, headers: Mapping[str, str] | None = None, *, base: URL | None = None) -> None:
        """`base` names the address in reports; health checks request the route `models` below it."""
        super().__init__(url, headers)
        base = base or URL(url)
        self.health = Target((base / "models").with_query(base.query), headers)
        self.span = f"endpoint:{base.with_user(None).with_query(None).with_fragment(None)}"  # of each attempt
        self.strikes = 0  # failures in a row
        self.is_down = False
        self.again_at = 0.0  # when an address that failed is checked next
        self.answered_at = 0.0  # when it last answered, or had its first call
        self.waiting: set[deadline] = set()  # the calls that wait for its answers

    def begin(self, now: float) -> None:
        """Record that a call is sent."""
        if not self.waiting:
            self.answered_at = now

    def answered(self, now: float) -> None:
        """Record an answer, which may be an error."""
        self.answered_at, self.strikes, self.is_down = now, 0, False

    def failed(self, now: float, *, at_once: bool = False) -> None:
        """Record a failed call. Failures of an address that is already down do not count."""
        if not self.is_down:
            self._strike(now)
            self.is_down = at_once or self.strikes >= _STRIKES

    def _strike(self, now: float) -> None:
        self.strikes += 1
        self.again_at = now + min(_BACKOFF_CAP_S, _BACKOFF_S * 2.0 ** min(self.strikes, 16))

    @property
    def in_doubt(self) -> bool:
        """Whether the health of the address must be watched."""
        return self.is_down or self.strikes > 0 or self.in_flight > 0

    def is_due(self, now: float, check_s: float) -> bool:
        """Whether a health check is due: some time after a failure, or when calls wait and nothing arrives."""
        return now >= self.again_at if self.strikes else bool(self.waiting) and now - self.answered_at >= check_s

    def checked(self, now: float, check_s: float, *, alive: bool) -> None:
        """Record a health check. If it failed, abandon the calls if nothing has arrived for `check_s`."""
        if alive:
            self.answered(now)
            return
        self._strike(now)
        self.is_down = True
        if now - self.answered_at >= check_s:
            given_up, self.waiting = self.waiting, set()
            for each in given_up:
                each.look(inf)


class Replicas:
    """A group of addresses. `choose` returns the one for a call of the current rollout."""

    __slots__ = ("_next", "_sessions", "check_s", "margin", "targets")

    def __init__(
        self,
        targets: Sequence[Replica],
        *,
        margin: int = STICKY_MARGIN,
        check_s: float = CHECK_S,
    ) -> None:
        self.targets = list(targets)
        self.margin = margin
        self.check_s = check_s
        self._next = 0
        self._sessions: dict[str, Replica] = {}  # in order of last use

    def choose(self, avoid: Target | None = None) -> Replica:
        """The address of the rollout, or else the least busy one; equally busy addresses take turns."""
        rollout = context.current()
        session = None if rollout is None else rollout.session
        home = None if session is None else self._sessions.pop(session, None)
        least_busy = self._least_busy(avoid)
        if home is None or home is avoid or home.is_down or _load(home) > _load(least_busy) + self.margin:
            home = least_busy
        if session is not None:
            self._sessions[session] = home
            if len(self._sessions) > _MAX_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
        return home

    def _least_busy(self, avoid: Target | None) -> Replica:
        """The least busy address, preferably one that is up. Failures count as calls: failing fast draws no traffic."""
        targets, start = self.targets, self._next
        self._next = (start + 1) % len(targets)
        best, least_load = targets[start], inf
        for place in range(start - len(targets), start):
            each = targets[place]
            load = each.in_flight + each.strikes + (_AVOIDED if each is avoid else 0) + (_DOWN if each.is_down else 0)
            if load < least_load:
                best, least_load = each, load
        return best


def _load(replica: Replica) -> int:
    return replica.in_flight + replica.strikes
