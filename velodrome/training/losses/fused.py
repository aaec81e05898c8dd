"""A loss whose kernel writes its gradient as well: torch is handed both, and derives nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from velodrome.training.losses.softmax import Floats

Fill = Callable[[Floats, Floats, Floats], None]  # the gradients by logits and by values, and what the loss tells


def fused(logits_BA: Tensor, values_B: Tensor, told: int, fill: Fill) -> tuple[Tensor, Tensor]:
    """The loss, which `fill` puts first, and all `told` numbers as one tensor."""
    loss, stats = _Fused.apply(logits_BA, values_B, told, fill)  # type: ignore[no-untyped-call]
    return loss, stats


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits_BA: Tensor, values_B: Tensor, told: int, fill: Fill) -> tuple[Tensor, Tensor]:
        grad_BA, grad_B, stats = torch.empty(logits_BA.shape), torch.empty(values_B.shape), torch.zeros(told)
        fill(grad_BA.numpy(), grad_B.numpy(), stats.numpy())
        ctx.save_for_backward(grad_BA, grad_B)
        ctx.mark_non_differentiable(stats)
        return stats[0].clone(), stats

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad_BA, grad_B = ctx.saved_tensors
        return grads[0] * grad_BA, grads[0] * grad_B, None, None
