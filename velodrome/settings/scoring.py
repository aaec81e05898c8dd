"""What a configuration needs to score rollouts that are there: environments, and what those refer to.

An agent's block then only says which environment is its own, and a model that nothing else names may be missing, half
written, or another one than the server that runs: nobody asks it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from velodrome.settings.interpolation import referenced
from velodrome.settings.kinds import AGENTS, ENVIRONMENT_KEYS, KINDS, MODELS
from velodrome.settings.tree import is_block


def keep_for_scoring(data: dict[str, Any]) -> None:
    """Take out of merged values, before they are resolved, what scoring does not touch."""
    blocks = {name: value for name, value in data.items() if is_block(value)}
    for block in blocks.values():
        for settings in _settings(block, AGENTS):
            for key in [key for key, value in settings.items() if key not in ENVIRONMENT_KEYS and _refers(value)]:
                del settings[key]
    unused = {name for name, block in blocks.items() if MODELS in block}
    while True:
        rest = {name: value for name, value in data.items() if name not in unused}
        named = referenced(rest) | set(_names(rest))
        if any("${" in name for name in named):
            return  # which model that is shows only once everything is resolved
        if unused.isdisjoint(named):
            break
        unused -= named
    for name in unused:
        del data[name]


def _settings(block: dict[str, Any], kind: str) -> Iterator[dict[str, Any]]:
    made = block.get(kind)
    yield from (each for each in (made.values() if isinstance(made, dict) else ()) if isinstance(each, dict))


def _refers(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") in KINDS


def _names(node: Any) -> Iterator[str]:
    """The names in every reference to a model."""
    if isinstance(node, dict):
        if node.get("type") == MODELS and isinstance(node.get("name"), str):
            yield node["name"]
        for value in node.values():
            yield from _names(value)
    elif isinstance(node, list):
        for value in node:
            yield from _names(value)
