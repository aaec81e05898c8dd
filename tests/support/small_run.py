"""A run that takes a second: a small map, few agents, both phases."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.patience import DEADLINE_S
from velodrome.training.assignments import apply
from velodrome.training.envs.env_names import KINDS, no_wheel
from velodrome.training.envs.interface import Array, Spec
from velodrome.training.loop import TrainingResult, run_training
from velodrome.training.run import checkpoint
from velodrome.training.settings import RunSettings

Reference = Callable[[str], TrainingResult]

NO_WHEEL = no_wheel(KINDS["mettagrid"])
needs_mettagrid = pytest.mark.skipif(
    find_spec("mettagrid") is None, reason=NO_WHEEL or 'the extra "mettagrid" is not installed'
)

SMALL = {
    "env.name": "extractor_hub_10",
    "env.num_envs": "4",
    "env.agents": "2",
    "env.max_steps": "24",
    "policy.hidden": "16",
    "supervised.steps": "512",
    "trainer.total_timesteps": "1024",
    "trainer.batch_size": "64",
    "trainer.minibatch_size": "32",
    "trainer.checkpoint_interval": "3",
    "evaluator.evaluate_local": "False",
    "evaluator.episodes": "4",
    "output.dashboard": "False",
}


def small(folder: Path, **more: object) -> RunSettings:
    """Settings; a key's dots are written as double underscores."""
    values = {name.replace("__", "."): value for name, value in more.items()}
    return apply(RunSettings(run="small"), {**SMALL, "output.train_dir": str(folder), **values})


def trained(folder: Path, lines: list[str] | None = None, **more: object) -> TrainingResult:
    """A small run, finished. What it says is added to `lines`."""
    return run_training(small(folder, **more), (lines if lines is not None else []).append)


def copied(result: TrainingResult, to: Path) -> Path:
    """The folder of a run, copied to another train_dir."""
    return Path(shutil.copytree(result.folder, to / result.folder.name))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """The newest checkpoint's."""
    state: dict[str, torch.Tensor] = checkpoint.read(checkpoint.checkpoints(folder)[-1])["policy"]
    return state


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    """Bit for bit."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def children() -> set[int]:
    """The processes this one has started that run, or have not been waited for."""
    return set(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))


def kill_as_it_grows(start: Callable[[], subprocess.Popen[bytes]], size: Callable[[], int], more: list[int]) -> None:
    """Start a program until it ends by itself; kill it each time that its files have grown by the next of `more`."""
    for _ in range(20):
        wanted, process = size() + (more[0] if more else 0), start()
        while more and process.poll() is None and size() < wanted:
            time.sleep(0.001)
        killed = bool(more) and process.poll() is None
        if killed:
            process.kill()
            more.pop(0)
        out, _ = process.communicate(timeout=DEADLINE_S)
        if process.returncode == 0:
            break
        assert killed, out.decode()
    assert (process.returncode, more) == (0, [])


class RandomActor:
    """Uniformly random actions."""

    def __init__(self, spec: Spec, seed: int) -> None:
        self._num_actions = spec.actions.width
        self._random = np.random.default_rng(seed)

    def act(self, obs_N: Array, starts_N: Array, mask_NA: Array | None = None) -> Array:
        return self._random.integers(0, self._num_actions, len(obs_N))
