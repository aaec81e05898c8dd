"""What a configuration is once it is resolved: plain settings, and instances of components.

Both are read-only: the values are plain dicts and lists, so that they can be pickled and written as JSON, and nobody
changes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from velodrome.settings.kinds import AGENTS, ENVIRONMENT_KEYS, KINDS
from velodrome.settings.masking import mask


@dataclass(frozen=True)
class Instance:
    """One block `name: {kind: {implementation: {settings}}}`."""

    name: str
    kind: str
    implementation: str
    settings: Mapping[str, Any]
    source: str

    def references(self) -> dict[str, str]:
        """The instances this one is made with: key of the setting -> name of the instance."""
        return {key: value["name"] for key, value in self.settings.items() if is_reference(value)}

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
