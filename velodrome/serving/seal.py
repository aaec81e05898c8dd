"""Session cookies that cannot be made up: a handle, the worker it lives in, and a keyed hash of both.

The worker's own name is new at every start, so a cookie from before a crash never means somebody else's session.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

COOKIE = "velodrome_session"


@dataclass(frozen=True, slots=True)
class Ticket:
    """A session: its handle, and the worker (index and start) that holds it."""

    handle: str
    worker: int
    start: str


class Seal:
    """Signs and checks tickets with a key that the workers of one server share."""

    def __init__(self, key: bytes) -> None:
        self._key = hashlib.blake2b(key, digest_size=32).digest()

    def close(self, ticket: Ticket) -> str:
        """The ticket as a cookie value."""
        text = f"{ticket.handle}.{ticket.worker}.{ticket.start}"
        return f"{text}.{self._sign(text)}"

    def open(self, value: str) -> Ticket | None:
        """The ticket of a cookie value, or None if it was not made with this key."""
        text, _, signature = value.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._sign(text).encode()):
            return None
        handle, worker, start = text.rsplit(".", 2)
        return Ticket(handle, int(worker), start)

    def _sign(self, text: str) -> str:
        return hashlib.blake2b(text.encode(), key=self._key, digest_size=16).hexdigest()
