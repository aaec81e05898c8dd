"""Recipes: functions that return the settings of a run, found by name in this folder, or in a file of the user's.

A recipe and its settings import no torch, so they can be listed, explained and planned without it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

from pydantic import ValidationError, create_model

from velodrome.errors import InputError, blame
from velodrome.settings.files import file_problem
from velodrome.settings.model import Settings, problem_lines
from velodrome.settings.names import hint
from velodrome.training import settings as training_settings
from velodrome.training.assignments import assign, plain_value
from velodrome.training.schedule import conflicts
from velodrome.training.settings import RunSettings, leaves

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Recipe:
    """A function that returns settings, the name it was found by, and a model of its arguments."""

    name: str
    function: Callable[..., Any]
    arguments: type[Settings]

    @property
    def text(self) -> str:
        return inspect.getdoc(self.function) or ""

    def defaults(self) -> RunSettings | None:
        """The settings without any argument; None if one is required."""
        required = any(field.is_required() for field in self.arguments.model_fields.values())
        return None if required else _call(self, {})


@dataclass(frozen=True, slots=True)
class ResolvedRun:
    """The settings of a run, and those of the recipe without any argument."""

    recipe: Recipe
    settings: RunSettings
    before: RunSettings | None

    def changed(self) -> dict[str, tuple[Any, Any]]:
        """Settings that differ from the recipe's: name, value before, value now."""
        if self.before is None:
            return {}
        old = {leaf.name: leaf.value for leaf in leaves(self.before)}
        new = {leaf.name: leaf.value for leaf in leaves(self.settings)}
        return {name: (old.get(name), value) for name, value in new.items() if old.get(name) != value}


@cache
def _known() -> dict[str, Callable[..., RunSettings]]:
    """The recipes of this package: every function in this folder that returns settings, by folder and name."""
    known = {}
    for path in sorted(HERE.rglob("[!_]*.py")):
        parts = path.relative_to(HERE).with_suffix("").parts
        module = import_module(".".join((__name__, *parts)))
        for name, value in vars(module).items():
            if _returns_settings(value) and not name.startswith("_"):
                known[".".join((*parts[:-1], name))] = value
    return dict(sorted(known.items()))


def listed() -> Iterator[tuple[str, str]]:
    """Every recipe and the first line of its docstring."""
    for name in _known():
        yield name, find(name).text.partition("\n")[0]


def find(name: str) -> Recipe:
    """A recipe by its name, or as `file.py`, or as `file.py:function`."""
    if name.endswith(".py") or ".py:" in name:
        return _from_file(name)
    if name not in _known():
        path = "; a file is given as ./file.py" if "/" in name else ""
        way = path or hint(name, _known(), cutoff=0.4) or "; --list shows them all"
        raise InputError(f"no recipe {name!r}{way}")
    return make_recipe(name, _known()[name])


def resolve(recipe: Recipe, values: Mapping[str, Any], problems: list[str] | None = None) -> ResolvedRun:
    """The settings made by a recipe and values by name: its arguments first, then keys of the settings.

    Raises `InputError` with every mistake, after the `problems` known already.
    """
    wrong = list(problems or ())
    fields = recipe.arguments.model_fields
    arguments = {name: plain_value(values[name], fields[name].annotation) for name in values if name in fields}
    before = recipe.defaults()
    settings = before
    try:
        checked = recipe.arguments.model_validate(arguments)
        settings = _call(recipe, {name: getattr(checked, name) for name in checked.model_fields_set})
    except ValidationError as error:
        wrong += problem_lines(recipe.arguments, error)
    except InputError as error:
        wrong += error.problems
    if settings is None:
        raise InputError(*wrong)
    others = {name: value for name, value in values.items() if name not in fields}
    settings = assign(settings, others, wrong, arguments=fields)
    wrong = wrong or conflicts(settings)
    if wrong:
        raise InputError(*wrong)
    return ResolvedRun(recipe, settings, before)


def _call(recipe: Recipe, arguments: Mapping[str, Any]) -> RunSettings:
    with blame(InputError, f"recipe {recipe.name}"):
        try:
            settings = recipe.function(**arguments)
        except ValidationError as error:
            lines = problem_lines(getattr(training_settings, error.title, Settings), error)
            raise InputError(*(f"recipe {recipe.name}: {error.title}: {line}" for line in lines)) from error
    if not isinstance(settings, RunSettings):
        kind = type(settings).__name__
        raise InputError(f"recipe {recipe.name}: returns {kind}, not RunSettings of velodrome.training.settings")
    return settings


def make_recipe(name: str, function: Callable[..., Any]) -> Recipe:
    """A recipe from its function; the arguments are checked by their annotations."""
    fields: dict[str, Any] = {}
    with blame(InputError, f"recipe {name}"):
        hints = get_type_hints(function, include_extras=True)
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise InputError(f"recipe {name}: {parameter} cannot be given by name; give its arguments names")
        required = parameter.default is parameter.empty
        kind = hints.get(parameter.name, str if required else type(parameter.default))
        fields[parameter.name] = (kind, ... if required else parameter.default)
    with blame(InputError, f"recipe {name}"):
        return Recipe(name, function, create_model(f"arguments of {name}", __base__=Settings, **fields))


def _from_file(name: str) -> Recipe:
    stem, _, function = name.partition(".py:")
    path = Path(f"{stem}.py" if function else name)
    with suppress(RuntimeError):  # no such home folder, so no such file
        path = path.expanduser()
    if (problem := file_problem(path)) is not None:
        raise InputError(problem)
    module = _loaded(path)
    wanted = function or path.stem
    candidate = getattr(module, wanted, None)
    if not inspect.isfunction(candidate):
        recipes = [key for key, value in vars(module).items() if _returns_settings(value)]
        others = f"; there are {', '.join(recipes)}: use {path}:{recipes[0]}" if recipes else "; a recipe is a function"
        raise InputError(f"{path}: no function {wanted}{others}")
    return make_recipe(name, candidate)


def _returns_settings(value: Any) -> bool:
    return inspect.isfunction(value) and value.__annotations__.get("return") in (RunSettings, "RunSettings")


def _loaded(path: Path) -> ModuleType:
    """The file as a module. It can import what lies beside it; installed packages take precedence."""
    beside = str(path.resolve().parent)
    if beside not in sys.path:
        sys.path.append(beside)
    spec = spec_from_file_location(f"recipe_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: not a Python file")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up there
    with blame(InputError, str(path)):
        spec.loader.exec_module(module)
    return module
