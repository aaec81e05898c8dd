"""`velo.serve` and `velo.view` answer while their block runs, and leave nothing behind however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from leaks import nothing_left

import velodrome as velo


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


def test_a_live_component_answers_over_http_and_leaves_nothing():
    async def main() -> str:
        async with nothing_left(), velo.serve(Echo()) as url:
            return await answer(url)

    assert asyncio.run(main()) == "Hi"


def shout(text: str) -> str:
    return text.upper()


async def parrot(task: dict[str, Any]) -> dict[str, Any]:
    return {"output": task["responses_create_params"]["input"], "reward": 1.0}


@pytest.mark.parametrize(("keywords", "said"), [({"model": shout}, "HI"), ({"agent": parrot}, "Hi")])
def test_a_function_is_served_as_a_model_or_an_agent(keywords: dict[str, Any], said: str):
    async def main() -> str:
        async with nothing_left(), velo.serve(**keywords) as url:
            return await answer(url)

    assert asyncio.run(main()) == said


@pytest.mark.parametrize(
    ("route", "body", "status"),
    [
        ("chat/completions", {"messages": []}, 400),
        ("chat/completions", {}, 400),
        ("responses", {"input": []}, 400),
        ("responses", {"input": ""}, 400),
        ("responses", {"input": [], "instructions": "Say hi."}, 200),
    ],
)
def test_a_request_that_asks_nothing_is_a_bad_request(route: str, body: dict[str, Any], status: int):
    async def main() -> int:
        async with (
            velo.serve(model=shout) as url,
            aiohttp.ClientSession() as session,
            session.post(f"{url}/v1/{route}", json=body) as reply,
        ):
            return reply.status

    assert asyncio.run(main()) == status


def test_serving_other_machines_asks_for_the_keyword_token():
    async def main() -> None:
        async with velo.serve(Echo(), host="0.0.0.0"):
            raise AssertionError("it was served")

    with pytest.raises(velo.errors.InputError, match="pass token="):
        asyncio.run(main())


def test_nothing_is_left_when_the_block_raises():
    async def main() -> None:
        async with nothing_left(), velo.serve(Echo()) as url:
            await answer(url)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(main())


def test_nothing_is_left_when_the_block_is_cancelled():
    async def main() -> None:
        up = asyncio.Event()

        async def forever() -> None:
            async with velo.serve(Echo()) as url:
                await answer(url)
                up.set()
                await asyncio.Event().wait()

        async with nothing_left():
            task = asyncio.create_task(forever())
            await up.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())


def test_what_is_not_a_component_is_refused():
    async def main() -> None:
        for args, keywords in (((object(),), {}), ((), {}), ((Echo(),), {"model": shout})):
            with pytest.raises(velo.errors.InputError):
                async with velo.serve(*args, **keywords):
                    raise AssertionError("it was served")

    asyncio.run(main())


def test_the_viewer_shows_a_file_and_leaves_nothing(rollouts: Callable[..., Path]):
    async def page() -> str:
        async with nothing_left():
            with velo.view(rollouts()) as viewer:
                async with aiohttp.ClientSession() as session, session.get(viewer.url) as reply:
                    return await reply.text()

    assert "rollouts" in asyncio.run(page())


def test_a_viewer_that_cannot_start_raises_where_it_is_asked_for(rollouts: Callable[..., Path], tmp_path: Path):
    with pytest.raises(velo.errors.InputError, match="none"):
        velo.view(tmp_path / "none.jsonl")
    with pytest.raises(velo.errors.InputError, match="token"):
        velo.view(rollouts(), host="0.0.0.0")


def test_a_viewer_can_be_closed_twice(rollouts: Callable[..., Path]):
    viewer = velo.view(rollouts())
    viewer.close()
    viewer.close()
