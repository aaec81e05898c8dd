"""PPO's loss against its formula in loops, and against what stable-baselines3 logs and derives from the same data."""

from __future__ import annotations

from copy import deepcopy
from math import log
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.logger import Logger

from velodrome.training.losses.ppo import PPO_STATS, ppo_loss
from velodrome.training.losses.ppo_kernel import ppo_loss_by_kernel
from velodrome.training.network.distributions import Categorical
from velodrome.training.settings import PPOSettings

Sample = dict[str, Any]


def plain(logits_BA: torch.Tensor, *given: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return ppo_loss(Categorical(logits_BA, (logits_BA.shape[1],)), *given)


WAYS = pytest.mark.parametrize("way", [ppo_loss_by_kernel, plain], ids=["kernel", "plain"])
NAMES = ("logits", "values", "actions", "old_logprobs", "advantages", "returns", "old_values")


def a_minibatch(seed: int, size: int, num_actions: int) -> Sample:
    drawn = np.random.default_rng(seed)
    return {
        "logits": drawn.normal(size=(size, num_actions)),
        "values": drawn.normal(size=size),
        "actions": drawn.integers(0, num_actions, size),
        "old_logprobs": drawn.normal(-log(num_actions), 0.3, size),
        "advantages": drawn.normal(size=size),
        "returns": drawn.normal(size=size),
        "old_values": drawn.normal(size=size),
    }


def tensors(m: Sample) -> list[torch.Tensor]:
    made = [torch.from_numpy(np.asarray(m[name], np.int64 if name == "actions" else np.float32)) for name in NAMES]
    made[0].requires_grad_()
    made[1].requires_grad_()
    return made


class Kept(Logger):
    """Keeps what stable-baselines3 says."""

    def __init__(self) -> None:
        super().__init__(None, [])


@WAYS
@pytest.mark.parametrize("normalized", [True, False])
def test_the_loss_and_its_gradient_are_those_of_stable_baselines3(way: Any, normalized: bool) -> None:
    steps, drawn = 64, np.random.default_rng(3)
    theirs = PPO(
        "MlpPolicy",
        gymnasium.make("CartPole-v1"),
        n_steps=steps,
        batch_size=steps,
        n_epochs=1,
        ent_coef=0.02,
        vf_coef=0.7,
        max_grad_norm=1e9,
        normalize_advantage=normalized,
        device="cpu",
        seed=0,
    )
    logger = Kept()
    theirs.set_logger(logger)
    held = theirs.rollout_buffer
    for name in ("values", "advantages", "returns"):
        setattr(held, name, drawn.normal(size=(steps, 1)).astype(np.float32))
    held.log_probs = drawn.normal(-log(2), 0.3, (steps, 1)).astype(np.float32)
    held.observations = drawn.normal(size=(steps, 1, 4)).astype(np.float32)
    held.actions = drawn.integers(0, 2, (steps, 1, 1)).astype(np.float32)
    held.full = True
    policy = deepcopy(theirs.policy)
    result = {name: torch.from_numpy(getattr(held, name).reshape(-1)) for name in ("log_probs", "values")}
    result |= {name: torch.from_numpy(getattr(held, name).reshape(-1)) for name in ("advantages", "returns")}
    obs, actions = torch.from_numpy(held.observations[:, 0]), torch.from_numpy(held.actions.reshape(-1)).long()
    theirs.train()

    s = PPOSettings(value_clip=0, entropy_coef=0.02, value_coef=0.7, normalize_advantages=normalized)
    logits = policy.get_distribution(obs).distribution.logits
    values = policy.predict_values(obs).flatten()
    loss, stats = way(
        logits, values, actions, result["log_probs"], result["advantages"], result["returns"], result["values"], s
    )
    loss.backward()

    said = logger.name_to_value
    assert dict(zip(PPO_STATS, stats.tolist(), strict=True)) == pytest.approx(
        {
            "loss": said["train/loss"],
            "policy_loss": said["train/policy_gradient_loss"],
            "value_loss": said["train/value_loss"],
            "entropy": -said["train/entropy_loss"],
            "approx_kl": said["train/approx_kl"],
            "clip_fraction": said["train/clip_fraction"],
        },
        rel=1e-4,
        abs=1e-6,
    )
    assert said["train/clip_fraction"] > 0.2
    for (name, ours), other in zip(policy.named_parameters(), theirs.policy.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, other.grad, rtol=1e-4, atol=1e-6, msg=name)


@WAYS
def test_a_value_beyond_its_clip_is_pulled_back_but_not_pushed_on(way: Any) -> None:
    """Both moved 1 from the old value with a clip of 0.2: one towards the return, which is enough; one away from it."""
    m = a_minibatch(0, 2, 3) | {
        "values": np.array([1.0, 1.0]),
        "old_values": np.array([0.0, 0.0]),
        "returns": np.array([3.0, -3.0]),
    }
    given = tensors(m)

    way(*given, PPOSettings(value_coef=1.0, value_clip=0.2))[0].backward()

    assert given[1].grad is not None
    assert given[1].grad.tolist() == [0.0, 4.0]
