"""PPO's loss, its statistics and its gradient in one kernel: for one choice without a mask, on the CPU.

torch receives loss and gradient and differentiates nothing. The formulas are those of `ppo.py`, which is used for
everything else; with 64 agents and minibatches of 256 a whole step takes a fifth longer with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from velodrome.training.compiled import inner, kernel
from velodrome.training.settings import PPOSettings

Floats = NDArray[np.float32]
Fill = Callable[[Floats, Floats, Floats], None]  # the gradients by logits and by values, and what the loss reports

_TINY = 1e-8
_COUNT = 6  # of the numbers reported


def ppo_loss_by_kernel(
    logits_BA: Tensor,
    values_B: Tensor,
    actions_B: Tensor,
    old_logprobs_B: Tensor,
    advantages_B: Tensor,
    returns_B: Tensor,
    old_values_B: Tensor,
    settings: PPOSettings,
) -> tuple[Tensor, Tensor]:
    """The loss, and the numbers `PPO_STATS` names as one tensor."""
    old = (actions_B, old_logprobs_B, advantages_B, returns_B, old_values_B)
    args: list[Any] = [each.detach().numpy() for each in (logits_BA, values_B, *old)]
    args += _spread(args[4]) if settings.normalize_advantages and len(values_B) > 1 else (0.0, 1.0)
    args += (settings.clip, settings.value_clip, settings.value_coef, settings.entropy_coef)
    loss, stats = _Fused.apply(logits_BA, values_B, lambda *out: _loss_and_gradient(*args, *out))  # type: ignore[no-untyped-call]
    return loss, stats


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits_BA: Tensor, values_B: Tensor, fill: Fill) -> tuple[Tensor, Tensor]:
        grad_BA, grad_B, stats = torch.empty(logits_BA.shape), torch.empty(values_B.shape), torch.zeros(_COUNT)
        fill(grad_BA.numpy(), grad_B.numpy(), stats.numpy())
        ctx.save_for_backward(grad_BA, grad_B)
        ctx.mark_non_differentiable(stats)
        return stats[0].clone(), stats

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad_BA, grad_B = ctx.saved_tensors
        return grads[0] * grad_BA, grads[0] * grad_B, None


@inner
def softmax_row(logits_A: Floats, probs_A: NDArray[np.float64]) -> float:
    """Write the softmax of a row; returns the logarithm of its denominator."""
    top = np.float64(logits_A[0])
    for logit in logits_A:
        top = max(top, np.float64(logit))
    total = 0.0
    for a in range(len(logits_A)):
        probs_A[a] = math.exp(logits_A[a] - top)
        total += probs_A[a]
    for a in range(len(logits_A)):
        probs_A[a] /= total
    return top + math.log(total)


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
