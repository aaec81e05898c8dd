"""A collection in this process: one agent, a scripted model, and an environment that a test writes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

from velodrome.settings import Config, Instance

Json = dict[str, Any]


def config(environment: str, script: Json, **settings: Any) -> Config:
    """The agent `solo`, whose environment is called `env` and whose model `policy_model`."""
    links = {
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
        "resources_server": {"type": "resources_servers", "name": "env"},
    }
    blocks = [
        Instance("policy_model", "responses_api_models", "scripted_model", script, "t.yaml"),
        Instance("env", "resources_servers", environment, settings, "t.yaml"),
        Instance("solo", "responses_api_agents", "simple_agent", links, "t.yaml"),
    ]
    return Config({}, {block.name: block for block in blocks})


def write_tasks(path: Path, ids: Iterable[Any], **fields: Any) -> Path:
    """A file of tasks that differ in their `id`."""
    tasks = ({"id": each, "responses_create_params": {"input": "hi"}, **fields} for each in ids)
    path.write_bytes(b"".join(orjson.dumps(task) + b"\n" for task in tasks))
    return path


def lines_of(path: Path) -> list[Any]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]
