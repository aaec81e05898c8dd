"""What a configuration is once it is resolved, and the checks of its blocks.

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
    written: it is not called.
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


def instances(data: dict[str, Any], tree: Tree, cwd: Path, problems: list[str]) -> dict[str, Instance]:
    """The well-formed blocks among the top-level values."""
    made: dict[str, Instance] = {}
    for name, value in data.items():
        if not is_block(value):
            _check_almost_block(name, value, tree, problems)
            continue
        instance = _instance(name, value, tree, problems)
        if instance is not None:
            made[name] = instance
            problems.extend(_implementation_problems(instance, cwd))
    return made


def _check_almost_block(name: str, value: Any, tree: Tree, problems: list[str]) -> None:
    """A plain setting that was surely meant as a block: one key, almost a kind, over `{implementation: {…}}`."""
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
    named = " and ".join(f'"{key}" ({tree.source((*path, key))})' for key in keys)
    unknown = [key for key in keys if key not in KINDS] if what == "kind" else []
    guess = hint(unknown[0], KINDS) if unknown else ""
    way_out = f"rename one of the blocks or give ~{'.'.join((*path, keys[0]))}"
    return f"{tree.source((*path, keys[-1]))}: {name} has {named} where one {what} belongs; {way_out}{guess}"


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
    """One line for a block whose implementation, or whose file in it, is nowhere, with the nearest name."""
    where = f"{instance.source}: {instance.name}.{instance.kind}"
    beside = [file.name for folder in _folders(instance, cwd) for file in folder.glob("*.py")]
    if beside:
        entrypoint = str(instance.settings.get("entrypoint") or "app.py")
        guess = hint(entrypoint, beside) or "; name one with entrypoint"
        return f'{where}.{instance.implementation}: no file "{entrypoint}" in its folder{guess}'
    existing = [name for root in (cwd, PACKAGE) for name in implementations(instance.kind, root)]
    existing += installed_names() if instance.kind == RESOURCES else []
    looked = f"no folder {instance.kind}/{instance.implementation}/ in {cwd} or in the velodrome package"
    guess = hint(instance.implementation, existing) or "; make one with an app.py, or give the block a url"
    return f'{where}: unknown implementation "{instance.implementation}": {looked}{guess}'


def _is_installed(instance: Instance) -> bool:
    return instance.kind == RESOURCES and instance.implementation in installed_names()


def _is_file(file: Path) -> bool:
    try:
        return file.is_file()
    except (OSError, ValueError):
        return False


def check_references(made: Mapping[str, Instance], tree: Tree, problems: list[str]) -> None:
    """Every `{type, name}` in a block leads to an instance of that kind, and never back to itself."""
    for instance in made.values():
        base = (instance.name, instance.kind, instance.implementation)
        for path, value in _mappings(instance.settings, base):
            problem = _reference_problem(value, made)
            if problem:
                problems.append(f"{tree.source((*path, 'name'))}: {'.'.join(path)} {problem}")
    for circle in _circles({name: list(item.references().values()) for name, item in made.items()}):
        names = " -> ".join([*circle, circle[0]])
        problems.append(f"{made[circle[0]].source}: instances refer to each other in a circle: {names}; break it")


def _mappings(node: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    if isinstance(node, dict):
        yield path, node
        for key, value in node.items():
            yield from _mappings(value, (*path, key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _mappings(value, (*path, str(index)))


def _reference_problem(value: Mapping[str, Any], made: Mapping[str, Instance]) -> str | None:
    kind, name = value.get("type"), value.get("name")
    if not isinstance(kind, str) or isinstance(name, Unresolved):
        return None
    if kind not in KINDS:
        guess = nearest(kind, KINDS, cutoff=0.8) if set(value) == {"type", "name"} else None
        return f'has the unknown type "{kind}"; did you mean "{guess}"?' if guess else None
    if not is_reference(value):
        return f"refers to one of {kind} without a name; add name: INSTANCE"
    same_kind = [other.name for other in made.values() if other.kind == kind]
    if name not in made:
        known = f"; there are {', '.join(same_kind)}" if same_kind else f"; add a file that defines one of {kind}"
        return f'refers to "{name}", which no file defines{hint(str(name), same_kind) or known}'
    if made[str(name)].kind != kind:
        return (
            f'refers to "{name}" as one of {kind}, but it is one of {made[str(name)].kind}{hint(str(name), same_kind)}'
        )
    return None


def _circles(links: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    """Circles of references, until none is left that shares no instance with those before."""
    rest = {name: [other for other in others if other in links] for name, others in links.items()}
    while True:
        try:
            TopologicalSorter(rest).prepare()
            return
        except CycleError as error:
            *_, circle = error.args
            yield circle[:0:-1]
            rest = {name: [] if name in circle else others for name, others in rest.items()}


def check_known(changes: Sequence[Change], known: Collection[str], valid: Collection[str], problems: list[str]) -> None:
    """Every key on the command line is one the verb understands (`known`) or one the files use (`valid`)."""
    names = {*known, *valid, "config_paths"}
    for change in changes:
        key = change.path[0]
        if not change.remove and key not in names:
            everything = f"; the keys are {', '.join(sorted(known)[:20])}{', …' if len(known) > 20 else ''}"
            problems.append(f'{COMMAND_LINE}: unknown key "{key}"{hint(key, names) or everything}')
