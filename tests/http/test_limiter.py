"""A limiter: its places, who is next, and the span of a wait."""

from __future__ import annotations

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import pytest

from tests.http.coroutines import in_a_loop
from velodrome.errors import InputError
from velodrome.http.limiter import Limiter, Share, sharing
from velodrome.timing.spans import root


@pytest.mark.parametrize(("setting", "named"), [("judge_max_concurrent", "judge_max_concurrent"), ("", "places")])
def test_places_are_given_in_the_order_of_arrival_and_only_waits_are_spans(setting: str, named: str):
    limiter = Limiter("judge", 2, *([setting] if setting else []))
    order: list[int] = []
    at_once: set[int] = set()

    async def use(number: int) -> None:
        async with limiter:
            order.append(number)
            at_once.add(number)
            assert len(at_once) <= 2
            await asyncio.sleep(0)
            at_once.discard(number)

    async def main() -> None:
        await asyncio.gather(*map(use, range(6)))

    for _ in range(2):  # one event loop after another
        order.clear()
        with root("rollout") as spans:
            asyncio.run(main())
        assert order == [0, 1, 2, 3, 4, 5]
        assert [(each.name, each.counts) for each in spans.children] == [("limit:judge", {named: 2})] * 4


@in_a_loop
async def test_no_limit_never_waits_and_a_place_is_given_back_after_an_error_or_a_cancellation():
    async with Limiter("any", None), Limiter("any", None):
        pass
    limiter = Limiter("one", 1)
    with pytest.raises(KeyError):
        async with limiter:
            raise KeyError
    async with limiter:
        waiting = asyncio.create_task(limiter.__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
    async with limiter:
        pass


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


@in_a_loop
async def test_a_waiter_cancelled_after_it_was_handed_the_place_gives_it_back():
    limiter = Limiter("one", 1)

    async with limiter:
        waiting = asyncio.create_task(limiter.__aenter__())
        await asyncio.sleep(0)
    waiting.cancel()  # its future is set, and it has not run since
    await asyncio.gather(waiting, return_exceptions=True)
    assert waiting.cancelled()
    assert limiter.take_at_once()


def drop(tasks: list[asyncio.Task[None]]) -> None:
    tasks.clear()
    gc.collect()


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


def places(limiter: Limiter) -> int:
    return sum(limiter.take_at_once() for _ in range(20))


def test_workers_divide_the_places_and_a_limit_below_their_number_is_refused():
    shares = []
    for number in range(3):
        with sharing(Share(number, 3)):
            shares.append([places(Limiter("judge", 11)), places(Limiter("cores", 2, divided=True))])
            with pytest.raises(InputError, match="max_concurrent=2: 3 workers divide"):
                Limiter("judge", 2, "max_concurrent")
    assert shares == [[4, 1], [4, 1], [3, 1]]
