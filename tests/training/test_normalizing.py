"""Observations and rewards on one scale: against a plain computation, and through a checkpoint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.small_run import small
from velodrome.errors import InputError, TrainError
from velodrome.training.advantages import RewardScaler
from velodrome.training.loop import run_training
from velodrome.training.network.encoders import ObsNormalizer
from velodrome.training.run.train_folder import run_folder


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


def test_bytes_are_not_normalised_twice(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"policy.normalize_obs=True: extractor_hub_\d+ shows tokens"):
        run_training(small(tmp_path, policy__normalize_obs=True))


@pytest.mark.parametrize(("pays", "what"), [(False, "an observation"), (True, "a reward")])
def test_what_is_not_finite_is_not_counted_and_the_error_names_the_run_and_leaves_nothing(
    tmp_path: Path, pays: bool, what: str
) -> None:
    name = "gymnasium:tests.support.toy_envs:toy/Infinite-v0"
    more = {"env__name": name, "env__num_envs": 4, "supervised__steps": 0, "trainer__checkpoint_interval": 1}
    run = small(tmp_path, **more, env__options={"pays": pays}, policy__normalize_obs=True)
    with pytest.raises(TrainError, match=rf"^{run_folder(run)}: after agent step 0, {name} gave {what} that is not"):
        run_training(run)
    assert list(tmp_path.iterdir()) == []
