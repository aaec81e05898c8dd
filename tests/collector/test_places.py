"""Places of limiters that workers borrow from the run: never more in use than the limit, and none is lost."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from patience import DEADLINE_S

from velodrome.collector.executors.places import RunPlaces
from velodrome.http.leases import LeasedLimiters, joining
from velodrome.http.limiter import Limiter


class Shared:
    """One limiter in several workers, whose messages take some turns of the loop, in order."""

    def __init__(self, workers: int, limit: int, turns: Callable[[], int] = lambda: 1) -> None:
        self.limit = limit
        self.run = RunPlaces(workers)
        self.turns = turns
        self.messages = 0
        self.inside: Counter[int] = Counter()  # uses that go on, by worker
        self.used: Counter[int] = Counter()
        self.most = 0
        self._queues: list[asyncio.Task[None]] = []
        self.limiters = [self._start(number) for number in range(workers)]

    def _start(self, number: int) -> Limiter:
        to_run = self._queue(lambda *message: self.run.trade(number, *message))
        leases = LeasedLimiters(to_run)
        self.run.join(number, self._queue(leases.lend))
        with joining(leases):
            return Limiter("judge", self.limit)

    def _queue(self, deliver: Callable[..., None]) -> Callable[..., None]:
        queue: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()

        async def carry() -> None:
            while True:
                message = await queue.get()
                for _ in range(self.turns()):
                    await asyncio.sleep(0)
                self.messages += 1
                deliver(*message)

        self._queues.append(asyncio.create_task(carry()))
        return lambda *message: queue.put_nowait(message)

    async def use(self, number: int, turns: int = 3) -> None:
        async with self.limiters[number]:
            self.inside[number] += 1
            self.used[number] += 1
            self.most = max(self.most, self.inside.total())
            try:
                for _ in range(turns):
                    await asyncio.sleep(0)
            finally:
                self.inside[number] -= 1

    def many(self, number: int, count: int) -> list[Coroutine[Any, Any, None]]:
        return [self.use(number) for _ in range(count)]


async def until(met: Callable[[], bool]) -> None:
    """Let the loop turn until something is so."""
    while not met():  # noqa: ASYNC110 - a turn of the loop is the unit of time here
        await asyncio.sleep(0)


def play(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scene, DEADLINE_S))


@pytest.mark.parametrize(("workers", "limit"), [(2, 1), (3, 2), (2, 3), (4, 16), (3, 100)])
def test_no_more_than_the_limit_are_in_use_and_every_use_gets_its_turn(workers: int, limit: int):
    async def scene() -> None:
        chance = random.Random(workers * 100 + limit)
        shared = Shared(workers, limit, turns=lambda: chance.randrange(4))
        tasks = []
        for _ in range(400):
            tasks.append(asyncio.create_task(shared.use(chance.randrange(workers), chance.randrange(6))))
            if chance.random() < 0.1:
                chance.choice(tasks).cancel()
            for _ in range(chance.randrange(3)):
                await asyncio.sleep(0)
        await asyncio.gather(*tasks, return_exceptions=True)
        assert shared.most <= limit
        assert shared.inside.total() == 0
        await asyncio.gather(*(shared.use(number) for number in range(workers)))

    play(scene())


def test_one_worker_alone_gets_all_places_and_gives_the_idle_ones_to_another_that_lacks_some():
    async def scene() -> None:
        shared = Shared(2, 8)
        for number in (0, 1, 0):
            shared.most = 0
            await asyncio.gather(*shared.many(number, 30))
            assert shared.most == 8

    play(scene())


def test_places_go_around_where_there_are_fewer_than_workers_that_never_stop_asking():
    async def scene() -> None:
        shared = Shared(3, 2)

        async def insist(number: int) -> None:
            while True:
                await shared.use(number)

        tasks = [asyncio.create_task(insist(number)) for number in (0, 0, 0, 1, 1, 1, 2, 2, 2)]
        await until(lambda: shared.used.total() >= 600)
        assert min(shared.used.values()) > 100
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert shared.most == 2

    play(scene())


def test_workers_that_all_have_enough_to_do_share_equally_and_then_ask_no_more():
    async def scene() -> None:
        shared = Shared(2, 8)
        first = [asyncio.create_task(each) for each in shared.many(0, 400)]
        await asyncio.sleep(0)
        second = [asyncio.create_task(each) for each in shared.many(1, 400)]
        await until(lambda: shared.used.total() >= 200)
        messages, most = shared.messages, Counter[int]()
        while shared.used.total() < 600:
            await asyncio.sleep(0)
            most |= shared.inside
        assert (most, shared.messages) == ({0: 4, 1: 4}, messages)
        await asyncio.gather(*first, *second)
        assert shared.most == 8

    play(scene())


def test_a_call_that_finds_a_borrowed_place_idle_sends_nothing():
    async def scene() -> None:
        shared = Shared(2, 16)
        await shared.use(0)
        messages = shared.messages
        for _ in range(50):
            await asyncio.gather(*shared.many(0, 8))
        assert shared.messages == messages

    play(scene())


def test_the_places_of_a_worker_that_ends_are_free_again():
    async def scene() -> None:
        shared = Shared(2, 1)
        hanging = asyncio.create_task(shared.use(0, turns=10**9))
        await until(lambda: bool(shared.inside[0]))
        waiting = asyncio.create_task(shared.use(1))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not waiting.done()
        shared.run.leave(0)
        await waiting
        hanging.cancel()

    play(scene())


def test_a_limiter_that_outlives_its_worker_has_places_of_its_own():
    async def scene() -> None:
        leases = LeasedLimiters(lambda *message: None)
        with joining(leases):
            limiter = Limiter("database", 2)
        waiting = asyncio.create_task(limiter.__aenter__())
        await asyncio.sleep(0)
        leases.close()
        await waiting
        assert [limiter.take_at_once() for _ in range(2)] == [True, False]

    play(scene())


def test_limiters_of_one_name_are_told_apart_and_one_that_is_made_later_is_the_workers_own():
    async def scene() -> None:
        sent: list[tuple[Any, ...]] = []
        leases = LeasedLimiters(lambda *message: sent.append(message))
        with joining(leases):
            borrowed = [
                Limiter("model", 4),
                Limiter("model", 4),
                Limiter("model", None),
                Limiter("cores", 4, divided=True),
            ]
        waiting = [asyncio.create_task(limiter.__aenter__()) for limiter in borrowed]
        await asyncio.sleep(0.01)
        assert sent == [("model places 4 0", 4, 0, 1), ("model places 4 1", 4, 0, 1)]
        assert [task.done() for task in waiting] == [False, False, True, True]
        assert Limiter("model", 4).take_at_once()
        for task in waiting:
            task.cancel()

    play(scene())
