"""A resolved configuration, and the checks of its blocks.

Values are plain dicts and lists that do not change, so they can be pickled and written as JSON. Each check adds a line
to the problems and continues, so the user sees every mistake at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from velodrome.settings.files import PACKAGE, implementations, in_package
from velodrome.settings.installed import installed_names
from velodrome.settings.interpolation import Unresolved, referenced
from velodrome.settings.masking import mask
from velodrome.settings.names import AGENTS, ENVIRONMENT_KEYS, KINDS, MODELS, RESOURCES, hint, nearest
from velodrome.settings.overrides import COMMAND_LINE, Change
from velodrome.settings.tree import Tree, is_block, walk


@dataclass(frozen=True)
class Instance:
    """One block `name: {kind: {implementation: {settings}}}`."""

    name: str
    kind: str
    implementation: str
    settings: Mapping[str, Any]
    source: str

    def references(self) -> dict[str, str]:
        """The instances that this block refers to: key of the setting -> name of the instance.

        A reference inside a mapping, such as a player, has the key `players.NAME`.
        """
        names: dict[str, str] = {}
        for key, value in self.settings.items():
            if is_reference(value):
                names[key] = value["name"]
            elif isinstance(value, Mapping):
                names |= {f"{key}.{name}": each["name"] for name, each in value.items() if is_reference(each)}
        return names

    def environment(self) -> str | None:
        """The environment that an agent refers to."""
        names = self.references()
        return next((names[key] for key in ENVIRONMENT_KEYS if key in names), None)


@dataclass(frozen=True)
class Config:
    """All settings and blocks of the user, merged and resolved once."""

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
    """Remove from merged values, before they are resolved, everything that scoring saved rollouts does not need.

    An agent's block keeps only the reference to its environment. A model that nothing else refers to may be missing or
    incomplete: it is not called.
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
        names_in_use = referenced(rest) | {str(value) for path, value in walk(rest) if path[-1] == "name"}
        if any("${" in name for name in names_in_use):
            return  # the name of the model is known only after everything is resolved
        if unused.isdisjoint(names_in_use):
            break
        unused -= names_in_use
    for name in unused:
        del data[name]


