"""Make the live objects of a configuration, by the names of its instances.

An instance with a `url`, or whose server already runs, is a client of that server. Any other component is made here, by
keyword. Its class is the only public class in `<kind>/<implementation>/app.py` with the contract's methods. The file is
in the working directory, in an installed package or in this package. Components that a block refers to are made first
and passed under the same key. Each instance is made once.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from velodrome.contracts import Agent, Resources
from velodrome.errors import InputError, blame
from velodrome.settings import Config, Instance, hint
from velodrome.settings.blocks import no_implementation
from velodrome.settings.component import find_setting_mistakes, takes
from velodrome.settings.files import PACKAGE, in_package
from velodrome.settings.installed import InstalledEnvironment, installed_environment
from velodrome.settings.names import AGENTS, FOREIGN, IGNORED_SETTINGS, MODELS, RESOURCES
from velodrome.wings import wing

_EXPECTED_CLASS = {  # kind -> what an author writes, if that differs from the contract
    "resources_servers": "derived from Environment with def verify(self, task, response) (see docs/environments.md)"
}
_NOT_CODE = frozenset(("tests", "__pycache__", "venv", "node_modules"))
METHODS = {  # the methods of each kind; an agent also has those of a model, so it comes first
    AGENTS: ("run", "respond"),
    RESOURCES: ("open", "call", "score", "close"),
    MODELS: ("respond",),
}


@dataclass(frozen=True)
class Servers:
    """Servers that run already: their URLs by the name of the instance, their token, a note for the user."""

    urls: Mapping[str, str] = field(default_factory=dict)
    token: str | None = None
    note: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)  # digests of the code they loaded, if they report it


class Components:
    """The live objects of one configuration, made when they are first needed."""

    def __init__(
        self,
        config: Config,
        cwd: Path | None = None,
        *,
        servers: Servers | None = None,
        live: Mapping[str, Any] | None = None,
    ) -> None:
        self._config = config
        self._cwd = cwd or Path.cwd()
        self._servers = servers or Servers()
        self._live: dict[str, Any] = dict(live or {})
        self._classes: dict[str, type[Any]] = {}
        self.link: Callable[[str, Any], Any] | None = None  # makes what agents and environments get for a model
        self.sources: dict[str, str] = dict(self._servers.sources)

    @property
    def note(self) -> str:
        """A line for the user on where the components are; or empty."""
        return self._servers.note

    def connect(self, name: str) -> Any:
        if name not in self._live:
            instance = self._config.instances.get(name)
            if instance is None:
                raise InputError(unknown("instance", name, list(self._config.instances)))
            self.check([name])
            self._live[name] = self._client(instance) or self._component(instance)
        return self._live[name]

    def check(self, names: Iterable[str]) -> None:
        """Raise if these blocks, or blocks they refer to, have mistakes; each mistake is a line."""
        problems = []
        for instance in self.family(names).values():
            if not self.is_elsewhere(instance):
                problems += mistakes_in(instance, self._class(instance))
        if problems:
            raise InputError(*problems)

    def _client(self, instance: Instance) -> Any:
        """The client of an instance that runs as a server; None for any other."""
        if "url" in instance.settings:
            url, token = instance.settings["url"], instance.settings.get("token")
        elif instance.name in self._servers.urls:
            url, token = self._servers.urls[instance.name], self._servers.token
        else:
            return None
        from velodrome.http import Target
        from velodrome.serving.remote import client_of

        if not isinstance(url, str):
            raise InputError(f"{instance.source}: {instance.name}.url is a text, not {url!r:.80}")
        with blame(InputError, f"{instance.source}: {instance.name}.url"):
            Target(url)
        return client_of(instance.kind, url, None if token is None else str(token))

    def _component(self, instance: Instance) -> Any:
        component_type = self._class(instance)
        settings = own_settings(instance, component_type)
        for key, target in instance.references().items():
            outer, inner = (key, "") if key in instance.settings else key.split(".", 1)
            live = self._linked(instance, target)
            settings[outer] = {**settings[outer], inner: live} if inner else live
        try:
            with blame(InputError, "cannot be made"):
                return component_type(**settings)
        except InputError as error:
            where = f"{instance.source}: {instance.name}"
            raise InputError(*(f"{where}: {line}" for line in error.problems)) from error

    def _linked(self, owner: Instance, name: str) -> Any:
        """The object that an instance gets for a reference."""
        live = self.connect(name)
        calls_model = owner.kind != MODELS and self._config.instances[name].kind == MODELS
        return self.link(name, live) if self.link is not None and calls_model else live

    def is_elsewhere(self, instance: Instance) -> bool:
        """Whether an instance runs as a server, which makes its own calls."""
        return "url" in instance.settings or instance.name in self._servers.urls

    def _class(self, instance: Instance) -> type[Any]:
        """The class of an instance, loaded once. The digest of its code is stored."""
        if instance.name not in self._classes:
            entry = entry_file(instance, self._cwd)
            if instance.kind == RESOURCES or not entry.is_relative_to(PACKAGE):
                self.sources[instance.name] = source_digest(entry)
            self._classes[instance.name] = component_class(instance, self._cwd)
        return self._classes[instance.name]

    def shared(self) -> dict[str, Any]:
        """The live components that are `shared`: one serves every copy of this configuration."""
        return {name: each for name, each in self._live.items() if getattr(each, "shared", False)}

    def agent(self, name: str) -> Agent:
        if name not in self._config.agents():
            raise InputError(unknown("agent", name, self._config.agents()))
        agent: Agent = self.connect(name)
        return agent

    def resources_of(self, agent: str) -> Resources:
        """The environment that scores this agent's rollouts."""
        if agent not in self._config.agents():
            raise InputError(unknown("agent", agent, self._config.agents()))
        name = self._config.instances[agent].environment()
        if name is None:
            raise InputError(f"{agent}: no resources_server in its block, so there is nothing to verify with")
        environment: Resources = self.connect(name)
        return environment

    def family(self, names: Iterable[str]) -> dict[str, Instance]:
        """These instances and all that they refer to, directly or indirectly."""
        family: dict[str, Instance] = {}
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name not in family and name in self._config.instances:
                family[name] = self._config.instances[name]
                waiting += family[name].references().values()
        return family

    async def aclose(self) -> None:
        """Close all components, each before those it uses."""
        live = list(reversed(self._live.values()))
        self._live.clear()
        for component in live:
            if hasattr(component, "aclose"):
                await component.aclose()


