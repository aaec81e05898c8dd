"""The interpreter of one rollout: a process in the rollout's sandbox, started at the first call.

If code breaks its interpreter, the next call gets a new one, and the result says so.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from pathlib import Path

from velodrome.environments.sandbox import BoxProgram, Sandbox, SandboxEnded
from velodrome.http.limiter import Limiter

SOURCE = Path(__file__).with_name("interpreter.py").read_text(encoding="utf-8")
START_S = 60.0
LOST = "the next call has a new interpreter: variables are lost, files remain"


class Interpreter:
    """One call at a time; `places` are shared with other rollouts while code runs."""

    def __init__(self, box: Sandbox, places: Limiter, timeout_s: float, max_output_bytes: int) -> None:
        self._box = box
        self._places = places
        self._timeout_s = timeout_s
        self._max_output_bytes = max_output_bytes
        self._program: BoxProgram | None = None
        self._one_at_a_time = asyncio.Lock()

    async def run(self, code: str) -> str:
        """Run code; returns its output, the value of its last expression, or its error."""
        async with self._one_at_a_time, self._places:
            try:
                if self._program is None:
                    self._program = await self._box.start(["python3", "-c", SOURCE])
                    await self._ask(self._program, "", START_S)  # the start does not count towards the code's time
                reply = await self._ask(self._program, code, self._timeout_s)
            except SandboxEnded as error:
                if self._program is None:
                    return "error: the sandbox has ended; no more code can be run"
                self._program = None
                return f"error: {ending(error, self._timeout_s)}; {LOST}"
            if reply is None:
                await self.stop()
                return f"error: the interpreter was damaged by the code; {LOST}"
            return reply[: 2 * self._max_output_bytes]

    async def _ask(self, program: BoxProgram, code: str, timeout_s: float) -> str | None:
        mark = secrets.token_hex(8)
        request = json.dumps({"mark": mark, "code": code, "most": self._max_output_bytes}).encode() + b"\n"
        return read_reply(await program.ask(request, timeout_s=timeout_s), mark)

    async def stop(self) -> None:
        """End the process; the next call starts another."""
        program, self._program = self._program, None
        if program is not None:
            await program.stop()

    async def close(self) -> None:
        """End the interpreter with its sandbox."""
        await self._box.close()


def read_reply(line: bytes, mark: str) -> str | None:
    """The text of a reply to the request with this mark; None if it is not one."""
    try:
        reply = json.loads(line)
        text = reply["text"].encode().decode() if isinstance(reply["text"], str) else None  # no lone surrogates
        return text if reply["mark"] == mark else None
    except (ValueError, RecursionError, KeyError, TypeError):
        return None


def ending(error: SandboxEnded, timeout_s: float) -> str:
    """The reason why an interpreter ended, for the model."""
    if error.stopped == "time":
        return f"the code took longer than {timeout_s:g} s and was stopped"
    if error.stopped in ("", "ended"):
        return f"the interpreter ended with exit code {error.ran.exit_code}"
    return f"the code went beyond its limit of {error.stopped} and was stopped"
