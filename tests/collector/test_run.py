"""Jobs, a few at a time: how many, what ends them, what is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from patience import DEADLINE_S

from velodrome.collector.pace import Fixed
from velodrome.collector.run import Stop, run


class Shop:
    """Work that a test lets through one job at a time, and what was seen of it."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.done: list[Any] = []
        self.dropped: list[Any] = []
        self.most = 0
        self.gates: dict[Any, asyncio.Event] = {}

    async def work(self, job: Any) -> bool:
        self.begun.append(job)
        self.most = max(self.most, len(self.begun) - len(self.done) - len(self.dropped))
        gate = self.gates.setdefault(job, asyncio.Event())
        try:
            await asyncio.sleep(0)
            await gate.wait()
        except asyncio.CancelledError:
            self.dropped.append(job)
            raise
        self.done.append(job)
        return False

    def let(self, *jobs: Any) -> None:
        for job in jobs:
            self.gates.setdefault(job, asyncio.Event()).set()


async def until(met: Callable[[], bool]) -> None:
    """Let the loop turn until something is so."""
    for _ in range(10_000):
        if met():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to that")


async def quietly(turns: int = 50) -> None:
    """Let the loop turn a while, for what must not happen."""
    for _ in range(turns):
        await asyncio.sleep(0)


def test_all_jobs_are_done_and_no_more_than_the_limit_at_once():
    async def main() -> None:
        shop = Shop()
        shop.let(*range(100))
        assert await run(iter(range(100)), shop.work, Fixed(7), Stop(), drain_s=0) is True
        assert (sorted(shop.done), shop.most) == (list(range(100)), 7)

    asyncio.run(main())


def test_a_free_worker_takes_the_next_job_and_jobs_are_not_read_ahead():
    async def main() -> None:
        shop = Shop()
        read: list[int] = []

        def jobs() -> Iterator[int]:
            for number in range(1000):
                read.append(number)
                yield number

        running = asyncio.create_task(run(jobs(), shop.work, Fixed(3), Stop(), drain_s=0))
        await until(lambda: len(shop.begun) == 3)
        await quietly()
        assert len(read) <= 4
        shop.let(1)
        await until(lambda: 3 in shop.begun)
        await quietly()
        assert (shop.begun, shop.done) == ([0, 1, 2, 3], [1])
        assert len(read) <= 5
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert sorted(shop.dropped) == [0, 2, 3]

    asyncio.run(main())


def test_no_jobs_are_done_at_once():
    async def main() -> None:
        assert await run(iter(()), Shop().work, Fixed(3), Stop(), drain_s=60) is True

    asyncio.run(main())


def test_fewer_jobs_than_workers_is_fine():
    async def main() -> None:
        shop = Shop()
        shop.let("only")
        assert await run(iter(["only"]), shop.work, Fixed(1000), Stop(), drain_s=60) is True
        assert shop.done == ["only"]

    asyncio.run(main())


def test_an_error_of_ours_ends_the_run_and_drops_what_is_in_flight():
    async def main() -> None:
        shop = Shop()

        async def work(job: int) -> bool:
            if job == 2:
                raise OSError("the disk is full")
            return await shop.work(job)

        with pytest.raises(OSError, match="the disk is full"):
            await run(iter(range(100)), work, Fixed(3), Stop(), drain_s=60)
        assert (sorted(shop.begun), sorted(shop.dropped), shop.done) == ([0, 1], [0, 1], [])

    asyncio.run(main())


def test_an_error_of_the_jobs_themselves_ends_the_run():
    async def main() -> None:
        shop = Shop()
        shop.let(0, 1)

        def jobs() -> Iterator[int]:
            yield from (0, 1)
            raise ValueError("the input went away")

        with pytest.raises(ValueError, match="the input went away"):
            await run(jobs(), shop.work, Fixed(2), Stop(), drain_s=60)

    asyncio.run(main())


def test_asked_to_stop_it_takes_no_new_jobs_and_waits_for_those_in_flight():
    async def main() -> None:
        shop, stop = Shop(), Stop()
        running = asyncio.create_task(run(iter(range(100)), shop.work, Fixed(2), stop, drain_s=3600))
        await until(lambda: len(shop.begun) == 2)
        stop.ask("max_failures=1 reached")
        stop.ask("max_total_tokens=5 reached")
        await quietly()
        assert not running.done()
        shop.let(0, 1)
        assert await running is True
        assert (shop.begun, shop.done, stop.reason) == ([0, 1], [0, 1], "max_failures=1 reached")

    asyncio.run(main())


