"""A limiter: its places, who is next, and the span of a wait."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from velodrome.http.limiter import Limiter
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
