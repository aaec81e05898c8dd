"""Train by a recipe: one call for the command line, Python and notebooks. It prints nothing and handles no signals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from velodrome.errors import InputError
from velodrome.training.explain import opening
from velodrome.training.recipes import Recipe, find, make_recipe, resolve
from velodrome.training.settings import RunSettings

if TYPE_CHECKING:  # they need torch
    from velodrome.training.loop import TrainingResult
    from velodrome.training.run.dashboard import Dashboard

_NEEDED = ("torch", "numba", "numpy")


def train(
    recipe: str | Callable[..., RunSettings],
    overrides: Mapping[str, Any],
    *,
    say: Callable[[str], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> TrainingResult:
    """Train by a recipe (its name, a file `./mine.py` or a function) with arguments and settings by name.

    `say` receives what happens, a text at a time. Training ends after the epoch in which `stop` returns true; the
    same call later resumes it.
    """
    resolved = resolve(recipe_of(recipe), overrides)
    refuse_without_torch("training")
    if say is not None:
        say(opening(resolved))
    return train_settings(resolved.settings, say=say, stop=stop)


def recipe_of(recipe: str | Callable[..., RunSettings]) -> Recipe:
    """A recipe by its name, its file or its function."""
    if isinstance(recipe, str):
        return find(recipe)
    if not (callable(recipe) and hasattr(recipe, "__name__")):
        raise InputError(f"recipe: expected a name, a file or a function, not {recipe!r:.80}")
    return make_recipe(recipe.__name__, recipe)


def train_settings(
    settings: RunSettings,
    *,
    say: Callable[[str], None] | None = None,
    stop: Callable[[], bool] | None = None,
    dashboard: Dashboard | None = None,
) -> TrainingResult:
    """The same with settings that are resolved."""
    refuse_without_torch("training")
    from velodrome.training.loop import run_training

    return run_training(settings, say or (lambda _: None), stop=stop or (lambda: False), dashboard=dashboard)


def refuse_without_torch(what: str) -> None:
    """One line if the extra is not installed."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        ways = '"make train-setup", or pip install -c constraints.txt -e ".[train]"'
        raise InputError(f"{what} needs {', '.join(missing)}: in the source tree, {ways}")
