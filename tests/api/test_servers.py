"""`velo.serve` and `velo.view` answer while their block runs, and leave nothing behind however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import velodrome as velo
from tests.support.leaks import nothing_left


class Echo:
    """A model that answers with what it was asked."""

    async def respond(self, request: dict[str, Any]) -> dict[str, Any]:
        part = {"type": "output_text", "text": str(request["input"])}
        return {"output": [{"type": "message", "role": "assistant", "content": [part]}]}

    async def aclose(self) -> None:
        raise AssertionError("the component is the caller's")


async def answer(url: str) -> str:
    async with aiohttp.ClientSession() as session, session.post(f"{url}/v1/responses", json={"input": "Hi"}) as reply:
        reply.raise_for_status()
        body = await reply.json()
    text: str = body["output"][0]["content"][0]["text"]
    return text


@pytest.mark.parametrize("end", [ZeroDivisionError, asyncio.CancelledError])
def test_a_live_component_answers_over_http_and_leaves_nothing(end: type[BaseException]):
    async def main() -> None:
        async with nothing_left():
            with pytest.raises(end):
                await asyncio.create_task(block())

    async def block() -> None:
        async with velo.serve(Echo()) as url:
            assert await answer(url) == "Hi"
            if end is ZeroDivisionError:
                raise end
            task = asyncio.current_task()
            assert task
            task.cancel()
            await asyncio.Event().wait()

    asyncio.run(main())


def shout(text: str) -> str:
    return text.upper()


async def parrot(task: dict[str, Any]) -> dict[str, Any]:
    return {"output": task["responses_create_params"]["input"], "reward": 1.0}


def test_a_function_is_served_as_a_model_or_an_agent():
    async def main(**keywords: Any) -> str:
        async with nothing_left(), velo.serve(**keywords) as url:
            return await answer(url)

    assert asyncio.run(main(model=shout)) == "HI"
    assert asyncio.run(main(agent=parrot)) == "Hi"


def test_the_viewer_shows_a_file_and_leaves_nothing(rollouts: Callable[..., Path]):
    async def page() -> str:
        async with nothing_left():
            with velo.view(rollouts()) as viewer:
                async with aiohttp.ClientSession() as session, session.get(viewer.url) as reply:
                    return await reply.text()

    assert "rollouts" in asyncio.run(page())


def test_what_cannot_be_served_raises_where_it_is_asked_for(rollouts: Callable[..., Path], tmp_path: Path):
    async def serve(*args: Any, **keywords: Any) -> None:
        async with velo.serve(*args, **keywords):
            raise AssertionError("it was served")

    with pytest.raises(velo.errors.InputError, match="none"):
        velo.view(tmp_path / "none.jsonl")
    with pytest.raises(velo.errors.InputError, match="token"):
        velo.view(rollouts(), host="0.0.0.0")
    with pytest.raises(velo.errors.InputError, match="pass token="):
        asyncio.run(serve(Echo(), host="0.0.0.0"))
    for args, keywords in (((object(),), {}), ((), {}), ((Echo(),), {"model": shout})):
        with pytest.raises(velo.errors.InputError):
            asyncio.run(serve(*args, **keywords))
