"""Server-sent events: the data of each, from bytes cut anywhere.

Lines end in LF or CRLF; names, ids and comments are skipped, for every event of these APIs says in its data what it is.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable


async def payloads(chunks: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    """The data of one event after another; the last needs no blank line after it."""
    data: list[bytes] = []
    async for line in _lines(chunks):
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif not line and data:
            yield b"\n".join(data)
            data = []


async def _lines(chunks: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    rest: list[bytes] = []  # of a line that has not ended
    async for chunk in chunks:
        first, *others = chunk.split(b"\n")
        rest.append(first)
        for other in others:
            yield b"".join(rest).removesuffix(b"\r")
            rest = [other]
    if any(rest):
        yield b"".join(rest).removesuffix(b"\r")
    yield b""
