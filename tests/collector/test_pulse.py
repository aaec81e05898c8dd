"""The pulse of a process, with clocks that the test turns by hand."""

from __future__ import annotations

import asyncio

from velodrome.collector.watch.samples import SAMPLE_S, TICK_S, Pulse


def test_a_sample_tells_the_share_of_a_core_and_the_worst_lag_since_the_one_before():
    now, cpu, taken = [10.0], [1.0], []

    async def main() -> None:
        pulse = Pulse(taken.append, clock=lambda: now[0], cpu_clock=lambda: cpu[0])
        for late in (0.0, 0.25, 0.0):
            now[0] += TICK_S + late
            pulse._tick()
        now[0] += TICK_S + SAMPLE_S
        cpu[0] += 0.5
        pulse._tick()
        now[0] += 2.0
        cpu[0] += 1.0
        pulse.stop()

    asyncio.run(main())
    assert taken == [
        {"cpu": round(0.5 / (4 * TICK_S + 0.25 + SAMPLE_S), 3), "lag_s": 0.5},
        {"cpu": 0.5, "lag_s": 0.0},
    ]
