"""An environment of another project, in a separate process that is started when it is first needed.

The program runs in the virtual environment of that project. It reads requests from stdin, one line of JSON each, and
ends with this process. If it dies, its rollouts fail with a fault of the tool, and the next rollout starts it again.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from pathlib import Path
from typing import Any, ClassVar

from velodrome.children import Program, start_program
from velodrome.contracts import Json
from velodrome.errors import InputError, RolloutError, TaskError, ToolError, VerifyError, describe
from velodrome.records.jsonl import MAX_LINE_BYTES
from velodrome.resources_servers.turn_environment import STEP_PARTS, reset_fields, step_fields
from velodrome.settings.component import Component, Field
from velodrome.settings.masking import is_secret_key, mask_text, secrets_in

PROGRAMS = Path(__file__).parent / "programs"
_READY = b"{}\n"
_LONGEST_ANSWER = 256 << 20
_ANSWER_TIMEOUT_S = 3600.0
_FAULTS: dict[str, type[RolloutError]] = {kind.__name__: kind for kind in (ToolError, VerifyError, TaskError)}


class AdaptedEnvironment(Component):
    """A package of another project as an environment. `velo env add` writes a class and a config for each."""

    adapter: str = Field(description="the program that adapts it: `verifiers`")
    package: str = Field(description="the package, as the other project names it")
    python: str = Field(description="the interpreter of its virtual environment")
    arguments: dict[str, Any] = Field({}, description="what the package is loaded with")
    env: dict[str, str] = Field({}, description="variables of its process, besides ours that are not secret")
    start_timeout_s: float = Field(300.0, gt=0, description="how long it may take to load")

    keeps_sessions: ClassVar[bool] = True

    def setup(self) -> None:
        """Check the settings. The process is started when it is first needed."""
        self._program_file = PROGRAMS / f"{self.adapter}_program.py"
        if not self._program_file.is_file():
            adapters = ", ".join(
                sorted(path.name.removesuffix("_program.py") for path in PROGRAMS.glob("*_program.py"))
            )
            raise InputError(f"there is no adapter {self.adapter!r}; there are: {adapters}")
        if not os.access(self.python, os.X_OK):
            raise InputError(
                f"{self.package}: there is no interpreter {self.python}: velo env add {self.adapter}:{self.package}"
                " --overwrite makes it again"
            )
        self._running: _AdapterProcess | None = None
        self._starting: tuple[Any, asyncio.Lock] | None = None

    async def open(self, task: Json) -> str:
        """Start a session, and the process if it does not run."""
        return str(await self._request(ToolError, await self._process(), "open", task=task))

    async def call(self, session: str, name: str, arguments: Any) -> str:
        """Run a tool."""
        return str(
            await self._request(ToolError, self._running, "call", session=session, name=name, arguments=arguments)
        )

    async def begin(self, session: str, task: Json) -> Json | None:
        """The first turn; None if the environment has no turns."""
        turn = await self._request(ToolError, self._running, "reset", session=session, task=task)
        return None if turn is None else reset_fields((turn.get("observation"), turn.get("info")), MAX_LINE_BYTES)

    async def advance(self, session: str, action: str) -> Json:
        """The turn after an action of the model."""
        turn = await self._request(ToolError, self._running, "step", session=session, action=action)
        return step_fields(tuple(turn.get(name) for name in STEP_PARTS), MAX_LINE_BYTES)

    async def score(self, session: str, task: Json, response: Json) -> Json:
        """The score, computed by the other project."""
        fields = {"session": session, "task": task, "response": response}
        score: Json = await self._request(VerifyError, self._running, "verify", **fields)
        return score

    async def close(self, session: str) -> None:
        """Close the session. If its process has ended, there is nothing to close."""
        if self._running is not None and self._running.alive:
            await self._request(ToolError, self._running, "close", session=session)

    async def tools(self) -> list[Json]:
        """The tools of the environment."""
        tools: list[Json] = await self._request(ToolError, await self._process(), "tools")
        return tools

    async def tasks(self, limit: int) -> list[Json]:
        """The first tasks of the data set."""
        rows: list[Json] = await self._request(ToolError, await self._process(), "tasks", limit=limit)
        return rows

    async def deferrable(self) -> bool:
        """Never: sessions end with the process."""
        return False

    async def aclose(self) -> None:
        """End the process."""
        running, self._running = self._running, None
        if running is not None and running.loop is asyncio.get_running_loop():
            await running.close(grace_s=1.0)

    async def _request(
        self, kind: type[RolloutError], running: _AdapterProcess | None, operation: str, **fields: Any
    ) -> Any:
        """The answer of the process. Raises a `kind` if the process has ended or is silent for an hour."""
        if running is not None and running.alive:
            try:
                async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                    return await running.answer(operation, fields)
            except TimeoutError:
                what = f"{self.adapter}:{self.package}: {operation}"
                raise kind(f"{what}: no answer within {_ANSWER_TIMEOUT_S:g} s") from None
            except EOFError:
                pass  # it ended
        raise kind(await self._end_message(running))

    async def _end_message(self, running: _AdapterProcess | None) -> str:
        what = f"{self.adapter}:{self.package}: its process"
        if running is None:
            return f"{what} does not run"
        if running.fault:
            return f"{what} was killed: its answer cannot be read: {running.fault}"
        return mask_text(f"{what} ended: {await running.program.ended()}", secrets_in({"env": self.env}))

    async def _process(self) -> _AdapterProcess:
        """The process, started if there is none on this loop."""
        loop = asyncio.get_running_loop()
        if self._starting is None or self._starting[0] is not loop:
            self._starting = loop, asyncio.Lock()
        async with self._starting[1]:
            running = self._running
            if running is not None and running.loop is loop:
                if running.alive:
                    return running
                await running.close(grace_s=0.0)
            self._running = await self._start()
            return self._running

    async def _start(self) -> _AdapterProcess:
        command = [self.python, str(self._program_file), self.package, json.dumps(self.arguments)]
        program = await start_program(command, env={**_inherited_variables(), **self.env}, line_bytes=_LONGEST_ANSWER)
        what = f"{self.adapter}:{self.package} did not start"
        try:
            async with asyncio.timeout(self.start_timeout_s):
                line = await program.reader.readline()
            if not line:
                raise ToolError(f"{what}: {await program.ended()}")
            if line != _READY:
                raise ToolError(f"{what}: it said {line[:100]!r}")
            return _AdapterProcess(program)
        except TimeoutError:
            await program.close(grace_s=0.0)
            raise ToolError(f"{what} within start_timeout_s={self.start_timeout_s:g}") from None
        except BaseException:  # also when cancelled
            await program.close(grace_s=0.0)
            raise


def _inherited_variables() -> dict[str, str]:
    """The variables of this process, without those of its Python and without secrets."""
    own_prefixes = ("PYTHON", "VIRTUAL_ENV")
    return {
        name: text for name, text in os.environ.items() if not name.startswith(own_prefixes) and not is_secret_key(name)
    }


class _AdapterProcess:
    """A program that answers requests, many at once."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.loop = asyncio.get_running_loop()
        self.fault = ""  # why its answers could not be read
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count()
        self._reading = asyncio.create_task(self._read())

    @property
    def alive(self) -> bool:
        """Whether its stdout is still open: it closes when the process ends."""
        return not self._reading.done()

    async def answer(self, operation: str, fields: Json) -> Any:
        """The result of one request; raises EOFError if the process ends first."""
        number = next(self._numbers)
        self._waiting[number] = self.loop.create_future()
        self.program.writer.write(json.dumps([number, operation, fields]).encode() + b"\n")
        try:
            return await self._waiting[number]
        finally:
            self._waiting.pop(number, None)

    async def _read(self) -> None:
        try:
            while (line := await self.program.reader.readline()).endswith(b"\n"):
                answer = json.loads(line)
                waiting = self._waiting.get(answer["number"])
                if waiting is None or waiting.done():
                    continue  # its caller was cancelled
                if "error" in answer:
                    waiting.set_exception(_FAULTS.get(answer["kind"], ToolError)(answer["error"]))
                else:
                    waiting.set_result(answer["result"])
        except (ValueError, LookupError, TypeError) as error:  # a line that is too long, or not an answer
            self.fault = describe(error)
        finally:
            self.program.kill()
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(EOFError())

    async def close(self, grace_s: float) -> None:
        await self.program.close(grace_s)
        self._reading.cancel()
        await asyncio.wait({self._reading})
