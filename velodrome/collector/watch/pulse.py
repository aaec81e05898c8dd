"""How the process is doing while it collects: the event loop's lag and the share of a core it uses.

One timer looks at the clock a few times a second. How late it is called is how late everything else is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

TICK_S = 0.05
SAMPLE_S = 0.5

BUSY = ("cpu", "lag_s")  # the share of one core, and the worst lag in seconds, since the sample before
Take = Callable[[dict[str, float]], object]


@asynccontextmanager
async def beating(take: Take) -> AsyncIterator[None]:
    """Give a sample every half second while this is open, and one at the end."""
    pulse = Pulse(take)
    try:
        yield
    finally:
        pulse.stop()


class Pulse:
    """The timer and what it has seen since the last sample."""

    def __init__(
        self,
        take: Take,
        *,
        clock: Callable[[], float] = time.perf_counter,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self._take = take
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._lag_s = 0.0
        self._since, self._cpu_since = clock(), cpu_clock()
        self._due = self._since + TICK_S
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def stop(self) -> None:
        """Stop ticking, and take a last sample."""
        self._timer.cancel()
        self._sample(self._clock())

    def _tick(self) -> None:
        now = self._clock()
        self._lag_s = max(self._lag_s, now - self._due)
        if now - self._since >= SAMPLE_S:
            self._sample(now)
        self._due = now + TICK_S
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _sample(self, now: float) -> None:
        cpu = self._cpu_clock()
        if now > self._since:
            values = (round((cpu - self._cpu_since) / (now - self._since), 3), round(self._lag_s, 6))
            self._take(dict(zip(BUSY, values, strict=True)))
        self._since, self._cpu_since, self._lag_s = now, cpu, 0.0
