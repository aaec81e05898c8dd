"""A run that takes a second: a small map, few agents, both phases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from velodrome.training.overrides import apply
from velodrome.training.run import checkpoint
from velodrome.training.settings import Settings

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


def small(folder: Path, **more: str) -> Settings:
    """Settings; a key's dots are written as double underscores."""
    given = {name.replace("__", "."): value for name, value in more.items()}
    return apply(Settings(run="small"), {**SMALL, "output.train_dir": str(folder), **given})


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """The newest checkpoint's."""
    found: dict[str, torch.Tensor] = checkpoint.read(checkpoint.found(folder)[-1])["policy"]
    return found


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    """Bit for bit."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
