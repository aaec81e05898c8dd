"""A server that is away is waited for, not blamed on tasks.

While one is away no rollout is started, and those that met it wait to be tried again. When it accepts connections again
they continue; after a limit the run stops, and what was not finished counts as not run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from velodrome.collector.run import Stop
from velodrome.errors import Away
from velodrome.serving.process.probe import listens

_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0
_CONNECT_S = 5.0


class Outage:
    """The servers that are away, and since when."""

    def __init__(self, stop: Stop, limit_s: float, note: Callable[[str], None]) -> None:
        self._stop = stop
        self._limit_s = limit_s
        self._note = note
        self._since: dict[str, float] = {}  # until a rollout got through to it, even if it listens again
        self._looking: dict[str, asyncio.Task[None]] = {}

    async def explains(self, away: Away) -> bool:
        """Whether a failure is an outage. A server that lost a call and still listens may have died of that call."""
        return not away.sent or not await _listens(away)

    async def over(self) -> bool:
        """Wait until every server is back. False if the run stops instead."""
        while self._looking and self._stop.reason is None:
            stop = asyncio.ensure_future(self._stop.asked())
            try:
                await asyncio.wait({stop, *self._looking.values()}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                stop.cancel()
        return self._stop.reason is None

    def begin(self, away: Away) -> None:
        """A rollout could not reach this server."""
        if away.address in self._looking or self._stop.reason is not None:
            return
        if away.address not in self._since:
            self._since[away.address] = time.monotonic()
            self._note(
                f"waiting for {away.address}, which takes no connections: no rollout is started meanwhile; "
                f"the run stops after {self._limit_s:g} s (server_wait_s)"
            )
        task = asyncio.create_task(self._look(away))
        self._looking[away.address] = task
        task.add_done_callback(lambda _: self._looking.pop(away.address, None))

    def returned(self, away: Away) -> None:
        """A rollout that had waited for this server got through."""
        since = self._since.pop(away.address, None)
        if since is not None:
            self._note(f"{away.address} is back after {time.monotonic() - since:.0f} s")

    async def aclose(self) -> None:
        """Look no more."""
        tasks = list(self._looking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self, away: Away) -> None:
        """Until it listens. One that only another server can reach is tried again after a while."""
        pause_s, began = _FIRST_PAUSE_S, self._since[away.address]
        while self._stop.reason is None:
            left_s = began + self._limit_s - time.monotonic()
            if left_s <= 0:
                self._stop.ask(f"{away.address} could not be reached for {self._limit_s:g} s")
                return
            await asyncio.sleep(min(pause_s, left_s))
            if (away.near and await _listens(away)) or (not away.near and pause_s == _LONGEST_PAUSE_S):
                return
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)


async def _listens(away: Away) -> bool:
    parts = urlsplit(away.address)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return await listens(parts.hostname or "", port, timeout_s=_CONNECT_S)
