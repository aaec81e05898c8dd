"""A model that streams what a test says and then hangs, and a caller that goes away meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from typing import Any

import httpx2

from tests.support.patience import DEADLINE_S

Json = dict[str, Any]


class Staged:
    """Streams its events; then it raises, waits for ever, or just stops. `ended` is set when it is closed."""

    def __init__(self, events: list[Json], then: Exception | str | None = None) -> None:
        self.events = events
        self.then = then
        self.started = threading.Event()
        self.ended = threading.Event()

    async def respond(self, request: Json) -> Json:
        try:
            self.started.set()
            await asyncio.Event().wait()
            raise AssertionError
        finally:
            self.ended.set()

    async def stream(self, request: Json) -> AsyncGenerator[Json, None]:
        try:
            self.started.set()
            for event in self.events:
                yield event
            if isinstance(self.then, Exception):
                raise self.then
            if self.then == "hang":
                await asyncio.Event().wait()
        finally:
            self.ended.set()

    async def aclose(self) -> None: ...


def ask_and_leave(url: str, body: Json, model: Staged, *, after: str | None) -> None:
    """Asks, and goes away after a line with this text, or as soon as the model has begun."""

    async def main() -> None:
        async with httpx2.AsyncClient(timeout=DEADLINE_S) as plain:

            async def read() -> None:
                async with plain.stream("POST", url, json=body) as reply:
                    async for line in reply.aiter_lines():
                        if after and after in line:
                            seen.set()

            seen = asyncio.Event()
            call = asyncio.create_task(read())
            await (seen.wait() if after else asyncio.to_thread(model.started.wait, DEADLINE_S))
            assert not model.ended.is_set()
            call.cancel()
            await asyncio.wait([call])

    asyncio.run(main())
