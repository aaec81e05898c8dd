"""The workers of one server: a request reaches one of them, and its answer is about all.

A question to a peer carries `ALONE`, so that it answers for itself alone. A peer that is silent for too long is left
out: one that hangs must not hide the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from velodrome import http
from velodrome.errors import CallError

ALONE = "x-velodrome-alone"


@dataclass(frozen=True)
class Peers:
    """The private URLs of all workers, of which this process is number `own`."""

    urls: Sequence[str] = ()
    own: int = 0
    token: str | None = None

    async def ask(self, path: str, *, patience_s: float = 1.0) -> dict[int, bytes | None]:
        """The answer of every other worker to a GET, by its number; None for one that gives no answer."""
        once = http.Retry(max_retries=0, timeout_s=patience_s, total_timeout_s=patience_s)
        headers = {ALONE: "yes"} | ({"Authorization": f"Bearer {self.token}"} if self.token is not None else {})
        others = {number: url for number, url in enumerate(self.urls) if number != self.own}
        targets = [http.Target(url.rstrip("/") + path, headers) for url in others.values()]
        answers = await asyncio.gather(*(_ask(target, once) for target in targets))
        return dict(zip(others, answers, strict=True))


async def _ask(peer: http.Target, once: http.Retry) -> bytes | None:
    try:
        return (await http.shared().get(peer, once)).body
    except CallError:
        return None
