"""The inline executor: how many jobs run at once, what ends them, and what is handed back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

import pytest

from tests.http.coroutines import in_a_loop
from tests.support.patience import DEADLINE_S
from velodrome.collector.attempt import Attempt, Failed
from velodrome.collector.executors.inline import Inline
from velodrome.collector.executors.outage import Outage
from velodrome.collector.plan import Job, Planned


class Shop:
    """Work that a test lets through one job at a time, and what became of it."""

    def __init__(self, limit: int) -> None:
        self.begun: list[int] = []
        self.done: list[int] = []
        self.dropped: list[int] = []
        self.most = 0
        self.gates: dict[int, asyncio.Event] = {}
        self.received: list[int] = []
        self.executor = Inline(self.work, Outage(), limit=limit)

    async def work(self, job: Job) -> Attempt:
        number = job.task_index
        self.begun.append(number)
        self.most = max(self.most, len(self.begun) - len(self.done) - len(self.dropped))
        try:
            await asyncio.sleep(0)
            await self.gates.setdefault(number, asyncio.Event()).wait()
        except asyncio.CancelledError:
            self.dropped.append(number)
            raise
        self.done.append(number)
        return Attempt(job, Failed({}), {}, 0)

    def let(self, *numbers: int) -> None:
        for number in numbers:
            self.gates.setdefault(number, asyncio.Event()).set()

    async def run(self, numbers: Iterable[int]) -> None:
        async for batch in self.executor.run(Planned(jobs(numbers))):
            self.received += [attempt.job.task_index for attempt in batch]
        self.received += [attempt.job.task_index for attempt in self.executor.finished()]


def jobs(numbers: Iterable[int]) -> Iterator[Job]:
    for number in numbers:
        yield Job(f"{number}/0", number, 0, "", {})


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


@pytest.mark.parametrize(("count", "limit", "most"), [(100, 7, 7), (0, 3, 0)])
@in_a_loop
async def test_all_jobs_run_and_no_more_than_the_limit_at_once(count: int, limit: int, most: int):
    shop = Shop(limit)
    shop.let(*range(count))
    await shop.run(range(count))
    assert (sorted(shop.received), shop.most) == (list(range(count)), most)


@in_a_loop
async def test_jobs_are_not_read_ahead():
    shop = Shop(3)
    read: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(1000):
            read.append(number)
            yield number

    running = asyncio.create_task(shop.run(numbers()))
    shop.let(1)
    await until(lambda: 3 in shop.begun)
    await quietly()
    assert (shop.begun, shop.received, len(read) <= 5) == ([0, 1, 2, 3], [1], True)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert sorted(shop.dropped) == [0, 2, 3]


@in_a_loop
async def test_a_fault_of_ours_ends_the_run_and_drops_what_is_in_flight():
    shop = Shop(3)

    async def work(job: Job) -> Attempt:
        if job.task_index == 2:
            raise OSError("the disk is full")
        return await shop.work(job)

    shop.executor = Inline(work, Outage(), limit=3)
    with pytest.raises(OSError, match="the disk is full"):
        await shop.run(range(100))
    assert (sorted(shop.begun), sorted(shop.dropped), shop.received) == ([0, 1], [0, 1], [])


@in_a_loop
async def test_stopped_it_starts_nothing_and_waits_for_what_is_in_flight():
    shop = Shop(2)
    running = asyncio.create_task(shop.run(range(100)))
    await until(lambda: len(shop.begun) == 2)
    shop.executor.stop()
    await quietly()
    assert not running.done()
    shop.let(0, 1)
    await running
    await shop.run(range(3))  # stopped before it begins it does nothing
    assert (shop.begun, shop.received) == ([0, 1], [0, 1])


@in_a_loop
async def test_cancelled_it_gives_up_what_is_in_flight_and_hands_back_what_is_finished():
    shop = Shop(3)
    running = asyncio.create_task(shop.run(range(100)))
    await until(lambda: len(shop.begun) == 3)
    shop.executor.stop()
    shop.let(1)
    await until(lambda: shop.done == [1])
    shop.executor.cancel()
    await running
    assert (shop.received, sorted(shop.dropped)) == ([1], [0, 2])


@in_a_loop
async def test_a_wider_or_narrower_limit_counts_from_the_next_finished_job_on():
    shop = Shop(2)
    running = asyncio.create_task(shop.run(range(20)))
    await until(lambda: len(shop.begun) == 2)
    shop.executor.limit = 6
    shop.let(0)
    await until(lambda: len(shop.begun) == 7)
    await quietly()
    assert len(shop.begun) - len(shop.done) == 6
    shop.executor.limit = 1
    shop.let(*range(1, 7))
    await until(lambda: len(shop.begun) == 8)
    await quietly()
    assert len(shop.begun) - len(shop.done) == 1
    shop.let(*range(20))
    await running
    assert sorted(shop.received) == list(range(20))


@in_a_loop
async def test_work_that_does_not_end_when_cancelled_is_cancelled_again():
    held = []

    async def stubborn(job: Job) -> Attempt:
        shop.executor.cancel()
        try:
            await asyncio.Event().wait()
        finally:
            held.append(job.task_index)
            await asyncio.Event().wait()  # a session that never closes
        raise AssertionError

    shop = Shop(1)
    shop.executor = Inline(stubborn, Outage(), limit=1)
    await asyncio.wait_for(shop.run([1]), DEADLINE_S)
    assert held == [1]
