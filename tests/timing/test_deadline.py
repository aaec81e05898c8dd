"""Limits on blocks: kept, charged to the right one, and out of the way of everybody else's cancellation."""

from __future__ import annotations

import asyncio

import pytest

from tests.http.coroutines import in_a_loop
from velodrome.timing.deadline import deadline


@in_a_loop
async def test_a_block_that_takes_too_long_is_ended_with_a_timeout_error():
    with pytest.raises(TimeoutError), deadline(0.01):
        await asyncio.Event().wait()
    await asyncio.sleep(0)  # the task goes on, not cancelled
    assert asyncio.current_task().cancelling() == 0


def test_the_inner_of_two_limits_is_the_one_that_ends():
    async def main():
        with deadline(30):
            try:
                with deadline(0.01):
                    await asyncio.Event().wait()
            except TimeoutError:
                return "inner"

    assert asyncio.run(main()) == "inner"


@pytest.mark.parametrize("end", [asyncio.CancelledError, ValueError])
@in_a_loop
async def test_in_time_an_error_of_the_block_or_a_cancellation_from_outside_stays_one(end: type[BaseException]):
    async def block():
        with deadline(30) as limit:
            await asyncio.sleep(0)
            assert not limit.expired
            if end is ValueError:
                raise ValueError
            await asyncio.Event().wait()

    task = asyncio.create_task(block())
    await asyncio.sleep(0)
    if end is asyncio.CancelledError:
        task.cancel()
    with pytest.raises(end):
        await task
