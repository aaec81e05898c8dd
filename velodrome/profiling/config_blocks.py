"""The names a user has to type: which block of the configuration an advice is about, and the override for it.

Names come from the configuration beside the rollouts. Live objects have none: their settings are keywords of their
class, so an override of them is `keyword=value`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson

from velodrome.records.jsonl import open_regular
from velodrome.records.mending import HOSTILE
from velodrome.records.rollout import beside
from velodrome.settings.names import AGENTS, ENVIRONMENT_KEYS, MODELS, RESOURCES

Json = dict[str, Any]
_NONE: Mapping[str, Any] = MappingProxyType({})


class Block(NamedTuple):
    """One instance: its name, kind and implementation, and its settings. Without a kind no configuration has it."""

    name: str
    kind: str = ""
    implementation: str = ""
    settings: Mapping[str, Any] = _NONE

    def override(self, key: str, value: object) -> str:
        """As typed on the command line, or in Python where no configuration has it."""
        if not self.kind:
            return f"{key}={value}"
        return f"++{self.name}.{self.kind}.{self.implementation}.{key}={value}"

    def number(self, key: str) -> int | None:
        """A setting that is a whole number above zero."""
        value = self.settings.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


class Blocks(NamedTuple):
    """The model and the environment of the agent that ran."""

    model: Block
    environment: Block


UNKNOWN = Blocks(Block("the model"), Block("the environment"))


def read_config(rollouts: Path) -> Json | None:
    """The configuration beside a rollouts file, if there is one."""
    try:
        with open_regular(beside(rollouts, "run.json")) as file:
            config = orjson.loads(file.read())["config"]
    except (OSError, orjson.JSONDecodeError, *HOSTILE):
        return None
    return config if isinstance(config, dict) else None


def find_blocks(config: Json | None, agent: str | None) -> Blocks:
    """The blocks behind an agent; by default the only agent there is."""
    named = named_blocks(config)
    agents = {name: block for name, block in named.items() if block.kind == AGENTS}
    block = agents.get(agent or "") or (next(iter(agents.values())) if len(agents) == 1 else None)
    if block is None:
        return UNKNOWN
    model = named.get(_referred(block, "model_server", "model") or "", UNKNOWN.model)
    environment = named.get(_referred(block, *ENVIRONMENT_KEYS) or "", UNKNOWN.environment)
    return Blocks(model, environment)


def named_blocks(config: Json | None) -> dict[str, Block]:
    """Every instance of a configuration."""
    blocks = {}
    for name, kinds in (config or {}).items():
        if not isinstance(kinds, dict) or len(kinds) != 1:
            continue
        kind, implementations = next(iter(kinds.items()))
        if kind in (MODELS, RESOURCES, AGENTS) and isinstance(implementations, dict) and implementations:
            implementation, settings = next(iter(implementations.items()))
            blocks[name] = Block(name, kind, implementation, settings if isinstance(settings, dict) else {})
    return blocks


def _referred(block: Block, *keys: str) -> str | None:
    reference = next((block.settings[key] for key in keys if key in block.settings), None)
    name = reference.get("name") if isinstance(reference, dict) else None
    return name if isinstance(name, str) else None
