"""`/mcp`: the tools of an environment for MCP clients (streamable HTTP), in a session that `/seed_session` opened.

The token is the cookie of the session: `Authorization: Bearer <value of velodrome_session>`, or the cookie itself. So a
client reaches only the tools of its session, in any worker. Requests share no other state. The session closes after its
time-out like any other. The SDK is imported with the first request.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from velodrome.contracts import Json, Resources
from velodrome.errors import RolloutError, ToolError, blame
from velodrome.serving import wire
from velodrome.serving.apps.resources_app import Sessions
from velodrome.serving.apps.routes import BadRequest, Endpoint, limits_of, read_json
from velodrome.settings import mask_text

_HANDLE = "velodrome.handle"
_METHODS = ("GET", "POST", "DELETE")


class McpEndpoint:
    """The route of one server's tools, and the SDK's manager behind it."""

    def __init__(self, server: str, resources: Resources, sessions: Sessions, tools: list[Json]) -> None:
        self._server = server
        self._resources = resources
        self._sessions = sessions
        self._tools = tools
        self._manager_ready: asyncio.Future[Any] | None = None
        self._manager_task: asyncio.Task[None] | None = None

    def routes(self) -> list[Route]:
        """The route, beside those of the environment; none if a tool has its name."""
        if any(f"/{tool['name']}" == wire.MCP for tool in self._tools):
            return []
        return [Route(wire.MCP, Endpoint(self._answer), methods=list(_METHODS))]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Stop the SDK's manager when the server ends."""
        try:
            yield
        finally:
            if self._manager_task is not None:
                self._manager_task.cancel()
                await asyncio.wait({self._manager_task})

    async def _answer(self, request: Request) -> Response:
        ticket = self._sessions.ticket(request, bearer=True)
        if ticket is None:
            raise BadRequest(401, "the token of a session is required: POST /seed_session opens one (docs/mcp.md)")
        other = self._sessions.elsewhere(ticket)
        if other is not None:
            from velodrome.serving.apps.resources_app import pass_on

            return await pass_on(request, await read_json(request), other)
        try:
            request.scope[_HANDLE] = self._sessions.handle(ticket)
        except ToolError as error:
            raise BadRequest(404, str(error)) from None
        return _Delegated(await self._manager())

    async def _manager(self) -> Any:
        """The SDK's manager, in a separate task: its scopes must be left by the task that entered them."""
        if self._manager_ready is None:
            if importlib.util.find_spec("mcp") is None:
                raise BadRequest(501, 'this server has no MCP SDK: pip install "velodrome[mcp]"')
            self._manager_ready = asyncio.get_running_loop().create_future()
            self._manager_task = asyncio.create_task(self._run_manager(self._manager_ready))
        return await asyncio.shield(self._manager_ready)

    async def _run_manager(self, ready: asyncio.Future[Any]) -> None:
        await asyncio.to_thread(importlib.import_module, "mcp.server.lowlevel")  # it takes most of a second
        from mcp.server.lowlevel import Server
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        server = Server(self._server, on_list_tools=self._list, on_call_tool=self._call)
        manager = StreamableHTTPSessionManager(server, json_response=True, stateless=True)
        async with manager.run():
            ready.set_result(manager)
            await asyncio.Event().wait()

    async def _list(self, context: Any, params: Any) -> Any:
        from mcp_types import ListToolsResult, Tool

        return ListToolsResult(
            tools=[
                Tool(
                    name=tool["name"],
                    description=tool.get("description"),
                    input_schema=tool.get("parameters") or {"type": "object"},
                )
                for tool in self._tools
            ]
        )

    async def _call(self, context: Any, params: Any) -> Any:
        """Call a tool. A mistake of the model is a result; a failure of the tool is an error of the protocol."""
        from mcp.shared.exceptions import MCPError
        from mcp_types import INTERNAL_ERROR, CallToolResult, TextContent

        request: Request = context.request
        try:
            with blame(ToolError, params.name):
                text = await self._resources.call(request.scope[_HANDLE], params.name, params.arguments or {})
        except RolloutError as error:
            raise MCPError(INTERNAL_ERROR, mask_text(str(error), limits_of(request).secrets)) from None
        return CallToolResult(
            content=[TextContent(text=text.encode("utf-8", "replace").decode())], is_error=text.startswith("error:")
        )


class _Delegated(Response):
    """An answer that the SDK sends."""

    def __init__(self, manager: Any) -> None:
        super().__init__()
        self._manager = manager

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._manager.handle_request(scope, receive, send)
