"""What a call must finish, and what it gives up."""

from __future__ import annotations

import asyncio

from velodrome.scope import Scope


def test_a_call_in_a_hurry_still_waits_for_what_is_nearly_done_and_gives_up_what_never_ends():
    async def run() -> tuple[bool, bool]:
        nearly, never = asyncio.Event(), asyncio.Event()
        async with Scope() as scope:
            short, endless = (asyncio.create_task(each.wait()) for each in (nearly, never))
            scope.wait_for(short)
            scope.wait_for(endless)
            scope.hurry()
            asyncio.get_running_loop().call_soon(nearly.set)
        return short.cancelled(), endless.cancelled()

    assert asyncio.run(run()) == (False, True)
