"""A sweep whose trials take a tenth of a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import velodrome
from tests.support.small_run import SMALL
from velodrome.training.settings import RunSettings
from velodrome.training.sweep import SweepResult

RATES: dict[str, Any] = {"trainer.learning_rate": {"log": [1e-4, 1e-2]}, "ppo.update_epochs": {"choices": [1, 2]}}
VALUES = SMALL | {"evaluator.evaluate_local": True, "trainer.total_timesteps": 256, "supervised.steps": 128}


def tiny() -> RunSettings:
    return RunSettings(run="tiny")


def swept(
    folder: Path, *, stop: Any = None, lines: list[str] | None = None, more: Any = None, **sweep: Any
) -> SweepResult:
    over = {"trials": 4, "parameters": RATES, **sweep}
    settings = {name: value for name, value in VALUES.items() if name not in over["parameters"]}
    settings |= {"output.train_dir": str(folder), **(more or {})}
    return velodrome.sweep(tiny, over, stop=stop, say=(lines if lines is not None else []).append, **settings)
