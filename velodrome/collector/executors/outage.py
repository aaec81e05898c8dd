"""Waits for unreachable servers, so that no task is blamed for them.

While a server is unreachable no rollout starts, and rollouts that could not reach it wait and are run again once it
accepts connections. After a limit the run stops, and unfinished rollouts count as not run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from velodrome.errors import Away
from velodrome.serving.process.probe import listens

_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0
_CONNECT_S = 5.0


class Outage:
    """The unreachable servers, and since when. `note` reports to the user, `expire` stops the run."""

    def __init__(
        self,
        limit_s: float = 300.0,
        note: Callable[[str], None] = lambda text: None,
        expire: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self._limit_s = limit_s
        self._note = note
        self._expire = expire
        self._since: dict[str, float] = {}  # kept until a rollout reaches the server, even if it listens again
        self._probes: dict[str, asyncio.Task[None]] = {}
        self._stopped = asyncio.Event()

    async def explains(self, away: Away) -> bool:
        """Whether a failure is an outage. A server that listens after it lost a call may have crashed on it.

        The check is repeated: an address may accept connections for a moment after its server was killed.
        """
        if not away.sent or not await _listens(away):
            return True
        await asyncio.sleep(_FIRST_PAUSE_S)
        return not await _listens(away)

    async def over(self) -> bool:
        """Wait until all servers are back. False if the run stops first."""
        while self._probes and not self._stopped.is_set():
            stop = asyncio.ensure_future(self._stopped.wait())
            try:
                await asyncio.wait({stop, *self._probes.values()}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                stop.cancel()
        return not self._stopped.is_set()

    def begin(self, away: Away) -> None:
        """Start to wait for a server that a rollout could not reach."""
        if away.address in self._probes or self._stopped.is_set():
            return
        if away.address not in self._since:
            self._since[away.address] = time.monotonic()
            self._note(
                f"waiting for {away.address}, which accepts no connections: no rollout starts meanwhile; "
                f"the run stops after {self._limit_s:g} s (server_wait_s)"
            )
        task = asyncio.create_task(self._probe(away))
        self._probes[away.address] = task
        task.add_done_callback(lambda _: self._probes.pop(away.address, None))

    def returned(self, away: Away) -> None:
        """Report that a rollout has reached this server again."""
        since = self._since.pop(away.address, None)
        if since is not None:
            self._note(f"{away.address} is back after {time.monotonic() - since:.0f} s")

    def stop(self) -> None:
        """Stop waiting, because the run stops."""
        self._stopped.set()

    async def aclose(self) -> None:
        """End the probes."""
        tasks = list(self._probes.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _probe(self, away: Away) -> None:
        """Wait until a server listens. If only another server can reach it, just wait a while."""
        pause_s, began = _FIRST_PAUSE_S, self._since[away.address]
        while not self._stopped.is_set():
            left_s = began + self._limit_s - time.monotonic()
            if left_s <= 0:
                self._expire(f"{away.address} could not be reached for {self._limit_s:g} s")
                return
            await asyncio.sleep(min(pause_s, left_s))
            if (away.near and await _listens(away)) or (not away.near and pause_s == _LONGEST_PAUSE_S):
                return
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)


async def _listens(away: Away) -> bool:
    parts = urlsplit(away.address)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return await listens(parts.hostname or "", port, timeout_s=_CONNECT_S)
