"""A limiter: its places, who is next, and the span of a wait."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import pytest

from velodrome.http.limiter import Limiter, processes
from velodrome.timing.spans import root


def test_places_are_given_in_the_order_of_arrival_and_only_waits_are_spans():
    limiter = Limiter("judge", 2, "judge_max_concurrent")
    order: list[int] = []
    at_once: set[int] = set()
    most = 0

    async def use(number: int) -> None:
        nonlocal most
        async with limiter:
            order.append(number)
            at_once.add(number)
            most = max(most, len(at_once))
            await asyncio.sleep(0)
            at_once.discard(number)

    async def main() -> None:
        await asyncio.gather(*map(use, range(6)))

    with root("rollout") as spans:
        asyncio.run(main())
    assert (order, most) == ([0, 1, 2, 3, 4, 5], 2)
    assert [(each.name, each.counts) for each in spans.children] == [
        ("limit:judge", {"judge_max_concurrent": 2}) for _ in range(4)
    ]


def test_a_limiter_that_no_setting_sets_tells_its_places():
    async def use(limiter: Limiter) -> None:
        async with limiter:
            await asyncio.sleep(0)

    async def main(limiter: Limiter) -> None:
        await asyncio.gather(use(limiter), use(limiter))

    with root("rollout") as spans:
        asyncio.run(main(Limiter("database", 1)))
    assert [(each.name, each.counts) for each in spans.children] == [("limit:database", {"places": 1})]


def test_no_limit_never_waits_and_a_place_is_given_back_after_an_error_or_a_cancellation():
    async def main() -> None:
        async with Limiter("any", None), Limiter("any", None):
            pass
        limiter = Limiter("one", 1)
        try:
            async with limiter:
                raise KeyError
        except KeyError:
            pass
        async with limiter:
            waiting = asyncio.create_task(limiter.__aenter__())
            await asyncio.sleep(0)
            waiting.cancel()
        async with limiter:
            pass

    asyncio.run(main())


def test_a_limiter_serves_one_event_loop_after_another():
    limiter = Limiter("model", 1)

    async def use() -> None:
        async with limiter:
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(use(), use())

    asyncio.run(main())
    asyncio.run(main())


def test_a_limit_holds_for_the_event_loops_of_several_threads_together():
    limiter = Limiter("judge", 2)
    at_once: list[int] = []
    inside = 0
    lock = threading.Lock()

    async def use() -> None:
        nonlocal inside
        async with limiter:
            with lock:
                inside += 1
                at_once.append(inside)
            await asyncio.sleep(0.001)
            with lock:
                inside -= 1

    async def many() -> None:
        await asyncio.gather(*(use() for _ in range(20)))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: asyncio.run(many()), range(4)))
    assert (len(at_once), max(at_once)) == (80, 2)


def test_a_waiter_cancelled_after_it_was_handed_the_place_gives_it_back():
    limiter = Limiter("one", 1)

    async def main() -> None:
        async with limiter:
            waiting = asyncio.create_task(limiter.__aenter__())
            await asyncio.sleep(0)
        waiting.cancel()  # its future is set, and it has not run since
        await asyncio.gather(waiting, return_exceptions=True)
        assert waiting.cancelled()
        assert limiter.take_at_once()

    asyncio.run(main())


def drop(tasks: list[asyncio.Task[None]]) -> None:
    tasks.clear()
    gc.collect()


@pytest.mark.parametrize(
    "steps",
    [
        "give run",
        "cancel run give close",
        "cancel give close",
        "cancel close give",
        "give cancel run close",
        "give cancel close",
        "give close",
        "close give",
    ],
)
def test_no_place_is_lost_with_an_event_loop_that_another_thread_stops_or_closes(steps: str):
    limiter = Limiter("one", 1)
    other = asyncio.new_event_loop()
    assert limiter.take_at_once()
    inside = copy_context()
    waiting = [other.create_task(limiter.__aenter__(), context=inside)]

    def run() -> None:
        other.run_until_complete(asyncio.sleep(0))

    run()
    do = {"give": limiter.give_back, "cancel": lambda: waiting[0].cancel(), "run": run, "close": other.close}
    for each in steps.split():
        do[each]()
    if waiting[0].done() and not waiting[0].cancelled():
        limiter.give_back()
    other.close()

    async def use() -> None:
        for _ in range(2):
            async with asyncio.timeout(5), limiter:
                assert not limiter.take_at_once()

    asyncio.run(use())
    inside.run(drop, waiting)  # ends a task of a closed loop: it gives nothing back twice
    assert [limiter.take_at_once() for _ in range(2)] == [True, False]


def test_a_place_handed_to_a_closed_loop_goes_to_who_waits_elsewhere_once_the_task_is_collected():
    limiter = Limiter("one", 1)
    assert limiter.take_at_once()
    closing, other = asyncio.new_event_loop(), asyncio.new_event_loop()
    inside = copy_context()
    first = [closing.create_task(limiter.__aenter__(), context=inside)]
    closing.run_until_complete(asyncio.sleep(0))
    second = other.create_task(limiter.__aenter__())
    other.run_until_complete(asyncio.sleep(0))
    limiter.give_back()
    closing.close()
    inside.run(drop, first)
    other.run_until_complete(asyncio.wait_for(second, 5))
    other.close()


def test_loops_of_several_threads_that_end_while_calls_wait_lose_no_place():
    limiter = Limiter("one", 2)

    def thread(seed: int) -> None:
        chance = random.Random(seed)

        async def use() -> None:
            async with limiter:
                await asyncio.sleep(chance.random() * 0.0005)

        async def main() -> None:
            tasks = [asyncio.create_task(use()) for _ in range(6)]
            await asyncio.sleep(chance.random() * 0.002)
            assert tasks  # `asyncio.run` cancels those that are left

        for _ in range(50):
            asyncio.run(main())

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(thread, range(4)))
    assert [limiter.take_at_once() for _ in range(3)] == [True, True, False]


def test_processes_that_do_the_same_work_divide_the_places_of_what_their_machine_has():
    few, many = Limiter("few", 2, divided=True), Limiter("many", 10, divided=True)
    processes.count = 4
    try:
        taken = [sum(limiter.take_at_once() for _ in range(20)) for limiter in (few, many)]
    finally:
        processes.count = 1
    assert taken == [1, 2]
