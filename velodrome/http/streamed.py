"""An answer read while it arrives: bounded in bytes and in silence, never begun twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from types import TracebackType

import aiohttp

from velodrome.errors import CallError, describe
from velodrome.http.target import Target
from velodrome.timing.deadline import deadline


class Stream:
    """An answer that is still arriving, its first bytes there. Leaving it early closes the connection."""

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        first: bytes,
        target: Target,
        most_bytes: int,
        silence_s: float,
        ends: float,
        over: Callable[[], None],
    ) -> None:
        self.status = response.status
        self.headers = response.headers
        self.target = target
        self._response = response
        self._first = first
        self._most_bytes = most_bytes
        self._silence_s = silence_s
        self._ends = ends  # by the clock of the loop
        self._over = over

    async def __aenter__(self) -> Stream:
        self.target.in_flight += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.target.in_flight -= 1
        self._response.close()
        self._over()

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes, read once; raises `CallError` where it breaks off."""
        chunk, size = self._first, 0
        while chunk:
            size += len(chunk)
            if size > self._most_bytes:
                raise self._broken(f"the body is larger than {self._most_bytes} bytes")
            yield chunk
            try:
                with deadline(min(self._silence_s, self._ends - asyncio.get_running_loop().time())):
                    chunk = await self._response.content.readany()
            except TimeoutError as error:
                raise self._broken("the stream fell silent") from error
            except (aiohttp.ClientError, OSError) as error:
                raise self._broken(f"connection lost in the middle of the stream ({describe(error)})") from error

    def _broken(self, what: str) -> CallError:
        return CallError(f"{self._response.method} {self.target.label}: {what}")
