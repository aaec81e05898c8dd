"""The head server: who runs where, and with which configuration.

It knows only two files that the supervisor keeps: the state of the servers, and the configuration with its secrets
masked. So it can die and come back like any other server.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from velodrome.serving.app import App, Limits, Status, json_response, make_app

Json = dict[str, Any]


def head_app(status: Status, state: Path, config_yaml: str, limits: Limits) -> App:
    """The app of the head."""
    app = make_app(status, limits)

    async def instances(request: Request) -> Response:
        return json_response(told(read_state(state), time.time()))

    async def config(request: Request) -> Response:
        return json_response(config_yaml)

    app.add("GET", "/server_instances", instances)
    app.add("GET", "/global_config_dict_yaml", config)
    return app


def read_state(path: Path) -> list[Json]:
    """The servers as the supervisor wrote them down last."""
    try:
        found = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return []  # the supervisor has not begun, or has ended
    return found if isinstance(found, list) else []


def told(instances: list[Json], now: float) -> list[Json]:
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