def unknown(what: str, name: str, names: list[str]) -> str:
    """The problem of an unknown name, with the nearest existing name."""
    if names:
        suggestion = hint(name, names) or f"; there are: {', '.join(sorted(names))}"
        return f"no {what} is called {name!r}{suggestion}"
    return f"no {what} is called {name!r}, and the config has none; give its file in config_paths (see docs/config.md)"


def component_class(instance: Instance, cwd: Path) -> type[Any]:
    """The class that an instance's block names."""
    package = _installed(instance, cwd)
    if package is None:
        entry = entry_file(instance, cwd)
        if not entry.is_relative_to(PACKAGE):
            name = f"velodrome_component_{instance.kind}_{instance.implementation}"
            return only_component(load_file(entry, name, cwd), instance.kind)
        name = ".".join(entry.relative_to(PACKAGE.parent).with_suffix("").parts)
        return only_component(importlib.import_module(name), instance.kind)
    with blame(InputError, f"{package.file}: cannot be imported"):
        module = importlib.import_module(package.module)
    if not package.owner:
        return only_component(module, instance.kind)
    owner = getattr(module, package.owner, None)
    if not inspect.isclass(owner):
        raise InputError(f"{package.file}: no class {package.owner}, which the entry point of {package.package} names")
    return owner


def only_component(module: ModuleType, kind: str) -> type[Any]:
    """The one public class of a module that is a component of this kind."""
    methods = METHODS[kind]
    classes = [
        thing
        for name, thing in vars(module).items()
        if inspect.isclass(thing)
        and thing.__module__ == module.__name__
        and not name.startswith("_")
        and all(callable(getattr(thing, method, None)) for method in methods)
    ]
    if not classes and kind == RESOURCES and imports_nemo_gym(Path(str(module.__file__))):
        owner = wing("connect.nemo_gym.folder").folder_class(module)
        if owner is not None:
            return owner  # type: ignore[no-any-return]
    if len(classes) != 1:
        what = "no class" if not classes else f"{len(classes)} classes ({', '.join(each.__name__ for each in classes)})"
        expected = _EXPECTED_CLASS.get(kind, f"with the methods {', '.join(methods)}")
        raise InputError(f"{module.__file__}: {what} {expected}; there must be exactly one")
    return classes[0]


