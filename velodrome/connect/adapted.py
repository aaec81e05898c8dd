"""An environment of another project, in a process of its own that this one starts when it is first needed.

The program runs in the project's virtual environment and speaks our wire on loopback, with a token that only this
process knows. It ends with this process, however that ends. If it dies, the rollouts it held fail as a fault of the
tool, and the next one starts another.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import orjson

from velodrome.children import Program, start_program
from velodrome.contracts import Json
from velodrome.errors import InputError, RolloutError, ToolError, VerifyError
from velodrome.serving.remote import HttpResources
from velodrome.settings.component import Component, Field
from velodrome.settings.masking import is_secret_key, mask_text, secrets_in

Got = TypeVar("Got")

PROGRAMS = Path(__file__).parent / "programs"
TOKEN = "VELODROME_ADAPTER_TOKEN"
_LONGEST_START_LINE = 1 << 16


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
        """Only look: nothing is started before it is needed."""
        self._program_file = PROGRAMS / f"{self.adapter}_program.py"
        if not self._program_file.is_file():
            there = ", ".join(sorted(path.name.removesuffix("_program.py") for path in PROGRAMS.glob("*_program.py")))
            raise InputError(f"there is no adapter {self.adapter!r}; there are: {there}")
        if not os.access(self.python, os.X_OK):
            raise InputError(
                f"{self.package}: there is no interpreter {self.python}: velo env add {self.adapter}:{self.package}"
                " --overwrite makes it again"
            )
        self._running: _AdapterProcess | None = None
        self._starting: tuple[Any, asyncio.Lock] | None = None

    async def open(self, task: Json) -> str:
        """Start a session; the process too, unless it runs."""
        return await self._asked(ToolError, lambda client: client.open(task), await self._here())

    async def call(self, session: str, name: str, arguments: Any) -> str:
        """Run one of its tools."""
        return await self._asked(ToolError, lambda client: client.call(session, name, arguments))

    async def begin(self, session: str, task: Json) -> Json | None:
        """The first turn; None if it takes no turns."""
        return await self._asked(ToolError, lambda client: client.begin(session, task))

    async def advance(self, session: str, action: str) -> Json:
        """The turn after what the model said."""
        return await self._asked(ToolError, lambda client: client.advance(session, action))

    async def score(self, session: str, task: Json, response: Json) -> Json:
        """What the other project says it is worth."""
        return await self._asked(VerifyError, lambda client: client.score(session, task, response))

    async def close(self, session: str) -> None:
        """Forget the session; with its process it is gone already."""
        if self._running is not None and self._running.alive:
            await self._asked(ToolError, lambda client: client.close(session))

    async def tools(self) -> list[Json]:
        """Its tools."""
        return await self._asked(ToolError, lambda client: client.tools(), await self._here())

    async def tasks(self, limit: int) -> list[Json]:
        """The first tasks of its data set."""
        running = await self._here()
        rows = await self._asked(ToolError, lambda client: client.fetched(f"/tasks/{limit}"), running)
        return rows if isinstance(rows, list) else []

    async def deferrable(self) -> bool:
        """Its sessions are gone when the process is."""
        return False

    async def aclose(self) -> None:
        """End the process."""
        running, self._running = self._running, None
        if running is not None and running.loop is asyncio.get_running_loop():
            await running.program.close(grace_s=1.0)

    async def _asked(
        self, kind: type[RolloutError], ask: Callable[[_Client], Awaitable[Got]], running: _AdapterProcess | None = None
    ) -> Got:
        """What the process answers. If it has ended, that is the fault of the tool or of the verifier."""
        running = running or self._running
        if running is None or not running.alive:
            raise kind(await self._ended(running))
        try:
            return await ask(running.client)
        except RolloutError as error:
            if error.away is None:
                raise
            raise kind(await self._ended(running)) from None

    async def _ended(self, running: _AdapterProcess | None) -> str:
        what = f"{self.adapter}:{self.package}: its process"
        if running is None or running.alive:
            return f"{what} does not answer"
        return mask_text(f"{what} ended: {await running.program.ended()}", secrets_in({"env": self.env}))

    async def _here(self) -> _AdapterProcess:
        """The process, started if there is none on this loop."""
        loop = asyncio.get_running_loop()
        if self._starting is None or self._starting[0] is not loop:
            self._starting = loop, asyncio.Lock()
        async with self._starting[1]:
            running = self._running
            if running is not None and running.loop is loop:
                if running.alive:
                    return running
                await running.program.close(grace_s=0.0)
            self._running = await self._started()
            return self._running

    async def _started(self) -> _AdapterProcess:
        token = secrets.token_urlsafe(32)
        command = [self.python, str(self._program_file), self.package, orjson.dumps(self.arguments).decode()]
        env = {**_inherited(), **self.env, TOKEN: token}
        program = await start_program(command, env=env, line_bytes=_LONGEST_START_LINE)
        try:
            async with asyncio.timeout(self.start_timeout_s):
                line = await program.reader.readline()
            if not line:
                raise ToolError(f"{self.adapter}:{self.package} did not start: {await program.ended()}")
            return _AdapterProcess(program, _Client(str(orjson.loads(line)["url"]), token))
        except (ValueError, TypeError, KeyError):
            await program.close(grace_s=0.0)
            raise ToolError(f"{self.adapter}:{self.package} did not start: it said {line[:100]!r}") from None
        except TimeoutError:
            await program.close(grace_s=0.0)
            raise ToolError(
                f"{self.adapter}:{self.package} did not start within start_timeout_s={self.start_timeout_s:g}"
            ) from None
        except BaseException:  # cancelled, too
            await program.close(grace_s=0.0)
            raise


def _inherited() -> dict[str, str]:
    """Our variables without those of our Python, and without our keys: `env` gives it what it needs."""
    mine = ("PYTHON", "VIRTUAL_ENV")
    return {name: text for name, text in os.environ.items() if not name.startswith(mine) and not is_secret_key(name)}


class _Client(HttpResources):
    """The client of an adapter's program."""

    async def fetched(self, route: str) -> Any:
        """The JSON of a route."""
        return await self._get(route, ToolError)


class _AdapterProcess:
    """A program that answers, and its client."""

    def __init__(self, program: Program, client: _Client) -> None:
        self.program = program
        self.client = client
        self.loop = asyncio.get_running_loop()

    @property
    def alive(self) -> bool:
        """Whether the process has not ended, as far as is known: its stdout ends with it."""
        return not self.program.reader.at_eof()
