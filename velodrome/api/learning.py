"""`train`: a small policy by a recipe, on the same code as `velo train`. `load_policy`: a policy to act with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from velodrome.errors import InputError
from velodrome.training.start import refuse_without_torch
from velodrome.training.start import train as train_by_recipe

if TYPE_CHECKING:
    from velodrome.training.loop import TrainingResult
    from velodrome.training.trained.trained_policy import TrainedPolicy


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


def load_policy(path: str | Path, which: str | int = "last") -> TrainedPolicy:
    """A trained policy: `policy.act(obs, state)` returns actions and the memory after them.

    `path` is the folder of a run, the start of its name if no other run's name begins so, or one checkpoint. `which` is
    `"last"`, `"best"` (the highest evaluation), the name of a phase for its end (`"taught"` is that of `"supervised"`),
    or a step that is kept.
    """
    refuse_without_torch("a policy")
    from velodrome.training.trained.loading import load_trained

    return load_trained(path, which)
