"""Limits on blocks: kept, charged to the right one, and out of the way of everybody else's cancellation."""

from __future__ import annotations

import asyncio

import pytest

from velodrome.timing.deadline import deadline


def test_a_block_in_time_is_left_alone():
    async def main():
        with deadline(10) as limit:
            await asyncio.sleep(0)
        return limit.expired

    assert asyncio.run(main()) is False


def test_a_block_that_takes_too_long_is_ended_with_a_timeout_error():
    async def main():
        with pytest.raises(TimeoutError), deadline(0.01):
            await asyncio.Event().wait()
        await asyncio.sleep(0)  # the task goes on, not cancelled
        return asyncio.current_task().cancelling()

    assert asyncio.run(main()) == 0


def test_the_inner_of_two_limits_is_the_one_that_ends():
    async def main():
        with deadline(30):
            try:
                with deadline(0.01):
                    await asyncio.Event().wait()
            except TimeoutError:
                return "inner"

    assert asyncio.run(main()) == "inner"


def test_a_cancellation_from_outside_stays_one():
    async def block():
        with deadline(30):
            await asyncio.Event().wait()

    async def main():
        task = asyncio.create_task(block())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_an_error_of_the_block_passes_through():
    async def main():
        with pytest.raises(ValueError, match="mine"), deadline(30):
            raise ValueError("mine")

    asyncio.run(main())


def test_many_limits_end_together():
    async def one():
        try:
            with deadline(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            return 1

    async def main():
        return sum(await asyncio.gather(*(one() for _ in range(500))))

    assert asyncio.run(main()) == 500
