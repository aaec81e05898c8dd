"""The student's layers as one function: the same numbers and gradients as module by module."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from velodrome.training.envs.make import make_env
from velodrome.training.policy import Policy
from velodrome.training.settings import EnvSettings, PolicySettings


def module_by_module(policy: Policy, obs: Tensor) -> tuple[Tensor, Tensor]:
    bend = torch.tanh if policy.critic else torch.relu
    said = policy.heads(bend(policy.core(bend(policy.encoder(obs)))))
    if policy.critic:
        return said, policy.critic(obs)
    return said[:, :-1], said[:, -1]


@pytest.mark.parametrize("name", ["extractor_hub_30", "gymnasium:CartPole-v1"])
def test_logits_values_and_gradients_are_those_of_the_modules(name: str):
    env = make_env(EnvSettings(name=name, num_envs=5), seed=1)
    policy = Policy(PolicySettings(hidden=16), env.spec, torch.Generator().manual_seed(1))
    obs = torch.from_numpy(env.obs.copy())
    found = []
    for said in (lambda: policy(obs)[:2], lambda: module_by_module(policy, obs)):
        policy.zero_grad()
        logits, values = said()
        (logits.square().sum() + (logits[:, 0] * 3).sum() + values.sin().sum()).backward()
        grads = [weight.grad.clone() for weight in policy.parameters() if weight.grad is not None]
        found.append([logits.detach(), values.detach(), *grads])
    assert len(found[0]) == 2 + len(list(policy.parameters()))
    torch.testing.assert_close(found[0], found[1])
    with torch.no_grad():
        torch.testing.assert_close(list(policy(obs)[:2]), found[1][:2])
