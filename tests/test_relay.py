"""What a task makes, as an iterator."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from tests.http.coroutines import in_a_loop
from velodrome.relay import relayed


def test_an_error_is_raised_after_what_was_put_before() -> None:
    seen: list[Any] = []

    async def main() -> None:
        async def fails(put: Any) -> None:
            await put("before")
            raise LookupError("first")

        async with aclosing(relayed(fails)) as made:
            async for each in made:
                seen.append(each)

    with pytest.raises(LookupError, match="first"):
        asyncio.run(main())
    assert seen == ["before"]


@in_a_loop
async def test_closing_it_ends_the_task_and_a_slow_reader_holds_it_back() -> None:
    made = 0

    async def counts(put: Any) -> None:
        nonlocal made
        while True:
            await put(made)
            made += 1

    before = len(asyncio.all_tasks())
    async with aclosing(relayed(counts)) as numbers:
        assert [await anext(numbers) for _ in range(6)] == [0, 1, 2, 3, 4, 5]
    assert len(asyncio.all_tasks()) == before
    assert 5 <= made <= 2000
