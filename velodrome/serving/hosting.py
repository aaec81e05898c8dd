"""The whole app of one component, whichever kind it is: routes, sessions, and an honest description at `/docs`."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI

from velodrome.serving.agent_app import add_agent
from velodrome.serving.app import Limits, Status, make_app
from velodrome.serving.describe import description
from velodrome.serving.model_app import add_model
from velodrome.serving.profiling import Profile, stats
from velodrome.serving.resources_app import SESSION_TTL_S, Sessions, add_resources
from velodrome.serving.seal import Seal


async def server_app(
    status: Status,
    component: Any,
    limits: Limits | None = None,
    *,
    key: bytes | None = None,
    peers: Sequence[str] = (),
    worker: int = 0,
    session_ttl_s: float = SESSION_TTL_S,
    profile: Profile | None = None,
) -> FastAPI:
    """The app of a component. `key` signs its sessions; `peers` are the private URLs of all its workers."""
    limits = limits or Limits()
    tools: list[dict[str, Any]] = []
    if status.kind == "responses_api_models":
        app = make_app(status, component, limits)
        add_model(app, component, limits)
    elif status.kind == "responses_api_agents":
        status.extra["deferrable"] = await component.deferrable()
        app = make_app(status, component, limits)
        add_agent(app, component, limits)
    else:
        tools = await component.tools()
        keeps = bool(getattr(component, "keeps_sessions", True))
        status.extra |= {"deferrable": await component.deferrable(), "sessions": keeps}
        sessions = Sessions(component, Seal(key or secrets.token_bytes(32)), list(peers), worker, session_ttl_s)
        status.live["open_sessions"] = sessions.__len__
        app = make_app(status, component, limits, background=sessions.swept)
        add_resources(app, component, limits, sessions, tools)
        app.measures.count_sessions(sessions.__len__)
    app.measures.declare(*(f"/{tool['name']}" for tool in tools))
    app.measures.stand_among(list(peers), worker, limits.token)
    app.add("GET", "/stats", stats(profile, peers, limits.token))
    app.openapi = lambda: description(status, tools)  # type: ignore[method-assign]
    return app
