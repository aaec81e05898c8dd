"""The memory task: at the choice nothing tells the cue, so only an agent that remembers does better than chance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_run import metrics, same, weights

from velodrome.errors import InputError
from velodrome.training.assignments import apply
from velodrome.training.envs.interface import Array
from velodrome.training.envs.make import make_env
from velodrome.training.envs.memory_env import CUES, MemoryEnv
from velodrome.training.loop import run_training
from velodrome.training.recipes.memory import memory
from velodrome.training.settings import EnvSettings, RunSettings

ENVS, CORRIDOR = 64, 3


def made(seed: int = 1) -> MemoryEnv:
    env = make_env(EnvSettings(name=f"memory:{CORRIDOR}", num_envs=ENVS), seed)
    assert isinstance(env, MemoryEnv)
    return env


def at_the_choice(cue: int, actions_TN: Array) -> MemoryEnv:
    """All cues replaced by one, then these actions until the choice."""
    env = made()
    env.load({**env.state(), "cues": np.full(ENVS, cue)})
    for actions_N in actions_TN:
        env.step(actions_N)
    return env


def test_what_is_shown_at_the_choice_is_the_same_for_every_cue_and_all_actions_before():
    actions_TN = np.random.default_rng(1).integers(CUES, size=(CORRIDOR + 1, ENVS))
    shown = [at_the_choice(cue, actions_TN * (cue % 2)).obs for cue in range(CUES)]
    assert all(np.array_equal(shown[0], each) for each in shown[1:])


def test_whatever_is_chosen_is_right_for_exactly_one_of_the_cues():
    chosen_N = np.random.default_rng(2).integers(CUES, size=ENVS)
    right = np.zeros(ENVS)
    for cue in range(CUES):
        env = at_the_choice(cue, np.zeros((CORRIDOR + 1, ENVS), np.int64))
        env.step(chosen_N)
        right += env.rewards
        assert env.terminals.all()
    assert np.array_equal(right, np.ones(ENVS))


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


def test_the_picture_is_a_corridor():
    env = made()
    first = env.letters(0).tobytes().decode()
    env.step(np.zeros(ENVS, np.int64))
    assert env.letters(0).tobytes().decode() == first[0] + "@..?"
    assert set(first) <= env.palette.keys()


@pytest.mark.parametrize("name", ["memory:0", "memory:x", "memory:1001", "memory:-1"])
def test_a_corridor_has_a_length(name: str):
    with pytest.raises(InputError, match="from 1 to 1000"):
        apply(RunSettings(), {"env.name": name})


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


def test_a_run_in_two_parts_is_the_run_in_one(tmp_path: Path):
    more = {"trainer__checkpoint_interval": 3, "evaluator__evaluate_local": False, "trainer__anneal_lr": False}
    run_training(settings(tmp_path / "parts", trainer__total_timesteps=6_400, **more))
    parts = run_training(settings(tmp_path / "parts", trainer__total_timesteps=12_800, **more))
    whole = run_training(settings(tmp_path / "whole", trainer__total_timesteps=12_800, **more))
    assert same(weights(parts.folder), weights(whole.folder))
    assert [line["step"] for line in metrics(parts.folder)] == [line["step"] for line in metrics(whole.folder)]
