"""That it learns: a student taught by thinky, then PPO from there; and PPO alone on the pole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from small_run import RandomActor

from velodrome.training.assignments import apply
from velodrome.training.envs.make import make_env
from velodrome.training.evaluate import Student, evaluate, play
from velodrome.training.loop import run_training
from velodrome.training.policy import Policy
from velodrome.training.random_streams import stream
from velodrome.training.recipes.cartpole import cartpole
from velodrome.training.recipes.cvc.thinky_supervised_to_ppo import thinky_supervised_to_ppo
from velodrome.training.run import checkpoint
from velodrome.training.settings import RunSettings

pytestmark = pytest.mark.slow
CPU = torch.device("cpu")
EPISODES = 64
TAUGHT = 300_000  # agent steps


def student(settings: RunSettings, folder: Path) -> Policy:
    """As the newest checkpoint has it."""
    env = make_env(settings.env, 0)
    policy = Policy(settings.policy, env.spec, stream(0, "weights", 0))
    policy.load_state_dict(checkpoint.read(checkpoint.checkpoints(folder)[-1])["policy"])
    return policy


def test_taught_by_thinky_and_then_by_ppo_the_student_gets_better_and_better(tmp_path: Path):
    values: dict[str, Any] = {
        "trainer.total_timesteps": TAUGHT,
        "trainer.batch_size": 16_384,
        "trainer.minibatch_size": 512,
        "evaluator.evaluate_local": False,
        "evaluator.greedy": False,
        "output.train_dir": str(tmp_path),
        "output.dashboard": False,
    }
    recipe = thinky_supervised_to_ppo(supervised_steps=TAUGHT, num_envs=64)
    settings = apply(recipe, values)
    taught = run_training(settings)
    clone = evaluate(settings, student(settings, taught.folder), CPU, step=0, episodes=EPISODES)

    after = run_training(apply(recipe, {**values, "trainer.total_timesteps": 2 * TAUGHT}))
    assert after.folder == taught.folder
    actor = Student(student(settings, after.folder), CPU, stream(0, "actions", 0))
    learned = play(settings, actor, episodes=EPISODES)

    random = play(settings, RandomActor(make_env(settings.env, 0).spec, 1), episodes=16)
    assert clone["agreement"] >= 0.85
    assert random.mean_return < 0.1 * clone["mean_return"]
    assert clone["mean_return"] + 2 * clone["standard_error"] < learned.mean_return


def test_ppo_balances_the_pole(tmp_path: Path):
    values = {"output.train_dir": str(tmp_path), "output.dashboard": False, "evaluator.epoch_interval": "10_000"}
    result = run_training(apply(cartpole(), values))
    assert result.evaluation is not None
    assert result.evaluation["mean_return"] >= 475
