"""One session with an MCP server, with the official SDK.

The SDK's scopes belong to the task that entered them, so each connection has a task that keeps it open. A server that
is a command ends with its connection, or with this process in any case. The first connection imports the SDK.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson

from velodrome.children import Program, start_program
from velodrome.errors import ToolError, blame, describe
from velodrome.settings.masking import mask_text, secrets_in

Json = dict[str, Any]

# The variables that a server inherits; all others, such as keys and tokens, are withheld.
_INHERITED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER", "VIRTUAL_ENV")
_MESSAGE_BYTES = 64 << 20
_MAX_PAGES = 100
_MODEL_MISTAKES = frozenset((-32602, -32601))  # wrong arguments, no such tool


@dataclass(frozen=True)
class McpTarget:
    """How to reach a server: a command, or a URL."""

    command: Sequence[str] = ()
    url: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None

    @property
    def label(self) -> str:
        """The server's name in messages."""
        return "MCP server " + mask_text(self.url or " ".join(self.command), self.secrets)[:200]

    @property
    def secrets(self) -> frozenset[str]:
        """The secrets in its environment, headers and URL."""
        return secrets_in({"env": dict(self.env), "headers": dict(self.headers), "url": self.url})


class McpConnection:
    """One session with one server."""

    def __init__(self, target: McpTarget) -> None:
        self.target = target
        self.loop = asyncio.get_running_loop()
        self._client: Any = None
        self._program: Program | None = None
        self._up: asyncio.Future[None] = self.loop.create_future()
        self._stop = asyncio.Event()
        self._task = asyncio.ensure_future(self._hold())

    @property
    def alive(self) -> bool:
        """Whether it is usable: not closed, and its server has not ended."""
        ended = self._program is not None and self._program.reader.at_eof()
        return not self._task.done() and not self._stop.is_set() and not ended

    async def ready(self) -> None:
        """Wait until the server has answered."""
        await asyncio.wait({self._up, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if self._task.done() and not self._up.done():
            error = self._task.exception()
            why = "closed" if error is None else describe(_innermost(error))
            failure = "cannot be reached; is it running?" if self.target.url else "did not start:"
            raise ToolError(await self._with_ending(f"{self.target.label} {failure} {why}")) from error

    async def tools(self) -> list[Any]:
        """Every tool of the server, as the SDK describes them."""
        tools: list[Any] = []
        cursor = None
        for _ in range(_MAX_PAGES):
            page = await self._request("tools/list", self._client.list_tools(cursor=cursor))
            tools += page.tools
            cursor = page.next_cursor
            if not cursor:
                break
        return tools

    async def call(self, name: str, arguments: Json) -> str:
        """The result of a tool as text. A refused call is also text; a failure of the server is a `ToolError`."""
        try:
            result = await self._request(name, self._client.call_tool(name, arguments))
        except ToolError as error:
            if getattr(error.__cause__, "code", None) in _MODEL_MISTAKES:
                return self._masked(f"error: {error}")
            raise
        text = self._masked(content_text(result))
        return f"error: {text}" if result.is_error and not text.startswith("error:") else text

    async def _request(self, method: str, answer: Coroutine[Any, Any, Any]) -> Any:
        """Await the server's answer. An error from the server, or its end, is a `ToolError`."""
        from mcp.shared.exceptions import MCPError

        try:
            with blame(ToolError, f"{method}: {self.target.label}"):
                return await answer
        except ToolError as error:
            cause = error.__cause__
            text = f"{method}: {self.target.label}: {cause.message}" if isinstance(cause, MCPError) else str(error)
            raise ToolError(await self._with_ending(text)) from cause

    async def close(self) -> None:
        """End the session, and the server if it is a command."""
        self._stop.set()
        if not self._up.done():
            self._task.cancel()
        await asyncio.wait({self._task})

    async def _hold(self) -> None:
        from mcp.client.client import Client

        async with AsyncExitStack() as stack:
            transport = await self._transport(stack)
            self._client = await stack.enter_async_context(Client(transport, cache=None))
            self._up.set_result(None)
            await self._stop.wait()

    async def _transport(self, stack: AsyncExitStack) -> Any:
        if not self.target.command:
            import httpx2
            from mcp.client.streamable_http import streamable_http_client

            waits = httpx2.Timeout(30.0, read=None)  # calls are limited by `tool_timeout_s`
            client = httpx2.AsyncClient(headers=dict(self.target.headers), timeout=waits)
            return streamable_http_client(self.target.url, http_client=await stack.enter_async_context(client))
        env = {name: os.environ[name] for name in _INHERITED if name in os.environ} | dict(self.target.env)
        command = [word.replace("{python}", sys.executable) for word in self.target.command]
        self._program = await start_program(command, env=env, cwd=self.target.cwd, line_bytes=_MESSAGE_BYTES)
        stack.push_async_callback(self._program.close)
        return _messages(self._program)

    async def _with_ending(self, text: str) -> str:
        """The message without secrets; if the server has ended, with its exit status and last output."""
        program = self._program
        if program is not None and program.reader.at_eof():
            text = f"{text} ({await program.ended()})"
        return mask_text(text, self.target.secrets)

    def _masked(self, text: str) -> str:
        for secret in self.target.secrets:
            text = text.replace(secret, "***")
        return text


@asynccontextmanager
async def _messages(program: Program) -> AsyncIterator[tuple[Any, Any]]:
    """The SDK's streams over a program: one message of JSON per line. Other lines are ignored."""
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    received, incoming = anyio.create_memory_object_stream[Any](0)
    outgoing, sent = anyio.create_memory_object_stream[Any](0)

    async def receive() -> None:
        async with received:
            while line := await _line(program.reader):
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    continue
                await received.send(SessionMessage(message))

    async def send() -> None:
        async for message in sent:
            program.writer.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            try:
                await program.writer.drain()
            except ConnectionError:
                return  # `receive` reports the end

    with contextlib.ExitStack() as streams:
        for stream in (received, incoming, outgoing, sent):
            streams.callback(stream.close)
        async with anyio.create_task_group() as group:
            group.start_soon(receive)
            group.start_soon(send)
            try:
                yield incoming, outgoing
            finally:
                group.cancel_scope.cancel()


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readline()
    except ValueError:  # longer than any message: the rest of the stream is unusable
        reader.feed_eof()
        return b""


def content_text(result: Any) -> str:
    """The text of a result for the model: its texts and a note for each image, or its structured content as JSON."""
    parts = [_part(block) for block in result.content]
    if not parts and result.structured_content is not None:
        return orjson.dumps(result.structured_content).decode()
    return "\n".join(parts).encode("utf-8", "replace").decode()


def _part(block: Any) -> str:
    if block.type == "text":
        return str(block.text)
    if block.type in ("image", "audio"):
        return f"[{block.type}: {block.mime_type}, {len(block.data) * 3 // 4} bytes]"
    if block.type == "resource":
        resource = block.resource
        return (
            str(resource.text)
            if hasattr(resource, "text")
            else f"[resource: {resource.uri}, {len(resource.blob) * 3 // 4} bytes]"
        )
    return f"[{block.type}: {getattr(block, 'uri', '')}]"


def _innermost(error: BaseException) -> BaseException:
    """The error inside the groups that the SDK's task groups raise."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
