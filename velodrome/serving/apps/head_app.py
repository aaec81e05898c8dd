"""The head server: which servers run where, and with which configuration.

It reads only what the supervisor keeps for it: the state of the servers, and the configuration with its secrets masked.
So it can be restarted like any other server.
"""

from __future__ import annotations

import time
from pathlib import Path

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from velodrome.contracts import Json
from velodrome.serving.apps.measures import Measures
from velodrome.serving.apps.web_app import RequestLimits, Status, get, json_response, make_app


def head_app(status: Status, state: Path, config_yaml: str, limits: RequestLimits) -> ASGIApp:
    """The app of the head."""

    async def instances(request: Request) -> Response:
        return json_response(instances_report(read_state(state), time.time()))

    async def config(request: Request) -> Response:
        return json_response(config_yaml)

    routes = [get("/server_instances", instances), get("/global_config_dict_yaml", config)]
    return make_app(status, routes, limits, Measures(status.name))


def read_state(path: Path) -> list[Json]:
    """The servers as the supervisor wrote them down last."""
    try:
        servers = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return []  # the supervisor has not started, or has ended
    return servers if isinstance(servers, list) else []


def instances_report(instances: list[Json], now: float) -> list[Json]:
    """The servers for `/server_instances`. `server_type`, `process_name` and `start_time` are NeMo Gym's names."""
    return [
        {
            **each,
            "uptime_s": round(now - each["start_time"], 3),
            "server_type": each["type"],
            "process_name": each["name"],
        }
        for each in instances
    ]
