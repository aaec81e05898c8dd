"""The memory task: at the choice nothing tells the cue, so only an agent that remembers does better than chance."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from velodrome.training.assignments import apply
from velodrome.training.envs.make import make_env
from velodrome.training.envs.memory_env import CUES, MemoryEnv
from velodrome.training.loop import run_training
from velodrome.training.recipes.classic import memory
from velodrome.training.settings import EnvSettings, RunSettings

ENVS, CORRIDOR = 64, 3


def made(seed: int = 1) -> MemoryEnv:
    env = make_env(EnvSettings(name=f"memory:{CORRIDOR}", num_envs=ENVS), seed)
    assert isinstance(env, MemoryEnv)
    return env


def test_the_cue_is_shown_first_and_choosing_it_at_the_end_is_right():
    env = made()
    cues_N = env.obs[:, :CUES].argmax(1)
    assert np.array_equal(np.unique(cues_N), np.arange(CUES))
    for _ in range(CORRIDOR + 1):
        env.step(cues_N)
        assert not env.rewards.any()
    env.step(cues_N)
    ended = env.ended()
    assert (ended.returns.tolist(), ended.lengths.tolist()) == ([1.0] * ENVS, [CORRIDOR + 2] * ENVS)
    assert ended.envs.tolist() == list(range(ENVS))
    assert env.obs[:, CUES].all(), "the next episode has begun"
    assert len(env.ended().returns) == 0


def test_a_state_that_was_saved_continues_as_before_and_a_seed_repeats_everything():
    env, actions_N = made(), np.zeros(ENVS, np.int64)
    for _ in range(CORRIDOR + 2):
        env.step(actions_N)
    env.ended()
    copy = made(seed=2)
    copy.load(env.state())
    for _ in range(2 * CORRIDOR):
        env.step(actions_N)
        copy.step(actions_N)
        assert np.array_equal(env.obs, copy.obs)
        assert np.array_equal(env.rewards, copy.rewards)
    assert np.array_equal(env.ended().returns, copy.ended().returns)
    assert np.array_equal(made().obs, made().obs)
    assert not np.array_equal(made().obs, made(seed=2).obs)


def settings(folder: Path, **more: object) -> RunSettings:
    values = {"output.train_dir": str(folder), "output.dashboard": False, "evaluator.episodes": 1000}
    return apply(memory(), {**values, **{name.replace("__", "."): value for name, value in more.items()}})


def test_an_lstm_solves_it_and_without_memory_it_stays_at_chance(tmp_path: Path):
    solved = run_training(settings(tmp_path, trainer__total_timesteps=60_000)).evaluation
    chance = run_training(settings(tmp_path, trainer__total_timesteps=60_000, policy__core="mlp")).evaluation
    assert solved is not None
    assert chance is not None
    assert solved["mean_return"] >= 0.95
    assert abs(chance["mean_return"] - 1 / CUES) < 0.06  # more than four standard errors of 1,000 episodes
