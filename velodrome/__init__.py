"""Collect agent rollouts as fast as the model can answer, lose none, and see where every millisecond went.

The public names. Each is loaded when it is first used, so that `import velodrome` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from velodrome import errors
    from velodrome.api.collecting import collect, merge, recorded, rollout, verify
    from velodrome.api.examining import examine
    from velodrome.api.measuring import check, compare, metrics, profile
    from velodrome.api.reading import read
    from velodrome.api.serving import serve
    from velodrome.contracts import Agent, Model, Resources
    from velodrome.exchange.api import export
    from velodrome.records.conversation import Response, ToolCall
    from velodrome.records.views import Rollout, Task
    from velodrome.resources_servers.environment import Environment, tool
    from velodrome.resources_servers.turn_environment import TurnEnvironment
    from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
    from velodrome.responses_api_models.local_model.app import LocalModel
    from velodrome.responses_api_models.openai_model.app import OpenAI
    from velodrome.responses_api_models.scripted_model.app import ScriptedModel
    from velodrome.training.api import load_policy, sweep, train
    from velodrome.viewer.api import judgements, view

_HOMES = {
    "api.collecting": "collect merge recorded rollout verify",
    "api.examining": "examine",
    "api.measuring": "check compare metrics profile",
    "api.reading": "read",
    "api.serving": "serve",
    "contracts": "Agent Model Resources",
    "exchange.api": "export",
    "records.conversation": "Response ToolCall",
    "records.views": "Rollout Task",
    "resources_servers.environment": "Environment tool",
    "resources_servers.turn_environment": "TurnEnvironment",
    "responses_api_agents.simple_agent.app": "SimpleAgent",
    "responses_api_models.local_model.app": "LocalModel",
    "responses_api_models.openai_model.app": "OpenAI",
    "responses_api_models.scripted_model.app": "ScriptedModel",
    "training.api": "load_policy sweep train",
    "viewer.api": "judgements view",
}

__all__ = [
    "Agent",
    "Environment",
    "LocalModel",
    "Model",
    "OpenAI",
    "Resources",
    "Response",
    "Rollout",
    "ScriptedModel",
    "SimpleAgent",
    "Task",
    "ToolCall",
    "TurnEnvironment",
    "check",
    "collect",
    "compare",
    "errors",
    "examine",
    "export",
    "judgements",
    "load_policy",
    "merge",
    "metrics",
    "profile",
    "read",
    "recorded",
    "rollout",
    "serve",
    "sweep",
    "tool",
    "train",
    "verify",
    "view",
]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "errors":
        return import_module("velodrome.errors")
    home = next((module for module, names in _HOMES.items() if name in names.split()), None)
    if home is None:
        from difflib import get_close_matches

        near = get_close_matches(name, __all__, 1)
        guess = f"; did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"module 'velodrome' has no attribute {name!r}{guess}")
    value = getattr(import_module(f"velodrome.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
