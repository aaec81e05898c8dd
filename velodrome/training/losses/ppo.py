"""PPO's clipped objective, as a pure function of one minibatch.

    loss = -mean(min(r A, clip(r) A)) + value_coef * mean(max((v - R)^2, (clipped v - R)^2)) - entropy_coef * mean(H)

with r = exp(logprob - old logprob) and v clipped to within `value_clip` of the old value. On the CPU one kernel
computes the loss, its statistics and its gradient; on CUDA torch differentiates the same formulas.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from velodrome.training.buffer import Minibatch
from velodrome.training.kernels.compiled import kernel
from velodrome.training.losses import Loss
from velodrome.training.losses.fused import Floats, fused, softmax_row
from velodrome.training.settings import PPOSettings

PPO_STATS = ("loss", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")

_TINY = 1e-8


class PPO(Loss):
    """The second phase."""

    reports = PPO_STATS

    def __call__(self, batch: Minibatch, logits_BA: Tensor, values_B: Tensor, step: int) -> tuple[Tensor, Tensor]:
        old = (batch.actions_B, batch.logprobs_B, batch.advantages_B, batch.returns_B, batch.values_B)
        return ppo_loss(logits_BA, values_B, *old, self.term.settings)

    def ends_update(self, reported: Tensor) -> bool:
        target: float = self.term.settings.target_kl
        return target > 0 and float(reported[PPO_STATS.index("approx_kl")]) > 1.5 * target


def ppo_loss(
    logits_BA: Tensor,
    values_B: Tensor,
    actions_B: Tensor,
    old_logprobs_B: Tensor,
    advantages_B: Tensor,
    returns_B: Tensor,
    old_values_B: Tensor,
    settings: PPOSettings,
) -> tuple[Tensor, Tensor]:
    """The loss, and the numbers `PPO_STATS` names as one tensor: nothing waits for the device."""
    old = (actions_B, old_logprobs_B, advantages_B, returns_B, old_values_B)
    if logits_BA.device.type != "cpu":
        return _derived(logits_BA, values_B, *old, settings)
    args: list[Any] = [each.detach().numpy() for each in (logits_BA, values_B, *old)]
    args += _spread(args[4]) if settings.normalize_advantages and len(values_B) > 1 else (0.0, 1.0)
    args += (settings.clip, settings.value_clip, settings.value_coef, settings.entropy_coef)
    return fused(logits_BA, values_B, len(PPO_STATS), lambda *out: _loss_and_gradient(*args, *out))


def _derived(
    logits_BA: Tensor,
    values_B: Tensor,
    actions_B: Tensor,
    old_logprobs_B: Tensor,
    advantages_B: Tensor,
    returns_B: Tensor,
    old_values_B: Tensor,
    settings: PPOSettings,
) -> tuple[Tensor, Tensor]:
    """For CUDA: torch differentiates."""
    if settings.normalize_advantages and len(advantages_B) > 1:
        advantages_B = (advantages_B - advantages_B.mean()) / (advantages_B.std() + _TINY)
    logprobs_BA = F.log_softmax(logits_BA, 1)
    log_ratio_B = logprobs_BA.gather(1, actions_B.unsqueeze(1)).squeeze(1) - old_logprobs_B
    ratio_B = log_ratio_B.exp()
    clipped_B = ratio_B.clamp(1 - settings.clip, 1 + settings.clip)
    policy_loss = -torch.minimum(ratio_B * advantages_B, clipped_B * advantages_B).mean()
    errors_B = (values_B - returns_B).square()
    if settings.value_clip > 0:
        near_B = old_values_B + (values_B - old_values_B).clamp(-settings.value_clip, settings.value_clip)
        errors_B = torch.maximum(errors_B, (near_B - returns_B).square())
    value_loss = errors_B.mean()
    entropy = -(logprobs_BA.exp() * logprobs_BA).sum(1).mean()
    loss = policy_loss + settings.value_coef * value_loss - settings.entropy_coef * entropy
    with torch.no_grad():
        approx_kl = (ratio_B - 1 - log_ratio_B).mean()
        clip_fraction = ((ratio_B - 1).abs() > settings.clip).float().mean()
        stats = torch.stack((loss, policy_loss, value_loss, entropy, approx_kl, clip_fraction))
    return loss, stats


@kernel
def _spread(advantages_B: Floats) -> tuple[float, float]:
    """The mean, and one over the standard deviation."""
    mean = 0.0
    for advantage in advantages_B:
        mean += advantage
    mean /= len(advantages_B)
    square = 0.0
    for advantage in advantages_B:
        square += (advantage - mean) ** 2
    return mean, 1 / (math.sqrt(square / (len(advantages_B) - 1)) + _TINY)


@kernel
def _policy_term(log_ratio: float, advantage: float, clip: float, sums: NDArray[np.float64]) -> float:
    """Add one sample to the sums; what its loss gains with the logarithm of its probability."""
    ratio = math.exp(log_ratio)
    clipped = min(max(ratio, 1 - clip), 1 + clip)
    free, held = -advantage * ratio, -advantage * clipped
    sums[1] += max(free, held)
    sums[4] += ratio - 1 - log_ratio
    sums[5] += abs(ratio - 1) > clip
    return free if free >= held else 0.0


@kernel
def _value_term(value: float, target: float, old: float, clip: float, sums: NDArray[np.float64]) -> float:
    """Add one sample to the sums; what its squared error gains with the value."""
    error = value - target
    if clip > 0 and abs(value - old) > clip:
        near = (old + clip if value > old else old - clip) - target
        if near * near > error * error:
            sums[2] += near * near
            return 0.0
    sums[2] += error * error
    return 2 * error


@kernel
def _loss_and_gradient(
    logits_BA: Floats,
    values_B: Floats,
    actions_B: NDArray[np.int64],
    old_logprobs_B: Floats,
    advantages_B: Floats,
    returns_B: Floats,
    old_values_B: Floats,
    mean: float,
    scale: float,
    clip: float,
    value_clip: float,
    value_coef: float,
    entropy_coef: float,
    grad_BA: Floats,
    grad_B: Floats,
    stats: Floats,
) -> None:
    size, num_actions = logits_BA.shape
    probs = np.empty(num_actions)
    sums = np.zeros(6)
    for b in range(size):
        log_total = softmax_row(logits_BA[b], probs)
        log_ratio = logits_BA[b, actions_B[b]] - log_total - old_logprobs_B[b]
        slope = _policy_term(log_ratio, (advantages_B[b] - mean) * scale, clip, sums)
        entropy = log_total
        for a in range(num_actions):
            entropy -= probs[a] * logits_BA[b, a]
        sums[3] += entropy
        for a in range(num_actions):
            own = 1.0 if a == actions_B[b] else 0.0
            bonus = probs[a] * (logits_BA[b, a] - log_total + entropy)
            grad_BA[b, a] = (slope * (own - probs[a]) + entropy_coef * bonus) / size
        grad_B[b] = value_coef * _value_term(values_B[b], returns_B[b], old_values_B[b], value_clip, sums) / size
    sums /= size
    sums[0] = sums[1] + value_coef * sums[2] - entropy_coef * sums[3]
    for k in range(6):
        stats[k] = sums[k]
