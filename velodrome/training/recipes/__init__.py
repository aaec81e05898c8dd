"""Recipes: functions that return the settings of a run, found by name below this folder, or in a file of the user's.

A recipe and the settings it returns load no torch, so that they can be listed, explained and tried without it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from velodrome.errors import InputError, blame
from velodrome.settings.spelling import hint
from velodrome.training.overrides import apply, complaints, keys, parse, read
from velodrome.training.settings import Settings

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a recipe's function."""

    name: str
    kind: Any
    field: FieldInfo | None
    default: Any
    required: bool


@dataclass(frozen=True, slots=True)
class Recipe:
    """A function that returns settings, and the name it was asked for by."""

    name: str
    function: Callable[..., Any]
    arguments: Mapping[str, Argument]

    @property
    def text(self) -> str:
        return inspect.getdoc(self.function) or ""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The settings of a run, and those of the recipe before anything was given."""

    recipe: Recipe
    settings: Settings
    before: Settings | None  # None: the recipe has arguments that must be given

    def changed(self) -> dict[str, tuple[Any, Any]]:
        """What was changed: name, value before, value now."""
        if self.before is None:
            return {}
        old = {key.name: key.value for key in keys(self.before)}
        new = {key.name: key.value for key in keys(self.settings)}
        return {name: (old.get(name), value) for name, value in new.items() if old.get(name) != value}


@dataclass(frozen=True, slots=True)
class Attempt:
    """What words make of a recipe: with problems, settings as far as they could be made, and the names not in them."""

    resolved: Resolved | None
    problems: list[str]
    unread: set[str]


def names() -> list[str]:
    """The recipes of this package, as they are asked for."""
    paths = (path.relative_to(HERE).with_suffix("") for path in HERE.rglob("*.py") if not path.name.startswith("_"))
    return sorted(".".join(path.parts) for path in paths)


def listed() -> Iterator[tuple[str, str]]:
    """Every recipe and the first line of what it says about itself."""
    for name in names():
        yield name, find(name).text.partition("\n")[0]


def find(name: str) -> Recipe:
    """A recipe by its name, or as `file.py`, or as `file.py:function`."""
    if name.endswith(".py") or ".py:" in name:
        return _from_file(name)
    if name not in names():
        path = "; a file is given as ./file.py" if "/" in name else ""
        way = path or hint(name, names(), cutoff=0.4) or "; --list shows them all"
        raise InputError(f"no recipe {name!r}{way}")
    module = import_module(f"{__name__}.{name}")
    return _recipe(name, getattr(module, name.rpartition(".")[2]))


def resolve(recipe: Recipe, words: Sequence[str]) -> Resolved:
    """The settings that a recipe and `name=value` words make: its arguments first, then keys of the settings."""
    tried = attempt(recipe, words)
    if tried.resolved is None or tried.problems:
        raise InputError(*tried.problems)
    return tried.resolved


def attempt(recipe: Recipe, words: Sequence[str]) -> Attempt:
    """The same as far as it goes, for whoever has more to say about what was meant."""
    problems: list[str] = []
    given = parse(words, problems)
    unread = set(problems)  # a word that is no key=value may have been about anything
    values = {}
    told = {name: text for name, text in given.items() if name in recipe.arguments}
    for name, text in told.items():
        argument, wrong = recipe.arguments[name], list[str]()
        value = read(name, text, argument.kind, argument.field, wrong)
        if wrong:
            problems += wrong
            unread.add(name)
        else:
            values[name] = value
    wanting = [name for name, argument in recipe.arguments.items() if argument.required and name not in told]
    problems += [f"recipe {recipe.name} needs {name}=…" for name in wanting]
    before = None if any(argument.required for argument in recipe.arguments.values()) else _make(recipe, {})
    try:
        settings = _make(recipe, values)
    except InputError as error:
        if not problems:  # else it may be what is missing that it cannot do without
            problems += error.problems
        if before is None:
            return Attempt(None, problems, unread)
        settings, unread = before, unread | told.keys()
    rest = {name: text for name, text in given.items() if name not in told}
    settings = apply(settings, rest, problems, names=recipe.arguments, unread=unread)
    return Attempt(Resolved(recipe, settings, before), problems, unread)


def _make(recipe: Recipe, values: Mapping[str, Any]) -> Settings:
    with blame(InputError, f"recipe {recipe.name}"):
        try:
            made = recipe.function(**values)
        except ValidationError as error:
            raise InputError(*(f"recipe {recipe.name}: {line}" for line in complaints(error))) from error
    if not isinstance(made, Settings):
        kind = type(made).__name__
        raise InputError(f"recipe {recipe.name}: returns {kind}, not the Settings of velodrome.training.settings")
    return made


def _recipe(name: str, function: Callable[..., Any]) -> Recipe:
    with blame(InputError, f"recipe {name}"):
        hints = get_type_hints(function, include_extras=True)
    arguments = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise InputError(f"recipe {name}: {parameter} cannot be given by name; give its arguments names")
        required = parameter.default is parameter.empty
        kind, field = _kind(hints.get(parameter.name, str if required else type(parameter.default)))
        default = None if required else parameter.default
        arguments[parameter.name] = Argument(parameter.name, kind, field, default, required)
    return Recipe(name, function, arguments)


def _kind(annotation: Any) -> tuple[Any, FieldInfo | None]:
    if get_origin(annotation) is not Annotated:
        return annotation, None
    kind, *more = get_args(annotation)
    return kind, next((one for one in more if isinstance(one, FieldInfo)), None)


def _from_file(name: str) -> Recipe:
    stem, _, function = name.partition(".py:")
    path = Path(f"{stem}.py" if function else name)
    with suppress(RuntimeError):  # nobody's home: then it is no file either
        path = path.expanduser()
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    module = _loaded(path)
    wanted = function or path.stem
    found = getattr(module, wanted, None)
    if not inspect.isfunction(found):
        there = [key for key, value in vars(module).items() if _returns_settings(value)]
        others = f"; there are {', '.join(there)}: give {path}:{there[0]}" if there else "; a recipe is a function"
        raise InputError(f"{path}: no function {wanted}{others}")
    return _recipe(name, found)


def _returns_settings(value: Any) -> bool:
    return inspect.isfunction(value) and value.__annotations__.get("return") in (Settings, "Settings")


def _loaded(path: Path) -> ModuleType:
    """The file, run. What stands beside it can be imported, then and later; what is installed goes before it."""
    beside = str(path.resolve().parent)
    if beside not in sys.path:
        sys.path.append(beside)
    spec = spec_from_file_location(f"recipe_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: is no Python file")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up there
    with blame(InputError, str(path)):
        try:
            spec.loader.exec_module(module)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "metta":
                raise
            way = "it stands in the source tree, beside tools/run.py; or import from velodrome.training.settings"
            raise InputError(f"{path}: no package {error.name} here: {way}") from error
    return module
