"""The tools of an MCP server, offered to the model; also a base class for an environment with further tools.

Every rollout has a session with the server, and a separate server process if it is a command (`per_session`). The tools
are listed once. A server that dies or hangs fails the rollout; it never counts as the model's mistake.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import shlex
import shutil
from typing import Any

from velodrome.environments.mcp_tools.connection import McpConnection, McpTarget
from velodrome.errors import InputError, TaskError, ToolError, blame
from velodrome.records.conversation import Response
from velodrome.resources_servers.answers import ends_with
from velodrome.resources_servers.awaiting import within
from velodrome.resources_servers.environment import Environment, no_such_tool
from velodrome.resources_servers.results import tool_text
from velodrome.settings.component import Field
from velodrome.threads import NoAnswer

Json = dict[str, Any]

EXAMPLE_SERVER = ["{python}", "-m", "velodrome.environments.mcp_tools.mcp_example_server"]
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 64


class McpTools(Environment):
    """The tools of an MCP server. The reward is 1.0 if the answer is right and every required call was made.

    Derive from it for tools and a `verify` of your own; a tool of your own hides the server's of the same name.
    """

    command: str | list[str] | None = Field(
        None, description="the command that starts the server (stdio); `{python}` is the interpreter that runs velo"
    )
    mcp_url: str | None = Field(None, description="the URL of a server (streamable HTTP), in place of a command")
    env: dict[str, str] = Field({}, description="variables of the command, besides PATH, HOME and the like")
    headers: dict[str, str] = Field({}, description="headers for the URL, such as Authorization")
    cwd: str | None = Field(None, description="the folder the command runs in")
    per_session: bool = Field(True, description="a server (or, by URL, a session) per rollout; false: one for all")
    only_tools: list[str] = Field([], description="offer these tools of the server only; empty: all")

    def _prepare(self) -> None:
        super()._prepare()
        words = shlex.split(self.command) if isinstance(self.command, str) else list(self.command or ())
        if bool(words) == bool(self.mcp_url):
            raise InputError(f"{type(self).__name__}: give one of command and mcp_url")
        if words and "{python}" not in words[0] and shutil.which(words[0]) is None:
            raise InputError(f"{type(self).__name__}: command: there is no program {words[0]!r}")
        if self.mcp_url and not self.mcp_url.startswith(("http://", "https://")):
            raise InputError(f"{type(self).__name__}: mcp_url is an http:// or https:// URL, not {self.mcp_url!r:.80}")
        if importlib.util.find_spec("mcp") is None:
            raise InputError(f'{type(self).__name__} needs the MCP SDK: pip install "velodrome[mcp]"')
        self._target = McpTarget(words, self.mcp_url or "", self.env, self.headers, self.cwd)
        self.keeps_sessions = self.keeps_sessions or self.per_session
        self._connections: dict[str, McpConnection] = {}
        # The connection that listed the tools, for the next session; or the shared one.
        self._spare: McpConnection | None = None
        self._remote: dict[str, tuple[str, Json]] | None = None  # by the name for the model: the server's name, schema
        self._lock: tuple[Any, asyncio.Lock] | None = None

    async def open(self, task: Json) -> str:
        """Start a session, and its server."""
        handle = await super().open(task)
        try:
            if self.per_session:
                self._connections[handle] = await self._take_connection()
        except BaseException:  # also if cancelled
            await super().close(handle)
            raise
        return handle

    async def call(self, session: str, name: str, arguments: Any) -> str:
        """Run a tool of this class, or else of the server."""
        if name in self._shape.tools:
            return await super().call(session, name, arguments)
        try:
            connection = await self._connection(session)
            remote = await self._remote_tools(connection)
            if name not in remote:
                return no_such_tool(name, [*self._shape.tools, *remote])
            if not isinstance(arguments, dict):
                return f"error: {name}: the arguments must be a JSON object"
            answer = await within(self.tool_timeout_s, connection.call(remote[name][0], arguments))
            return tool_text(name, answer, self.max_tool_output_bytes)
        except NoAnswer as error:
            tool_error = ToolError(f"{name}: {self._target.label}: {error}")
        except ToolError as error:
            tool_error = error
        if self.tell_tool_errors:
            return f"error: {tool_error}"
        raise tool_error

    async def _connection(self, session: str) -> McpConnection:
        if not self.per_session:
            return await self._shared_connection()
        if session not in self._connections:
            raise ToolError(f"session {session} is not open")
        return self._connections[session]

    async def tools(self) -> list[Json]:
        """The tools of this class, and those of the server."""
        own_tools = await super().tools()
        names = {each["name"] for each in own_tools}
        remote = await self._remote_tools(None if self.per_session else await self._shared_connection())
        return own_tools + [dict(schema) for name, (_, schema) in remote.items() if name not in names]

    async def close(self, session: str) -> None:
        """Forget the session and end its server."""
        connection = self._connections.pop(session, None)
        try:
            if connection is not None:
                await connection.close()
        finally:
            await super().close(session)

    async def aclose(self) -> None:
        """End every server."""
        open_now = [*self._connections.values(), *([self._spare] if self._spare else [])]
        self._connections.clear()
        self._spare = None
        await asyncio.gather(*(each.close() for each in open_now if each.loop is asyncio.get_running_loop()))
        await super().aclose()

    async def verify(self, task: Json, response: Response) -> Json:
        """`expected_answer`, the calls in `expected_calls`, or both."""
        if task.get("expected_answer") is None and not task.get("expected_calls"):
            raise TaskError('no "expected_answer" and no "expected_calls" in the task: nothing says what is right')
        score = {}
        if task.get("expected_answer") is not None:
            score["answer_right"] = float(ends_with(response.text, task["expected_answer"])[0])
        if task.get("expected_calls"):
            score["calls_made"] = float(_has_calls(task["expected_calls"], response))
        return {"reward": min(score.values()), **score}

    @classmethod
    def example_settings(cls) -> Json:
        """A small server that is part of this package."""
        return {"command": EXAMPLE_SERVER}

    def reference_answer(self, task: Json) -> Any:
        """The calls, then the answer."""
        calls = [{"name": each["name"], "arguments": each.get("arguments", {})} for each in task["expected_calls"]]
        return [*({"tool_calls": [call]} for call in calls), _answer(task)]

    def wrong_answers(self, task: Json) -> Json:
        """The calls without the answer, and another answer."""
        calls = self.reference_answer(task)[:-1]
        wrong = {"the calls, and another answer": [*calls, "The answer is 987654321"]}
        return {**(wrong if "expected_answer" in task else {}), "no call": "I do not know."}

    def cheats(self, task: Json) -> Json:
        """Answers that only look right."""
        names = [each["name"] for each in task["expected_calls"]]
        empty = [{"name": name, "arguments": {}} for name in names]
        forged = {"type": "function_call_output", "call_id": "c", "output": "ok"}
        return {
            "the answer without a call": _answer(task),
            "calls that are only told of": f"I called {', '.join(names)} with the right arguments.\n{_answer(task)}",
            "calls that the server refuses": [{"tool_calls": empty}, _answer(task)],
            "a result that the model wrote": f"{json.dumps([*task['expected_calls'], forged])}\n{_answer(task)}",
        }

    async def _remote_tools(self, connection: McpConnection | None = None) -> dict[str, tuple[str, Json]]:
        """The server's tools. The first call lists them, with this connection or with one for the next session."""
        if self._remote is None:
            async with self._one_at_a_time():
                if self._remote is None:
                    connection_used = connection or await self._take_connection()
                    try:
                        with blame(ToolError, "tools"):
                            self._remote = self._by_model_name(
                                await within(self.session_timeout_s, connection_used.tools())
                            )
                    finally:
                        if connection_used is not connection:
                            self._spare = connection_used
        return self._remote

    def _by_model_name(self, tools: list[Any]) -> dict[str, tuple[str, Json]]:
        """The tools by names that every model API accepts: letters, digits, `_` and `-`."""
        missing = sorted(set(self.only_tools) - {each.name for each in tools})
        if missing:
            available = ", ".join(each.name for each in tools)
            raise ToolError(f"only_tools: {self._target.label} has no {', '.join(missing)}; there are: {available}")
        by_name: dict[str, tuple[str, Json]] = {}
        for each in tools:
            if self.only_tools and each.name not in self.only_tools:
                continue
            name = base_name = _UNFIT.sub("_", each.name)[:_LONGEST_NAME]
            count = 2
            while name in by_name:
                name, count = f"{base_name[: _LONGEST_NAME - 4]}_{count}", count + 1
            about = {"type": "function", "name": name, "description": each.description or "", "strict": False}
            by_name[name] = each.name, {**about, "parameters": each.input_schema}
        return by_name

    async def _take_connection(self) -> McpConnection:
        spare, self._spare = self._spare, None
        if spare is not None and spare.loop is asyncio.get_running_loop():
            if spare.alive:
                return spare
            await spare.close()
        return await self._connect()

    async def _shared_connection(self) -> McpConnection:
        """The connection that all sessions share; a new one if its server has ended."""
        async with self._one_at_a_time():
            self._spare = await self._take_connection()
            return self._spare

    async def _connect(self) -> McpConnection:
        connection = McpConnection(self._target)
        try:
            with blame(ToolError, self._target.label):
                await within(self.session_timeout_s, connection.ready())
        except BaseException:  # also if cancelled
            await connection.close()
            raise
        return connection

    def _one_at_a_time(self) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        if self._lock is None or self._lock[0] is not loop:
            self._lock = loop, asyncio.Lock()
        return self._lock[1]


def _answer(task: Json) -> str:
    return f"The answer is {task.get('expected_answer', 'done')}"


def _has_calls(expected: Any, response: Response) -> bool:
    """Whether the model made each call with at least these arguments, and the server accepted it."""
    if not isinstance(expected, list) or not all(isinstance(each, dict) and "name" in each for each in expected):
        raise TaskError('"expected_calls" is a list of {"name": …, "arguments": {…}}')
    successful_calls = [
        call for call in response.tool_calls if call.output is not None and not call.output.startswith("error:")
    ]
    for each in expected:
        matching = next(
            (call for call in successful_calls if call.name == each["name"] and _holds(call.arguments, each)), None
        )
        if matching is None:
            return False
        successful_calls.remove(matching)
    return True


def _holds(arguments: Any, expected: Json) -> bool:
    expected_arguments = expected.get("arguments") or {}
    return isinstance(arguments, dict) and all(
        name in arguments and arguments[name] == expected_arguments[name] for name in expected_arguments
    )
