"""What a configuration is once it is resolved: plain settings, and instances of components.

Both are read-only: the values are plain dicts and lists, so that they can be pickled and written as JSON, and nobody
changes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from velodrome.settings.interpolation import referenced
from velodrome.settings.masking import mask
from velodrome.settings.names import AGENTS, ENVIRONMENT_KEYS, KINDS, MODELS
from velodrome.settings.tree import is_block, walk


@dataclass(frozen=True)
class Instance:
    """One block `name: {kind: {implementation: {settings}}}`."""

    name: str
    kind: str
    implementation: str
    settings: Mapping[str, Any]
    source: str

    def references(self) -> dict[str, str]:
        """The instances this one is made with: key of the setting -> name of the instance.

        One within a mapping, such as a player, has the key `players.NAME`.
        """
        made: dict[str, str] = {}
        for key, value in self.settings.items():
            if is_reference(value):
                made[key] = value["name"]
            elif isinstance(value, Mapping):
                made |= {f"{key}.{name}": each["name"] for name, each in value.items() if is_reference(each)}
        return made

    def environment(self) -> str | None:
        """The environment that an agent refers to."""
        names = self.references()
        return next((names[key] for key in ENVIRONMENT_KEYS if key in names), None)


@dataclass(frozen=True)
class Config:
    """Everything the user gave, merged and resolved once."""

    settings: Mapping[str, Any]
    instances: Mapping[str, Instance]

    def agents(self) -> list[str]:
        return [name for name, instance in self.instances.items() if instance.kind == AGENTS]

    def plain(self) -> dict[str, Any]:
        """The whole configuration as one mapping, in the shape of a config file; secrets included."""
        blocks = {item.name: {item.kind: {item.implementation: item.settings}} for item in self.instances.values()}
        return {**self.settings, **blocks}

    def masked(self) -> dict[str, Any]:
        """The whole configuration with `***` for every secret."""
        masked: dict[str, Any] = mask(self.plain())
        return masked


def is_reference(value: Any) -> bool:
    """Whether a value is `{type: <kind>, name: <instance>}`."""
    return isinstance(value, Mapping) and value.get("type") in KINDS and isinstance(value.get("name"), str)


def keep_for_scoring(data: dict[str, Any]) -> None:
    """Take out of merged values, before they are resolved, what scoring saved rollouts does not need.

    An agent's block then only says which environment is its own. A model that nothing else names may be missing or half
    written: nobody asks it.
    """
    blocks = {name: value for name, value in data.items() if is_block(value)}
    for block in blocks.values():
        agents = block.get(AGENTS)
        for settings in agents.values() if isinstance(agents, dict) else ():
            if isinstance(settings, dict):
                for key in [key for key, value in settings.items() if key not in ENVIRONMENT_KEYS and _refers(value)]:
                    del settings[key]
    unused = {name for name, block in blocks.items() if MODELS in block}
    while True:
        rest = {name: value for name, value in data.items() if name not in unused}
        named = referenced(rest) | {str(value) for path, value in walk(rest) if path[-1] == "name"}
        if any("${" in name for name in named):
            return  # which model that is shows only once everything is resolved
        if unused.isdisjoint(named):
            break
        unused -= named
    for name in unused:
        del data[name]


def _refers(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") in KINDS
