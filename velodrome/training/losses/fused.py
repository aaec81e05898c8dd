"""For losses whose kernel also writes the gradient: torch receives both and differentiates nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from velodrome.training.kernels.compiled import inner

Floats = NDArray[np.float32]

Fill = Callable[[Floats, Floats, Floats], None]  # the gradients by logits and by values, and what the loss reports


def fused(logits_BA: Tensor, values_B: Tensor, count: int, fill: Fill) -> tuple[Tensor, Tensor]:
    """The loss, which `fill` puts first, and all `count` numbers as one tensor."""
    loss, stats = _Fused.apply(logits_BA, values_B, count, fill)  # type: ignore[no-untyped-call]
    return loss, stats


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits_BA: Tensor, values_B: Tensor, count: int, fill: Fill) -> tuple[Tensor, Tensor]:
        grad_BA, grad_B, stats = torch.empty(logits_BA.shape), torch.empty(values_B.shape), torch.zeros(count)
        fill(grad_BA.numpy(), grad_B.numpy(), stats.numpy())
        ctx.save_for_backward(grad_BA, grad_B)
        ctx.mark_non_differentiable(stats)
        return stats[0].clone(), stats

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad_BA, grad_B = ctx.saved_tensors
        return grads[0] * grad_BA, grads[0] * grad_B, None, None


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