def _refers(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") in KINDS


def instances(data: dict[str, Any], tree: Tree, cwd: Path, problems: list[str]) -> dict[str, Instance]:
    """The well-formed blocks among the top-level values."""
    by_name: dict[str, Instance] = {}
    for name, value in data.items():
        if not is_block(value):
            _check_almost_block(name, value, tree, problems)
            continue
        instance = _instance(name, value, tree, problems)
        if instance is not None:
            by_name[name] = instance
            problems.extend(_implementation_problems(instance, cwd))
    return by_name


def _check_almost_block(name: str, value: Any, tree: Tree, problems: list[str]) -> None:
    """Report a setting that looks like a block with a misspelt kind: one key, over `{implementation: {…}}`."""
    if not isinstance(value, dict) or len(value) != 1:
        return
    [(kind, inner)] = value.items()
    guess = nearest(kind, KINDS, cutoff=0.8)
    if guess and isinstance(inner, dict) and all(isinstance(item, dict) for item in inner.values()):
        problems.append(f'{tree.source((name, kind))}: {name}: unknown kind "{kind}"; did you mean "{guess}"?')


def _instance(name: str, value: dict[str, Any], tree: Tree, problems: list[str]) -> Instance | None:
    if len(value) > 1:
        problems.append(_too_many(name, (name,), list(value), "kind", tree))
        return None
    [(kind, implementations)] = value.items()
    source = tree.source((name, kind))
    if isinstance(implementations, Unresolved):
        return None
    if not isinstance(implementations, dict) or not implementations:
        problems.append(f"{source}: {name}.{kind} names no implementation; write {kind}: {{IMPLEMENTATION: {{…}}}}")
        return None
    if len(implementations) > 1:
        problems.append(_too_many(name, (name, kind), list(implementations), "implementation", tree))
        return None
    [(implementation, settings)] = implementations.items()
    if isinstance(settings, Unresolved):
        return None
    if settings is not None and not isinstance(settings, dict):
        problems.append(
            f"{source}: {name}.{kind}.{implementation} is not a mapping of settings; write key: value below it"
        )
        return None
    return Instance(name, kind, implementation, settings or {}, tree.source((name, kind, implementation)))


def _too_many(name: str, path: tuple[str, ...], keys: list[str], what: str, tree: Tree) -> str:
    sources = " and ".join(f'"{key}" ({tree.source((*path, key))})' for key in keys)
    unknown = [key for key in keys if key not in KINDS] if what == "kind" else []
    guess = hint(unknown[0], KINDS) if unknown else ""
    way_out = f"rename one of the blocks or give ~{'.'.join((*path, keys[0]))}"
    return f"{tree.source((*path, keys[-1]))}: {name} has {sources} where one {what} belongs; {way_out}{guess}"


def _implementation_problems(instance: Instance, cwd: Path) -> Iterator[str]:
    entrypoint = instance.settings.get("entrypoint") or "app.py"
    if isinstance(instance.settings.get("url"), str | Unresolved) or isinstance(entrypoint, Unresolved):
        return
    if not isinstance(entrypoint, str):
        where = f"{instance.source}: {instance.name}.{instance.kind}.{instance.implementation}"
        yield f"{where}.entrypoint is not a file name; write entrypoint: app.py"
    elif not _is_installed(instance) and not any(_is_file(folder / entrypoint) for folder in _folders(instance, cwd)):
        yield no_implementation(instance, cwd)


def _folders(instance: Instance, cwd: Path) -> list[Path]:
    name = instance.implementation
    place = Path(instance.kind, name)
    return [cwd / place, *in_package(place)] if Path(name).name == name else []


def no_implementation(instance: Instance, cwd: Path) -> str:
    """The problem of a block whose implementation or entry file does not exist, with the nearest name."""
    where = f"{instance.source}: {instance.name}.{instance.kind}"
    files = [file.name for folder in _folders(instance, cwd) for file in folder.glob("*.py")]
    if files:
        entrypoint = str(instance.settings.get("entrypoint") or "app.py")
        guess = hint(entrypoint, files) or "; name one with entrypoint"
        return f'{where}.{instance.implementation}: no file "{entrypoint}" in its folder{guess}'
    existing = [name for root in (cwd, PACKAGE) for name in implementations(instance.kind, root)]
    existing += installed_names() if instance.kind == RESOURCES else []
    searched = f"no folder {instance.kind}/{instance.implementation}/ in {cwd} or in the velodrome package"
    guess = hint(instance.implementation, existing) or "; make one with an app.py, or give the block a url"
    return f'{where}: unknown implementation "{instance.implementation}": {searched}{guess}'


def _is_installed(instance: Instance) -> bool:
    return instance.kind == RESOURCES and instance.implementation in installed_names()


def _is_file(file: Path) -> bool:
    try:
        return file.is_file()
    except (OSError, ValueError):
        return False


def check_references(instances: Mapping[str, Instance], tree: Tree, problems: list[str]) -> None:
    """Check that every `{type, name}` names an existing instance of that kind, and that no references form a cycle."""
    for instance in instances.values():
        block_path = (instance.name, instance.kind, instance.implementation)
        for path, value in _mappings(instance.settings, block_path):
            problem = _reference_problem(value, instances)
            if problem:
                problems.append(f"{tree.source((*path, 'name'))}: {'.'.join(path)} {problem}")
    for cycle in _cycles({name: list(item.references().values()) for name, item in instances.items()}):
        names = " -> ".join([*cycle, cycle[0]])
        problems.append(f"{instances[cycle[0]].source}: circular reference: {names}; remove one of these references")


def _mappings(node: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    if isinstance(node, dict):
        yield path, node
        for key, value in node.items():
            yield from _mappings(value, (*path, key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _mappings(value, (*path, str(index)))


def _reference_problem(value: Mapping[str, Any], instances: Mapping[str, Instance]) -> str | None:
    kind, name = value.get("type"), value.get("name")
    if not isinstance(kind, str) or isinstance(name, Unresolved):
        return None
    if kind not in KINDS:
        guess = nearest(kind, KINDS, cutoff=0.8) if set(value) == {"type", "name"} else None
        return f'has the unknown type "{kind}"; did you mean "{guess}"?' if guess else None
    if not is_reference(value):
        return f"refers to one of {kind} without a name; add name: INSTANCE"
    same_kind = [other.name for other in instances.values() if other.kind == kind]
    if name not in instances:
        others = f"; there are {', '.join(same_kind)}" if same_kind else f"; add a file that defines one of {kind}"
        return f'refers to "{name}", which no file defines{hint(str(name), same_kind) or others}'
    other_kind = instances[str(name)].kind
    if other_kind != kind:
        return f'refers to "{name}" as one of {kind}, but it is one of {other_kind}{hint(str(name), same_kind)}'
    return None


def _cycles(links: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    """Cycles of references; of cycles that share an instance, only the first."""
    rest = {name: [other for other in others if other in links] for name, others in links.items()}
    while True:
        try:
            TopologicalSorter(rest).prepare()
            return
        except CycleError as error:
            *_, cycle = error.args
            yield cycle[:0:-1]
            rest = {name: [] if name in cycle else others for name, others in rest.items()}


def check_known(changes: Sequence[Change], known: Collection[str], valid: Collection[str], problems: list[str]) -> None:
    """Check that every key on the command line is a setting of the verb (`known`) or is used by the files (`valid`)."""
    names = {*known, *valid, "config_paths"}
    for change in changes:
        key = change.path[0]
        if not change.remove and key not in names:
            everything = f"; the keys are {', '.join(sorted(known)[:20])}{', …' if len(known) > 20 else ''}"
            problems.append(f'{COMMAND_LINE}: unknown key "{key}"{hint(key, names) or everything}')
