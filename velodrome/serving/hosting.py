"""The app of a component of any kind, and a server for it in this process."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import Any

from starlette.types import ASGIApp

from velodrome.contracts import Turns
from velodrome.errors import InputError
from velodrome.serving.apps.agent_app import agent_routes
from velodrome.serving.apps.model_app import ServedModel, model_routes
from velodrome.serving.apps.resources_app import MAX_SESSIONS, SESSION_TTL_S, Sessions, resources_routes
from velodrome.serving.apps.routes import Peers, RequestLimits, get
from velodrome.serving.apps.web_app import Background, Status, make_app
from velodrome.serving.components import METHODS
from velodrome.serving.process.listen import LOOPBACK, listening, reachable
from velodrome.serving.profiling import ProcessProfile, stats
from velodrome.serving.web_server import running
from velodrome.settings.names import AGENTS, MODELS
from velodrome.wings import has_wing, wing


def kind_of(component: Any) -> str:
    """The kind of a live component, by its methods."""
    for kind, methods in METHODS.items():
        if all(callable(getattr(component, method, None)) for method in methods):
            return kind
    raise InputError(f"{type(component).__name__} is not a model, an environment or an agent (see docs/python.md)")


@asynccontextmanager
async def served(
    component: Any, *, name: str = "", host: str = LOOPBACK, port: int = 0, token: str | None = None, drain_s: float = 2
) -> AsyncIterator[str]:
    """Serve a live component on the running loop while the block runs. Yields the URL.

    Port 0 means any free port. Signal handlers are not changed, and the component stays open: it belongs to the caller.
    """
    kind = kind_of(component)
    status = Status(name or type(component).__name__, kind, type(component).__name__)
    with listening(status.name, host, port, token, way="pass token=") as sock:
        url = f"http://{reachable(host)}:{sock.getsockname()[1]}"
        make = partial(server_app, status, component, RequestLimits(token=token))
        async with running(make, [sock], drain_s=drain_s):
            yield url


async def server_app(
    status: Status,
    component: Any,
    limits: RequestLimits | None = None,
    *,
    key: bytes | None = None,
    peers: Sequence[str] = (),
    worker: int = 0,
    session_ttl_s: float = SESSION_TTL_S,
    max_sessions: int = MAX_SESSIONS,
    profile: ProcessProfile | None = None,
) -> ASGIApp:
    """The app of a component. `key` signs its sessions; `peers` are the private URLs of all its workers."""
    limits = limits or RequestLimits()
    workers = Peers(peers, worker, limits.token)
    background: Background = nullcontext
    tools: list[dict[str, Any]] = []
    if status.kind == MODELS:
        routes = model_routes(ServedModel(status.name, component))
    elif status.kind == AGENTS:
        status.extra["deferrable"] = await component.deferrable()
        routes = agent_routes(status.name, component)
    else:
        tools = await component.tools()
        keeps = bool(getattr(component, "keeps_sessions", True))
        turns = {"turns": True} if isinstance(component, Turns) else {}
        if getattr(component, "addresses_players", False):
            turns["players"] = True
        status.extra |= {"deferrable": await component.deferrable(), "sessions": keeps, **turns}
        sessions = Sessions(component, key or secrets.token_bytes(32), workers, session_ttl_s, max_sessions)
        status.live["open_sessions"] = sessions.__len__
        background, routes = sessions.swept, resources_routes(status.name, component, sessions, tools)
        if has_wing("connect"):
            mcp = wing("connect.mcp_endpoint").McpEndpoint(status.name, component, sessions, tools)
            background, routes = partial(_both, sessions.swept, mcp.running), [*mcp.routes(), *routes]
    routes.append(get("/stats", stats(profile, workers)))
    return make_app(status, routes, limits, workers, tools=tools, background=background)


@asynccontextmanager
async def _both(first: Background, second: Background) -> AsyncIterator[None]:
    async with first(), second():
        yield
