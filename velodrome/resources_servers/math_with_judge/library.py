"""math-verify, in a few processes of its own.

What it parses was written by a model and can keep sympy busy for ever, so it never runs in the loop's process. CPU time
decides whether an answer takes too long, so that a busy machine gives the same scores as an idle one. Wall time only
ends a hang: running out of it is a failure, never a score. A process that did not answer is replaced.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from dataclasses import dataclass
from pathlib import Path

import orjson

from velodrome.errors import VerifyError
from velodrome.http.limiter import Limiter
from velodrome.timing import elsewhere
from velodrome.timing.spans import span

WORKER = Path(__file__).with_name("library_worker.py")
START_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the library makes of one answer."""

    right: bool
    extracted: str | None


class LibraryTimeout(VerifyError):
    """The library used up its CPU time on this answer."""


class Library:
    """Up to `size` processes, started as they are needed."""

    def __init__(self, size: int, cpu_s: float, wall_s: float) -> None:
        self._cpu_s = cpu_s
        self._wall_s = wall_s
        self._limiter = Limiter("library", size, "verify_processes", divided=True)
        self._idle: list[Process] = []
        self._all: set[Process] = set()

    async def check(self, expected: str, text: str) -> Verdict:
        """Whether the answer at the end of `text` equals what was expected."""
        request = orjson.dumps({"expected": expected, "text": text, "cpu_s": self._cpu_s}) + b"\n"
        with span("library"):
            async with self._limiter:
                line = await self._ask(request)
        if not line.endswith(b"\n"):
            raise VerifyError("math-verify: its process ended before it answered (too much memory?)")
        answer = orjson.loads(line)
        elsewhere.charge(answer["cpu_s"])
        return Verdict(answer["right"], answer["extracted"])

    async def _ask(self, request: bytes) -> bytes:
        process = self._idle.pop() if self._idle else await self._start()
        line = b""
        try:
            async with asyncio.timeout(self._wall_s):
                line = await _exchange(process, request)
                if not line.endswith(b"\n"):
                    await process.wait()  # it is ending; how it ended says why
        except TimeoutError:
            raise VerifyError(
                f"math-verify: no answer within library_wall_timeout_s={self._wall_s:g}; its CPU time was not used up:"
                " the machine is overloaded or the process was stopped"
            ) from None
        finally:
            if line.endswith(b"\n"):
                self._idle.append(process)
            else:
                await self._end(process)
        if process.returncode == -signal.SIGPROF:
            elsewhere.charge(self._cpu_s)
            raise LibraryTimeout(f"math-verify: no answer within library_timeout_s={self._cpu_s:g} of CPU time")
        return line

    async def aclose(self) -> None:
        self._idle.clear()
        for process in list(self._all):
            await self._end(process)

    async def _start(self) -> Process:
        # -P: the folder of the script is not a place to import from
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", str(WORKER), stdin=PIPE, stdout=PIPE, stderr=DEVNULL
        )
        self._all.add(process)
        assert process.stdout is not None
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                ready = await process.stdout.readline()
        except TimeoutError:
            ready = b""
        except asyncio.CancelledError:
            await self._end(process)
            raise
        if ready != b"ready\n":
            await self._end(process)
            raise VerifyError("math-verify: its process did not start")
        return process

    async def _end(self, process: Process) -> None:
        self._all.discard(process)
        if process.returncode is None:
            try:
                process.kill()
            except ProcessLookupError:
                pass
        if process.stdin is not None:
            process.stdin.close()
        await asyncio.shield(process.wait())


async def _exchange(process: Process, request: bytes) -> bytes:
    """One line there, one line back; the line is cut short if the process ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(request)
        await process.stdin.drain()
        return await process.stdout.readline()
    except (BrokenPipeError, ConnectionResetError):
        return b""