def test_asked_twice_by_hand_it_gives_up_what_is_in_flight():
    async def main() -> None:
        shop, stop = Shop(), Stop()
        running = asyncio.create_task(run(iter(range(100)), shop.work, Fixed(3), stop, drain_s=3600))
        await until(lambda: len(shop.begun) == 3)
        shop.let(1)
        stop.interrupt()
        await until(lambda: shop.done == [1])
        stop.interrupt()
        assert await running is False
        assert (shop.begun, sorted(shop.dropped), stop.reason) == ([0, 1, 2], [0, 2], "interrupted")

    asyncio.run(main())


def test_the_first_interrupt_after_a_budget_waits_for_what_is_in_flight_and_the_second_does_not():
    async def main() -> None:
        shop, stop = Shop(), Stop()
        running = asyncio.create_task(run(iter(range(100)), shop.work, Fixed(3), stop, drain_s=3600))
        await until(lambda: len(shop.begun) == 3)
        stop.ask("max_total_tokens=5 reached")
        stop.interrupt()
        stop.ask("max_wall_s=1 reached")
        await quietly()
        shop.let(1)
        await until(lambda: shop.done == [1])
        assert (shop.dropped, running.done()) == ([], False)
        stop.interrupt()
        assert await running is False
        assert (sorted(shop.dropped), stop.reason) == ([0, 2], "max_total_tokens=5 reached")

    asyncio.run(main())


def test_what_is_in_flight_is_waited_for_no_longer_than_its_time():
    async def main() -> None:
        shop, stop = Shop(), Stop()
        running = asyncio.create_task(run(iter(range(100)), shop.work, Fixed(2), stop, drain_s=0))
        await until(lambda: len(shop.begun) == 2)
        stop.ask("max_wall_s=1 reached")
        assert await running is False
        assert sorted(shop.dropped) == [0, 1]

    asyncio.run(main())


def test_asked_before_it_begins_it_does_nothing():
    async def main() -> None:
        shop, stop = Shop(), Stop()
        stop.interrupt()
        assert await run(iter(range(3)), shop.work, Fixed(2), stop, drain_s=60) is True
        assert shop.begun == []

    asyncio.run(main())


class Told:
    """A pace that does as it is told, and remembers what it was told."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.heard: list[bool] = []

    def finished(self, now: float, rate_limited: bool) -> None:
        self.heard.append(rate_limited)


def test_a_wider_or_narrower_limit_counts_from_the_next_finished_job_on():
    async def main() -> None:
        shop, pace = Shop(), Told(2)
        running = asyncio.create_task(run(iter(range(20)), shop.work, pace, Stop(), drain_s=0))  # type: ignore[arg-type]
        await until(lambda: len(shop.begun) == 2)
        pace.limit = 6
        shop.let(0)
        await until(lambda: len(shop.begun) == 7)
        await quietly()
        assert len(shop.begun) - len(shop.done) == 6
        pace.limit = 1
        shop.let(*range(1, 7))
        await until(lambda: len(shop.begun) == 8)
        await quietly()
        assert len(shop.begun) - len(shop.done) == 1
        shop.let(*range(20))
        assert await running is True
        assert sorted(shop.done) == list(range(20))

    asyncio.run(main())


def test_workers_that_finish_together_under_a_narrower_limit_do_not_all_go():
    async def main() -> None:
        shop, pace = Shop(), Told(8)
        running = asyncio.create_task(run(iter(range(50)), shop.work, pace, Stop(), drain_s=0))  # type: ignore[arg-type]
        await until(lambda: len(shop.begun) == 8)
        pace.limit = 4
        shop.let(*range(50))
        assert await running is True
        assert sorted(shop.done) == list(range(50))

    asyncio.run(main())


def test_the_pace_hears_of_every_job_and_whether_it_met_a_rate_limit():
    async def main() -> None:
        pace = Told(1)

        async def work(job: int) -> bool:
            return job % 2 == 0

        await run(iter(range(5)), work, pace, Stop(), drain_s=0)  # type: ignore[arg-type]
        assert pace.heard == [True, False, True, False, True]

    asyncio.run(main())


def test_work_that_never_waits_still_lets_others_have_their_turn():
    async def main() -> None:
        stop = Stop()
        done = []

        async def work(job: int) -> bool:
            done.append(job)
            return False

        asyncio.get_running_loop().call_soon(stop.interrupt)
        await run(iter(range(10_000)), work, Fixed(4), stop, drain_s=60)
        assert len(done) < 100

    asyncio.run(main())


def test_work_that_will_not_end_when_cancelled_is_cancelled_again():
    async def main():
        stop = Stop()
        held = []

        async def stubborn(job):
            stop.interrupt()
            stop.interrupt()
            try:
                await asyncio.Event().wait()
            finally:
                held.append(job)
                await asyncio.Event().wait()  # a session that never closes

        finished = await asyncio.wait_for(run(iter([1]), stubborn, Fixed(1), stop, drain_s=3600), DEADLINE_S)
        return finished, held

    assert asyncio.run(main()) == (False, [1])
