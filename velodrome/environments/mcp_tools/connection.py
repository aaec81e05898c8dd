"""One session with an MCP server, with the official SDK.

The SDK's scopes belong to the task that entered them, so a connection is held open by a task of its own. A server
that is a command ends with its connection, and with this process however that ends. The SDK is imported when the
first connection is opened.
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

# What a server inherits; the rest of our environment, with its keys and tokens, is not its business.
_INHERITED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER", "VIRTUAL_ENV")
_MESSAGE_BYTES = 64 << 20
_MOST_PAGES = 100
_TOLD = frozenset((-32602, -32601))  # wrong arguments, no such tool: the model's mistakes


@dataclass(frozen=True)
class McpTarget:
    """Where a server is: a command, or a URL."""

    command: Sequence[str] = ()
    url: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None

    @property
    def label(self) -> str:
        """The server in a message."""
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
        """Whether it can be used: not closed, and its server has not ended."""
        ended = self._program is not None and self._program.reader.at_eof()
        return not self._task.done() and not self._stop.is_set() and not ended

    async def ready(self) -> None:
        """Wait until the server has answered."""
        await asyncio.wait({self._up, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if self._task.done() and not self._up.done():
            error = self._task.exception()
            why = "closed" if error is None else describe(_first(error))
            failed = "cannot be reached; is it running?" if self.target.url else "did not start:"
            raise ToolError(await self._said(f"{self.target.label} {failed} {why}")) from error

    async def tools(self) -> list[Any]:
        """Every tool of the server, as the SDK describes them."""
        listed: list[Any] = []
        cursor = None
        for _ in range(_MOST_PAGES):
            page = await self._asked("tools/list", self._client.list_tools(cursor=cursor))
            listed += page.tools
            cursor = page.next_cursor
            if not cursor:
                break
        return listed

    async def call(self, name: str, arguments: Json) -> str:
        """The result of a tool as text. What the server refuses is text too; a server that failed is a `ToolError`."""
        try:
            result = await self._asked(name, self._client.call_tool(name, arguments))
        except ToolError as error:
            if getattr(error.__cause__, "code", None) in _TOLD:
                return self._masked(f"error: {error}")
            raise
        text = self._masked(content_text(result))
        return f"error: {text}" if result.is_error and not text.startswith("error:") else text

    async def _asked(self, what: str, answer: Coroutine[Any, Any, Any]) -> Any:
        """What the server answers. An error that the server sent, or the end of it, is a `ToolError`."""
        from mcp.shared.exceptions import MCPError

        try:
            with blame(ToolError, f"{what}: {self.target.label}"):
                return await answer
        except ToolError as error:
            cause = error.__cause__
            text = f"{what}: {self.target.label}: {cause.message}" if isinstance(cause, MCPError) else str(error)
            raise ToolError(await self._said(text)) from cause

    async def close(self) -> None:
        """End the session, and the server if it is ours."""
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

            waits = httpx2.Timeout(30.0, read=None)  # a call has its time in `tool_timeout_s`
            client = httpx2.AsyncClient(headers=dict(self.target.headers), timeout=waits)
            return streamable_http_client(self.target.url, http_client=await stack.enter_async_context(client))
        env = {name: os.environ[name] for name in _INHERITED if name in os.environ} | dict(self.target.env)
        command = [word.replace("{python}", sys.executable) for word in self.target.command]
        self._program = await start_program(command, env=env, cwd=self.target.cwd, line_bytes=_MESSAGE_BYTES)
        stack.push_async_callback(self._program.close)
        return _messages(self._program)

    async def _said(self, text: str) -> str:
        """The message, with how the server ended and its last words if it did."""
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
    except ValueError:  # longer than any message: nothing after it can be trusted
        reader.feed_eof()
        return b""


def content_text(result: Any) -> str:
    """What a model reads of a result: its texts, a note for each image, or the structured content alone as JSON."""
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
        there = block.resource
        return (
            str(there.text) if hasattr(there, "text") else f"[resource: {there.uri}, {len(there.blob) * 3 // 4} bytes]"
        )
    return f"[{block.type}: {getattr(block, 'uri', '')}]"


def _first(error: BaseException) -> BaseException:
    """The error inside the groups that the SDK's task groups raise."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
