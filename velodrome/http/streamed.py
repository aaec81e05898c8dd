"""An answer read while it arrives, with limits on its size and on each silence. It is never restarted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from types import TracebackType

import aiohttp

from velodrome.errors import CallError, describe
from velodrome.http.target import Target
from velodrome.timing.deadline import deadline


class Stream:
    """An answer that is still arriving; its first bytes are here. Leaving it early closes the connection."""

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        first_chunk: bytes,
        target: Target,
        max_bytes: int,
        silence_s: float,
        end_time: float,
        on_close: Callable[[], None],
    ) -> None:
        self.status = response.status
        self.headers = response.headers
        self.target = target
        self._response = response
        self._first_chunk = first_chunk
        self._max_bytes = max_bytes
        self._silence_s = silence_s
        self._end_time = end_time  # by the clock of the loop
        self._on_close = on_close

    async def __aenter__(self) -> Stream:
        self.target.in_flight += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.target.in_flight -= 1
        self._response.close()
        self._on_close()

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The chunks of the body as they arrive; can be read once. Raises `CallError` if the stream breaks."""
        chunk, size = self._first_chunk, 0
        while chunk:
            size += len(chunk)
            if size > self._max_bytes:
                raise self._broken(f"the body is larger than {self._max_bytes} bytes")
            yield chunk
            try:
                with deadline(min(self._silence_s, self._end_time - asyncio.get_running_loop().time())):
                    chunk = await self._response.content.readany()
            except TimeoutError as error:
                raise self._broken("the stream fell silent") from error
            except (aiohttp.ClientError, OSError) as error:
                raise self._broken(f"connection lost in the middle of the stream ({describe(error)})") from error

    def _broken(self, problem: str) -> CallError:
        return CallError(f"{self._response.method} {self.target.label}: {problem}")
