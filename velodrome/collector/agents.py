"""The agents that run the tasks, from a configuration or from Python, and their recipes for the run file."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from velodrome.collector.code import code_digest
from velodrome.collector.recording import RecordedModel, has_recorded, recorded
from velodrome.collector.runfile import instance_recipes, settings_recipe
from velodrome.contracts import Agent, Resources
from velodrome.errors import InputError
from velodrome.serving.components import Components, Servers, entry_file
from velodrome.settings import Config, secrets
from velodrome.settings.component import Component, settings_of
from velodrome.settings.names import AGENTS, MODELS

Json = dict[str, Any]


class ConfiguredAgents:
    """The agents of a configuration, created on first use, or running as servers.

    `default` is the agent of rows that name none. `sole`, of live agents, runs all rows.
    `config` and `note` (where the agents run, for the user) contain no secrets.
    """

    def __init__(self, config: Config, servers: Servers | None = None, live: Mapping[str, Any] | None = None) -> None:
        self._config = config
        self._servers = servers
        self._components = Components(config, servers=servers, live=live)
        self.names: Collection[str] = config.agents()
        self.default = config.agents()[0] if len(config.agents()) == 1 else None
        self.sole: str | None = None
        self.note = self._components.note
        self.config = config.masked()
        self.secrets: Collection[str] = secrets(config)

    def __reduce__(self) -> tuple[Any, ...]:
        return ConfiguredAgents, (self._config, self._servers, self._components.shared())

    def record(self, names: Iterable[str]) -> None:
        """Put a recording between these agents and their models. Called before `connect`."""
        self.refuse_servers(names, "model_cache")
        self._components.link = lambda name, model: recorded(model, self._identity(name))

    def refuse_servers(self, names: Iterable[str], setting: str, *, scoring: bool = False) -> None:
        """Raise if an agent or an environment that calls a model is a server; for scoring, only environments count."""
        names = self._environments_of(names) if scoring else names
        for name, instance in self._components.family(names).items():
            kinds = {self._config.instances[reference].kind for reference in instance.references().values()}
            calls_model = instance.kind == AGENTS or (instance.kind != MODELS and MODELS in kinds)
            if calls_model and self._components.is_elsewhere(instance):
                raise InputError(
                    f"{setting}: {name} is a server, which calls its model itself; stop the servers or set embedded,"
                    " so that it runs in this process"
                )

    def _identity(self, name: str) -> list[Any]:
        """What decides a model's answers. For a model that is a server this is only its address."""
        family = self._components.family([name])
        urls = [instance.settings.get("url") for instance in family.values()]
        return [*instance_recipes(family, self._components.sources).values(), *urls]

    def connect(self, names: Iterable[str]) -> dict[str, Agent]:
        """The live agents with these names, after a check of their settings."""
        self._components.check(names)
        return {name: self._components.agent(name) for name in sorted(names)}

    def environments(self, names: Iterable[str]) -> dict[str, Resources]:
        """The environment of each of these agents."""
        return {name: self._components.resources_of(name) for name in sorted(names)}

    def environment_folder(self, name: str) -> Path | None:
        """The folder of the environment's code; None if its block has a url."""
        block = self._config.instances[self._config.instances[name].environment() or name]
        return None if "url" in block.settings else entry_file(block, Path.cwd()).parent

    def recipe(self, names: Iterable[str], *, scoring: bool = False) -> Json:
        """The blocks of the agents and of everything they refer to; for scoring, only of the environments."""
        names = self._environments_of(names) if scoring else names
        return instance_recipes(self._components.family(names), self._components.sources)

    def _environments_of(self, names: Iterable[str]) -> list[str]:
        return [environment for name in names if (environment := self._config.instances[name].environment())]

    async def aclose(self) -> None:
        """Close the components."""
        await self._components.aclose()


class LiveAgents:
    """One agent, or one environment to score with, that the caller created and owns."""

    def __init__(self, agent: Agent | None, environment: Resources | None = None, *, name: str | None = None) -> None:
        live = agent if agent is not None else environment
        self._agent = agent
        self._environment = environment
        self._live = live
        self.default: str | None = name or getattr(live, "name", None) or type(live).__name__
        self.sole = self.default
        self.names: Collection[str] = (self.default,) if self.default else ()
        self.note = ""
        self.config: Json = {}
        self.secrets: Collection[str] = frozenset()

    def record(self, names: Iterable[str]) -> None:
        """Refuse an agent without a recorded model: the caller wraps models itself."""
        if not has_recorded(self._agent):
            raise InputError(
                f"model_cache: {self.default} has no model that is recorded; make it with model=velodrome.recorded(…)"
                " (docs/models.md#record-and-replay)"
            )

    def refuse_servers(self, names: Iterable[str], setting: str, *, scoring: bool = False) -> None:
        """Nothing to refuse: a live agent is in this process."""

    def connect(self, names: Iterable[str]) -> dict[str, Agent]:
        """The agent, under each of these names."""
        if self._agent is None:
            raise InputError(f"{self.default}: not an agent: it has no run")
        return dict.fromkeys(names, self._agent)

    def environments(self, names: Iterable[str]) -> dict[str, Resources]:
        """The environment, under each of these names."""
        environment = self._environment or _attribute(self._agent, "environment", "resources_server", "resources")
        if environment is None:
            raise InputError(f"{self.default}: it has no environment, so there is nothing to verify with")
        return dict.fromkeys(names, environment)

    def environment_folder(self, name: str) -> Path | None:
        """The folder of the environment's class."""
        owner = type(self.environments([name])[name])
        file = getattr(sys.modules.get(owner.__module__), "__file__", None)
        return None if file is None else Path(file).parent

    def recipe(self, names: Iterable[str], *, scoring: bool = False) -> Json:
        """Class, settings and source of the object and of every component in its settings."""
        live = next(iter(self.environments(["_"]).values())) if scoring else self._live
        recipes: Json = {}
        _describe(live, self.default or "", recipes)
        return recipes

    async def aclose(self) -> None:
        """Nothing to close: the agent belongs to the caller."""


Agents = ConfiguredAgents | LiveAgents


def _attribute(owner: Any, *names: str) -> Any:
    return next((value for name in names if (value := getattr(owner, name, None)) is not None), None)


def recorded_live(model: Any) -> RecordedModel:
    """A live model that is recorded under its class, settings and source."""
    recipes: Json = {}
    _describe(model, "", recipes)
    return recorded(model, recipes)


def _describe(part: Any, name: str, recipes: Json) -> None:
    """Add the recipe of a component, and of the components in its settings under `name.setting`."""
    while hasattr(part, "__wrapped__"):
        part = part.__wrapped__
    kind = getattr(part, "__func__", part) if inspect.isroutine(part) else type(part)
    recipe: Json = {"class": f"{getattr(kind, '__module__', 'builtins')}.{kind.__qualname__}", "settings": {}}
    recipes[name] = recipe
    source = code_digest(kind)
    if source is not None:
        recipe["source"] = source
    if not isinstance(part, Component):
        return
    for setting in settings_of(type(part)).model_fields:
        value = getattr(part, setting)
        if _is_part(value):
            _describe(value, f"{name}.{setting}", recipes)
        elif value is not None:
            recipe["settings"][setting] = value
    recipe["settings"] = settings_recipe({**recipe["settings"], **part.undeclared})


def _is_part(value: Any) -> bool:
    """Whether a setting is a model, an environment, an agent or a function, and not a plain value."""
    methods = (getattr(value, method, None) for method in ("respond", "score", "run"))
    return isinstance(value, Component) or inspect.isroutine(value) or any(map(callable, methods))
