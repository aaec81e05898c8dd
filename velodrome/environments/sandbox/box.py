"""One sandbox as its user sees it: files in and out, programs run one at a time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict

from velodrome.environments.sandbox.link import LOST, STOPPED, BoxReply, Limits, Link, Ran
from velodrome.errors import SandboxEnded
from velodrome.timing import elsewhere

_GRACE_S = 5.0  # beyond the limit, before the box is killed from outside
_LISTING = 1 << 20
_FOREVER_S = 1e9


class Sandbox:
    """A fresh scratch folder, which is the working directory of what runs in it and the only place it can write to."""

    def __init__(self, link: Link, limits: Limits, closed: Callable[[Sandbox], None]) -> None:
        self._link, self._limits, self._closed = link, limits, closed
        self._running: asyncio.Future[BoxReply] | None = None

    async def run(self, argv: Sequence[str], stdin: str | bytes = "", limits: Limits | None = None) -> Ran:
        """Run a program to its end; then everything it started is killed."""
        limits = limits or self._limits
        answer = self._begin(argv, _bytes(stdin), limits, talks=False)
        try:
            async with asyncio.timeout(limits.wall_s + _GRACE_S):
                return _ran(await answer)
        except TimeoutError:
            await self.close()
            return Ran("", "", -9, "time", limits.wall_s, 0.0)
        except SandboxEnded:
            return LOST
        except asyncio.CancelledError:
            self._link.send("end", STOPPED.index("ended"))
            raise

    async def start(self, argv: Sequence[str], limits: Limits | None = None) -> BoxProgram:
        """Start a program to talk to, line by line."""
        limits = limits or self._limits
        end = self._begin(argv, b"", limits, talks=True)
        return BoxProgram(self._link, end, self.close, 2 * limits.output_bytes)

    def _begin(self, argv: Sequence[str], stdin: bytes, limits: Limits, *, talks: bool) -> asyncio.Future[BoxReply]:
        if self._link.ended:
            raise SandboxEnded("the sandbox has ended", LOST)
        if self._running is not None and not self._running.done():
            raise RuntimeError("a program runs in this sandbox; stop it before another one is started")
        self._running = self._link.ask("start", list(argv), stdin, asdict(limits), talks, room=limits.output_bytes)
        return self._running

    async def write(self, path: str, data: str | bytes) -> None:
        """Write a file in the scratch; OSError if that is not possible there."""
        reply = await self._link.ask("write", path, _bytes(data))
        if reply.code:
            raise OSError(reply.code, os.strerror(reply.code), path)

    async def read(self, path: str, limit: int = 1 << 20) -> bytes | None:
        """The first bytes of a regular file in the scratch, up to a limit; None if there is none. Follows no links."""
        reply = await self._link.ask("read", path, limit, room=limit)
        return None if reply.code else reply.first[:limit]

    async def files(self) -> list[str]:
        """The paths of all regular files in the scratch, in order."""
        reply = await self._link.ask("files", _LISTING, room=_LISTING)
        return [os.fsdecode(name) for name in reply.first.split(b"\0") if name]

    @property
    def ended(self) -> bool:
        return self._link.ended

    async def close(self) -> None:
        """Kill everything in the box, and forget its files."""
        self._closed(self)
        await self._link.close()

    async def __aenter__(self) -> Sandbox:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class BoxProgram:
    """A running program that answers line by line. While it runs, nothing else runs in its box."""

    def __init__(
        self, link: Link, end: asyncio.Future[BoxReply], close_box: Callable[[], Awaitable[None]], most_bytes: int
    ) -> None:
        self._link, self._end, self._close_box, self._most_bytes = link, end, close_box, most_bytes
        self._output = bytearray()
        self._changed = asyncio.Event()
        link.on_lines = self._receive
        end.add_done_callback(lambda _: self._changed.set())

    def _receive(self, data: bytes) -> bool:
        self._output += data
        self._changed.set()
        return len(self._output) <= self._most_bytes  # more than one answer can be

    async def ask(self, line: bytes, timeout_s: float = 5.0) -> bytes:
        """Send a line and return the next line of its output. It is stopped if that takes too long."""
        if not self._end.done():
            self._link.send("tell", line)
        try:
            async with asyncio.timeout(timeout_s):
                while b"\n" not in self._output:
                    if self._end.done():
                        raise SandboxEnded("the program has ended", await self._outcome())
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            ran = await self._stop(STOPPED.index("time"))
            raise SandboxEnded(f"no answer within {timeout_s:g} s", ran) from None
        size = self._output.index(b"\n") + 1
        answer = bytes(self._output[:size])
        del self._output[:size]
        return answer

    async def stop(self) -> Ran:
        """End the program and all it started."""
        return await self._stop(STOPPED.index("ended"))

    async def _stop(self, reason: int) -> Ran:
        if not self._end.done():
            self._link.send("end", reason)
            try:
                async with asyncio.timeout(_GRACE_S):
                    await asyncio.wait([self._end])
            except TimeoutError:
                await self._close_box()
        return await self._outcome()

    async def _outcome(self) -> Ran:
        try:
            ran = _ran(await self._end)
        except SandboxEnded as error:
            ran = error.ran
        return Ran(self._output.decode(errors="replace"), ran.stderr, ran.exit_code, ran.stopped, ran.wall_s, ran.cpu_s)


def _ran(reply: BoxReply) -> Ran:
    stopped = STOPPED[reply.stopped] if reply.stopped < len(STOPPED) else "ended"
    out, err = (part.decode(errors="replace") for part in (reply.first, reply.rest))
    wall_s, cpu_s = (value if 0 <= value < _FOREVER_S else 0.0 for value in (reply.wall_s, reply.cpu_s))
    elsewhere.charge(cpu_s)
    return Ran(out, err, reply.code, stopped, wall_s, cpu_s)


def _bytes(data: str | bytes) -> bytes:
    return data.encode(errors="surrogatepass") if isinstance(data, str) else data
