"""Collect agent rollouts as fast as the model can answer, lose none, and see where every millisecond went."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from velodrome.contracts import Agent, Model, Resources
    from velodrome.records.conversation import Response, ToolCall
    from velodrome.resources_servers.environment import Environment, tool

__all__ = ["Agent", "Environment", "Model", "Resources", "Response", "ToolCall", "tool"]

_HOMES = {
    "Agent": "velodrome.contracts",
    "Environment": "velodrome.resources_servers.environment",
    "Model": "velodrome.contracts",
    "Resources": "velodrome.contracts",
    "Response": "velodrome.records.conversation",
    "ToolCall": "velodrome.records.conversation",
    "tool": "velodrome.resources_servers.environment",
}


def __getattr__(name: str) -> object:
    """Load a public name when it is first used, so that `import velodrome` costs next to nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'velodrome' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
