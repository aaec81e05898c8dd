"""PPO's clipped objective, as a pure function of one minibatch.

    loss = -mean(min(r A, clip(r) A)) + value_coef * mean(max((v - R)^2, (clipped v - R)^2)) - entropy_coef * mean(H)

with r = exp(logprob - old logprob) and v clipped to within `value_clip` of the old value.
"""

from __future__ import annotations

import torch
from torch import Tensor

from velodrome.training.buffer import Minibatch
from velodrome.training.losses import Loss
from velodrome.training.losses.ppo_kernel import ppo_loss_by_kernel
from velodrome.training.network.distributions import Categorical, Distribution
from velodrome.training.settings import PPOSettings

PPO_STATS = ("loss", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")

_TINY = 1e-8


class PPO(Loss):
    """The second phase."""

    reports = PPO_STATS

    def __call__(self, batch: Minibatch, policy: Distribution, values_B: Tensor, step: int) -> tuple[Tensor, Tensor]:
        old = (batch.actions_B, batch.logprobs_B, batch.advantages_B, batch.returns_B, batch.values_B)
        if isinstance(policy, Categorical) and policy.plain and values_B.device.type == "cpu":
            return ppo_loss_by_kernel(policy.logits_BA, values_B, *old, self.term.settings)
        return ppo_loss(policy, values_B, *old, self.term.settings)

    def ends_update(self, reported: Tensor) -> bool:
        target: float = self.term.settings.target_kl
        return target > 0 and float(reported[PPO_STATS.index("approx_kl")]) > 1.5 * target


def ppo_loss(
    policy: Distribution,
    values_B: Tensor,
    actions_B: Tensor,
    old_logprobs_B: Tensor,
    advantages_B: Tensor,
    returns_B: Tensor,
    old_values_B: Tensor,
    settings: PPOSettings,
) -> tuple[Tensor, Tensor]:
    """The loss, and the numbers `PPO_STATS` names as one tensor: nothing waits for the device."""
    if settings.normalize_advantages and len(advantages_B) > 1:
        advantages_B = (advantages_B - advantages_B.mean()) / (advantages_B.std() + _TINY)
    log_ratio_B = policy.log_prob(actions_B) - old_logprobs_B
    ratio_B = log_ratio_B.exp()
    clipped_B = ratio_B.clamp(1 - settings.clip, 1 + settings.clip)
    policy_loss = -torch.minimum(ratio_B * advantages_B, clipped_B * advantages_B).mean()
    errors_B = (values_B - returns_B).square()
    if settings.value_clip > 0:
        near_B = old_values_B + (values_B - old_values_B).clamp(-settings.value_clip, settings.value_clip)
        errors_B = torch.maximum(errors_B, (near_B - returns_B).square())
    value_loss = errors_B.mean()
    entropy = policy.entropy().mean()
    loss = policy_loss + settings.value_coef * value_loss - settings.entropy_coef * entropy
    with torch.no_grad():
        approx_kl = (ratio_B - 1 - log_ratio_B).mean()
        clip_fraction = ((ratio_B - 1).abs() > settings.clip).float().mean()
        stats = torch.stack((loss, policy_loss, value_loss, entropy, approx_kl, clip_fraction))
    return loss, stats
