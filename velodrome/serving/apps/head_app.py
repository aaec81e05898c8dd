"""The head server: which servers run where, and with which configuration.

The supervisor sends it everything: the state of the servers, and the configuration with secrets masked. So it can be
restarted like any other server.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from velodrome.contracts import Json
from velodrome.serving.apps.routes import RequestLimits, get, json_response
from velodrome.serving.apps.web_app import Status, make_app


def head_app(status: Status, servers: Callable[[], list[Json]], config_yaml: str, limits: RequestLimits) -> ASGIApp:
    """The app of the head. `server_type`, `process_name` and `start_time` are NeMo Gym's names."""

    async def instances(request: Request) -> Response:
        now = time.time()
        return json_response(
            [
                {
                    **each,
                    "uptime_s": round(now - each["start_time"], 3),
                    "server_type": each["type"],
                    "process_name": each["name"],
                }
                for each in servers()
            ]
        )

    async def config(request: Request) -> Response:
        return json_response(config_yaml)

    routes = [
        get("/server_instances", instances),
        get("/global_config_dict_yaml", config),
    ]
    return make_app(status, routes, limits)
