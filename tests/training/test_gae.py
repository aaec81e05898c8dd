"""GAE against its definition, summed by hand, and against stable-baselines3."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray
from stable_baselines3.common.buffers import RolloutBuffer

from velodrome.training.advantages import explained_variance, gae

Rollout = dict[str, Any]


def a_rollout(seed: int, steps: int, columns: int, ending: float) -> Rollout:
    drawn = np.random.default_rng(seed)
    shape = (steps, columns)
    return {
        "rewards": drawn.normal(size=shape).astype(np.float32),
        "values": drawn.normal(size=shape).astype(np.float32),
        "terminals": drawn.random(shape) < ending,
        "truncations": drawn.random(shape) < ending,
        "final_values": drawn.normal(size=shape).astype(np.float32),
        "last_value": drawn.normal(size=columns).astype(np.float32),
    }


def ours(r: Rollout, gamma: float, lam: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    names = ("rewards", "values", "terminals", "truncations", "final_values", "last_value")
    advantages, returns = gae(*(torch.from_numpy(r[name]) for name in names), gamma, lam)
    return advantages.numpy(), returns.numpy()


def test_advantages_are_those_of_stable_baselines3() -> None:
    steps, columns, gamma, lam = 64, 8, 0.99, 0.95
    r = a_rollout(5, steps, columns, 0.05)
    r["truncations"] &= ~r["terminals"]
    over = r["terminals"] | r["truncations"]
    theirs = RolloutBuffer(
        steps, Box(-1, 1, (1,)), Discrete(2), device="cpu", gae_lambda=lam, gamma=gamma, n_envs=columns
    )
    # Theirs puts the value of what was cut off into the reward, and knows an end by the start that follows.
    theirs.rewards = r["rewards"] + gamma * r["final_values"] * r["truncations"]
    theirs.values = r["values"]
    theirs.episode_starts[1:] = over[:-1]
    theirs.compute_returns_and_advantage(torch.from_numpy(r["last_value"]), over[-1])

    advantages, returns = ours(r, gamma, lam)

    np.testing.assert_allclose(advantages, theirs.advantages, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(returns, theirs.returns, rtol=1e-5, atol=1e-5)


def test_explained_variance_is_one_for_perfect_values_and_nothing_for_a_constant() -> None:
    returns = torch.tensor([1.0, 2.0, 3.0])
    assert explained_variance(returns, returns).item() == 1.0
    assert explained_variance(torch.full((3,), 2.0), returns).item() == 0.0
    assert explained_variance(returns, torch.ones(3)).item() == 0.0