_BY_URL = "hint: run it there, and give its url (docs/serving.md#nemo-gyms-servers)"


def entry_file(instance: Instance, cwd: Path) -> Path:
    """The file that an instance's class is in: the user's own, an installed environment's, or the package's."""
    place = _place(instance)
    package = _installed(instance, cwd)
    if package is not None:
        return package.file
    for file in (cwd / place, *in_package(place)):
        if file.is_file() and not (instance.kind != RESOURCES and imports_nemo_gym(file)):
            return file
    if (cwd / place).is_file():
        raise InputError(f"{cwd / place}: of NeMo Gym, whose agents and models do not run in this process; {_BY_URL}")
    raise InputError(no_implementation(instance, cwd))


def _place(instance: Instance) -> Path:
    return Path(instance.kind, instance.implementation, str(instance.settings.get("entrypoint", "app.py")))


def _installed(instance: Instance, cwd: Path) -> InstalledEnvironment | None:
    """The installed environment of an instance, unless the working directory has one with that name."""
    if instance.kind != RESOURCES or (cwd / _place(instance)).is_file():
        return None
    return installed_environment(instance.implementation)


def own_settings(instance: Instance, component_type: type[Any]) -> dict[str, Any]:
    """The settings of a block that belong to its component, without hosting and notes."""
    return {
        key: value
        for key, value in instance.settings.items()
        if takes(component_type, key) or not (key in FOREIGN or value in IGNORED_SETTINGS.get(key, ()))
    }


def mistakes_in(instance: Instance, component_type: type[Any]) -> list[str]:
    """A line for each mistake in a block. What it refers to does not exist yet, and is not checked."""
    where = f"{instance.source}: {instance.name}.{instance.kind}.{instance.implementation}"
    return find_setting_mistakes(
        component_type, own_settings(instance, component_type), where, references=instance.references()
    )


def early_mistakes(instances: Iterable[Instance], cwd: Path) -> list[str]:
    """A line for each mistake in the blocks of the package's own components.

    Other code is loaded only in the process that runs it: it may be large, and it cannot be unloaded.
    """
    problems: list[str] = []
    for instance in instances:
        try:
            if entry_file(instance, cwd).is_relative_to(PACKAGE):
                problems += mistakes_in(instance, component_class(instance, cwd))
        except InputError as error:
            problems += error.problems
    return problems


def load_file(path: Path, name: str, cwd: Path) -> ModuleType:
    """Import a user's file as a module. It can import files beside it as `.other`, or by path from `cwd`."""
    if str(cwd) not in sys.path:
        sys.path.append(str(cwd))
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=[str(path.parent)])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    prepared = wing("connect.nemo_gym.imports").prepared_imports(path) if imports_nemo_gym(path) else nullcontext()
    with prepared, blame(InputError, f"{path}: cannot be imported"):
        spec.loader.exec_module(module)
    return module


def imports_nemo_gym(path: Path) -> bool:
    """Whether a file imports NeMo Gym. A file that does not contain the name is not parsed."""
    try:
        return b"nemo_gym" in path.read_bytes() and bool(wing("connect.nemo_gym.imports").uses_nemo_gym(path))
    except OSError:
        return False


def source_digest(entry: Path) -> str:
    """Sixteen hex digits of the `.py` files beside and below an implementation's entry file, without tests.

    Runs with different digests may score the same answer differently.
    """
    digest = hashlib.blake2b(digest_size=8)
    try:
        for path in sorted({entry.resolve(), *_code_below(entry.parent.resolve())}):
            data = path.read_bytes()
            digest.update(f"{os.path.relpath(path, entry.parent.resolve())}\0{len(data)}\0".encode(errors="replace"))
            digest.update(data)
    except OSError as error:
        raise InputError(f"{error.filename}: cannot be read: {error.strerror}") from error
    return digest.hexdigest()


def _code_below(folder: Path) -> list[Path]:
    code = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _NOT_CODE and not name.startswith(".")]
        code += [Path(place, name) for name in files if name.endswith(".py") and not _is_test(name)]
    return code


def _is_test(name: str) -> bool:
    return name.startswith((".", "test_")) or name.endswith("_test.py") or name == "conftest.py"
