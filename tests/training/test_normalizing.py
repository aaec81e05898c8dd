"""Observations and rewards on one scale: against a plain computation, and through a checkpoint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_run import same, small, weights

from velodrome.errors import InputError, TrainError
from velodrome.training.advantages import RewardScaler
from velodrome.training.loop import run_training
from velodrome.training.network.encoders import ObsNormalizer
from velodrome.training.run import checkpoint


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31), sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5), skipped=st.integers(0, 2))
def test_observations_have_mean_zero_and_deviation_one_of_everything_seen(
    seed: int, sizes: list[int], skipped: int
) -> None:
    random = np.random.default_rng(seed)
    parts = [random.normal(100.0, 7.0, (size, 3 + skipped)).astype(np.float32) for size in sizes]
    normalizer = ObsNormalizer(3, skipped)
    for part in parts:
        normalizer.update(torch.from_numpy(part))
    everything = np.concatenate(parts)

    shown = normalizer(torch.from_numpy(parts[0])).numpy()

    rows = everything[:, skipped:].astype(np.float64)
    expected = np.clip((parts[0][:, skipped:] - rows.mean(0)) / np.sqrt(rows.var(0) + 1e-8), -10, 10)
    np.testing.assert_allclose(shown[:, skipped:], expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(shown[:, :skipped], parts[0][:, :skipped])


def test_rewards_are_divided_by_the_deviation_of_the_discounted_return() -> None:
    random, gamma, agents = np.random.default_rng(0), 0.9, 3
    scaler, seen, returns = RewardScaler(agents, gamma), [], np.zeros(agents)
    for _ in range(50):
        rewards = random.normal(5.0, 20.0, agents).astype(np.float32)
        ended = random.random(agents) < 0.2
        returns = returns * gamma + rewards
        seen.append(returns.copy())
        scaled = scaler.scaled(rewards, ended)
        expected = np.clip(rewards / np.sqrt(np.var(np.concatenate(seen)) + 1e-8), -10, 10)
        np.testing.assert_allclose(scaled, expected, rtol=1e-4)
        returns[ended] = 0.0


def test_agents_that_have_left_do_not_count_in_the_deviation_of_returns() -> None:
    random = np.random.default_rng(1)
    some, alone = RewardScaler(4, 0.9), RewardScaler(2, 0.9)
    acted = np.array([True, False, True, False])
    for _ in range(20):
        rewards = random.normal(0.0, 3.0, 4).astype(np.float32) * acted
        ended = np.zeros(4, np.bool_)
        scaled = some.scaled(rewards, ended, acted)
        np.testing.assert_allclose(scaled[acted], alone.scaled(rewards[acted], ended[acted]), rtol=1e-6)


@pytest.mark.parametrize("env", ["gymnasium:CartPole-v1", "gymnasium:Pendulum-v1"])
def test_statistics_survive_a_resume_and_the_weights_are_those_of_an_undisturbed_run(tmp_path: Path, env: str) -> None:
    given = {
        "env__name": env,
        "supervised__steps": 0,
        "policy__normalize_obs": True,
        "trainer__normalize_rewards": True,
        "trainer__checkpoint_interval": 4,
    }
    whole = run_training(small(tmp_path / "whole", **given))
    first = small(tmp_path / "parts", **given, trainer__total_timesteps=512)
    run_training(first)
    resumed = run_training(small(tmp_path / "parts", **given))

    states = [checkpoint.read(checkpoint.checkpoints(each.folder)[-1]) for each in (whole, resumed)]
    assert same(weights(whole.folder), weights(resumed.folder))
    assert torch.equal(states[0]["scaler"]["moments"], states[1]["scaler"]["moments"])
    assert states[0]["policy"]["normalizer.count"] == 1024
    assert states[0]["policy"]["normalizer.var"].ne(1).all()


def test_bytes_are_not_normalised_twice(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"policy.normalize_obs=True: extractor_hub_\d+ shows tokens"):
        run_training(small(tmp_path, policy__normalize_obs=True))


def test_an_infinite_observation_is_not_counted_and_no_checkpoint_has_it(tmp_path: Path) -> None:
    name = "gymnasium:toy_envs:toy/Infinite-v0"
    more = {"env__name": name, "env__num_envs": 4, "supervised__steps": 0, "trainer__checkpoint_interval": 1}
    run = small(tmp_path, **more, policy__normalize_obs=True)
    with pytest.raises(TrainError, match=r"after agent step 0, .* gave an observation that is not a finite number"):
        run_training(run)
    assert not list(tmp_path.rglob("*.pt"))
