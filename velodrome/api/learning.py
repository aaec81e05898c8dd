"""`train`: a small policy by a recipe, on the same code as `velo train`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from velodrome.errors import InputError
from velodrome.training.start import train as train_by_recipe

if TYPE_CHECKING:
    from velodrome.training.loop import TrainingResult


def train(
    recipe: str | Callable[..., Any],
    *,
    say: Callable[[str], None] | None = None,
    stop: Callable[[], bool] | None = None,
    **settings: Any,
) -> TrainingResult:
    """Train by a recipe: its name, a file (`./mine.py`), or a function that returns settings.

    `settings` are arguments of the recipe and settings of the run: `seed=3`, `trainer={"batch_size": 1024}`. `say` is
    called with a line whenever there is something to report. Training stops after the epoch in which `stop` returns
    true; the same call later resumes it.
    """
    if not isinstance(recipe, str) and not (callable(recipe) and hasattr(recipe, "__name__")):
        raise InputError(f"recipe: expected a name, a file or a function, not {recipe!r:.80}")
    return train_by_recipe(recipe, settings, say=say, stop=stop)
