"""What several tasks make, as one iterator."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from velodrome.relay import relayed


def test_what_tasks_put_comes_in_the_order_they_put_it() -> None:
    async def main() -> list[str]:
        turn = asyncio.Event()

        async def first(put: Any) -> None:
            await put("a")
            turn.set()

        async def second(put: Any) -> None:
            await turn.wait()
            await put("b")

        return [each async for each in relayed(second, first)]

    assert asyncio.run(main()) == ["a", "b"]


def test_the_first_error_ends_the_others_after_what_was_put_before() -> None:
    seen: list[Any] = []

    async def main() -> None:
        async def fails(put: Any) -> None:
            await put("before")
            raise LookupError("first")

        async def waits(put: Any) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                seen.append("ended")
                raise OSError("of no interest")

        async with aclosing(relayed(waits, fails)) as made:
            async for each in made:
                seen.append(each)

    with pytest.raises(LookupError, match="first"):
        asyncio.run(main())
    assert seen == ["before", "ended"]


def test_closing_it_ends_the_tasks_and_a_slow_reader_holds_them_back() -> None:
    made = 0

    async def main() -> None:
        async def counts(put: Any) -> None:
            nonlocal made
            while True:
                await put(made)
                made += 1

        async with aclosing(relayed(counts)) as numbers:
            async for number in numbers:
                if number == 5:
                    break
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())
    assert 5 <= made <= 2000
