"""Where a run is kept: a folder named after the run and after what decides its weights.

So the same command goes on where it was, and another setting never writes into an older run's folder.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from velodrome.errors import InputError
from velodrome.training.overrides import keys
from velodrome.training.settings import Settings

DIGITS = 8
METRICS = "metrics.jsonl"  # the file in it that tells how training went
_FREE = ("trainer.total_timesteps", "trainer.timing_interval", "supervised.profiled")


def digest(settings: Settings) -> str:
    """Of every setting but those that a run may be gone on with: how long it is, how it is evaluated and looked at."""
    told = {key.name: key.value for key in keys(settings) if not _free(key.name)}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:DIGITS]


def folder(settings: Settings) -> Path:
    """`train_dir/<run>_<digest>`."""
    try:
        above = Path(settings.output.train_dir).expanduser()
    except RuntimeError:
        raise InputError(f"output.train_dir={settings.output.train_dir}: there is no such home folder") from None
    return above / f"{settings.run}_{digest(settings)}"


def _free(name: str) -> bool:
    return name in _FREE or name.startswith(("evaluator.", "output.", "trainer.profiler."))
