"""Recipes that solve a known task: each one is planned and trained for a moment; the quick ones reach their threshold.

`python -m benchmarks.train.solve` trains all of them to the end, over five seeds.
"""

from __future__ import annotations

from pathlib import Path

import gymnasium
import pytest

from benchmarks.train.to_threshold import TASKS, ZOO
from velodrome.training.loop import run_training
from velodrome.training.recipes import find, resolve
from velodrome.training.schedule import make_plan
from velodrome.training.settings import RunSettings

GYMNASIUM = sorted(TASKS.keys() - {"memory"})


def settings(name: str, folder: Path, **more: object) -> RunSettings:
    values = {"output.train_dir": str(folder), "output.dashboard": False, "evaluator.epoch_interval": 10_000}
    return resolve(find(name), {**values, **{key.replace("__", "."): value for key, value in more.items()}}).settings


@pytest.mark.parametrize("name", TASKS)
def test_a_recipe_is_planned_and_trains(tmp_path: Path, name: str):
    two = 2 * settings(name, tmp_path).trainer.batch_size
    short = settings(name, tmp_path, trainer__total_timesteps=two, evaluator__episodes=2)
    plan = make_plan(short, short.env.num_envs)
    assert [(phase.phase, phase.rollouts) for phase in plan.phases] == [("ppo", 2)]
    result = run_training(short)
    assert (result.step, result.finished) == (two, True)
    assert result.evaluation is not None
    assert result.evaluation["episodes"] == 2


@pytest.mark.parametrize("name", GYMNASIUM)
def test_a_threshold_is_the_published_one(name: str):
    task = settings(name, Path()).env.name.removeprefix("gymnasium:")
    published = gymnasium.spec(task).reward_threshold
    assert TASKS[name].threshold == (-200 if name == "pendulum" else published)  # the pendulum has none


@pytest.mark.parametrize("name", ZOO)
def test_the_settings_of_others_are_for_the_same_task(name: str):
    assert settings(name, Path()).env.name == f"gymnasium:{ZOO[name]['env']}"


def test_chance_reaches_the_top_and_the_car_learns_the_way(tmp_path: Path):
    short = settings("mountain_car_continuous", tmp_path, trainer__total_timesteps=12_288, evaluator__episodes=100)
    result = run_training(short)
    assert result.evaluation is not None
    assert result.evaluation["mean_return"] >= TASKS["mountain_car_continuous"].threshold
