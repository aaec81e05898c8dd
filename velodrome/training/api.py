"""`train` and `sweep`: small policies by a recipe, as `velo train` does. `load_policy`: a policy to act with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from velodrome.training.explain import opening
from velodrome.training.recipes import resolve
from velodrome.training.run.dashboard import never, silent
from velodrome.training.start import recipe_of, refuse_without_torch, train_settings
from velodrome.training.sweep import SweepResult, plan_sweep, read_sweep, run_sweep

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
    resolved = resolve(recipe_of(recipe), settings)
    refuse_without_torch("training")
    if say is not None:
        say(opening(resolved))
    return train_settings(resolved.settings, say=say or silent, stop=stop or never)


def sweep(
    recipe: str | Callable[..., Any],
    over: str | Path | Mapping[str, Any],
    *,
    say: Callable[[str], None] | None = None,
    stop: Callable[[], bool] | None = None,
    **settings: Any,
) -> SweepResult:
    """Train by a recipe with several values of some settings, trial by trial; `result.best.values` are the best.

    `over` is a YAML file, or the same keys in Python: `{"method": "tpe", "trials": 20, "parameters":
    {"trainer.learning_rate": {"log": [1e-4, 1e-2]}}}`. The same call later continues, and runs no trial again that
    has ended. The rest is as in `train`.
    """
    plan = plan_sweep(read_sweep(over), recipe_of(recipe), settings)
    tell, halt = say or silent, stop or never
    return run_sweep(plan, lambda run: train_settings(run, say=tell, stop=halt), tell, halt)


def load_policy(path: str | Path, which: str | int = "last") -> TrainedPolicy:
    """A trained policy: `policy.act(obs, state)` returns actions and the memory after them.

    `path` is the folder of a run, its name if no other run has it, or one checkpoint. `which` is
    `"last"`, `"best"` (the highest evaluation), the name of a phase for its end (`"taught"` is that of `"supervised"`),
    or a step that is kept.
    """
    refuse_without_torch("a policy")
    from velodrome.training.trained.loading import load_trained

    return load_trained(path, which)
