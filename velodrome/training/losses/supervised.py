"""Learning from a teacher: cross-entropy to the action it would have taken, and a critic fitted to the returns.

loss = coef * mean(-log p(teacher's action)) + value_coef * mean((v - R)^2)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from velodrome.training.buffer import Minibatch
from velodrome.training.kernels.compiled import kernel
from velodrome.training.losses import Loss, annealed
from velodrome.training.losses.fused import Floats, fused, softmax_row

SUPERVISED_STATS = ("loss", "cross_entropy", "value_loss", "agreement")


class Supervised(Loss):
    """The first phase."""

    reports = SUPERVISED_STATS

    def __call__(self, batch: Minibatch, logits_BA: Tensor, values_B: Tensor, step: int) -> tuple[Tensor, Tensor]:
        settings, term = self.term.settings, self.term
        coef = annealed(settings.coef, settings.end_coef, step - term.start, term.until - term.start)
        targets = (batch.teacher_actions_B, batch.returns_B)
        return supervised_loss(logits_BA, values_B, *targets, coef, settings.value_coef)


def supervised_loss(
    logits_BA: Tensor,
    values_B: Tensor,
    teacher_actions_B: Tensor,
    returns_B: Tensor,
    coef: float,
    value_coef: float,
) -> tuple[Tensor, Tensor]:
    """The loss, and the numbers `SUPERVISED_STATS` names as one tensor: nothing waits for the device."""
    tensors = (logits_BA, values_B, teacher_actions_B, returns_B)
    if logits_BA.device.type != "cpu":
        return _derived(*tensors, coef, value_coef)
    args: list[Any] = [*(each.detach().numpy() for each in tensors), coef, value_coef]
    return fused(logits_BA, values_B, len(SUPERVISED_STATS), lambda *out: _loss_and_gradient(*args, *out))


def _derived(
    logits_BA: Tensor,
    values_B: Tensor,
    teacher_actions_B: Tensor,
    returns_B: Tensor,
    coef: float,
    value_coef: float,
) -> tuple[Tensor, Tensor]:
    """For CUDA: torch differentiates."""
    cross_entropy = F.cross_entropy(logits_BA, teacher_actions_B)
    value_loss = F.mse_loss(values_B, returns_B)
    loss = coef * cross_entropy + value_coef * value_loss
    with torch.no_grad():
        agreement = (logits_BA.argmax(1) == teacher_actions_B).float().mean()
        return loss, torch.stack((loss, cross_entropy, value_loss, agreement))


@kernel
def _loss_and_gradient(
    logits_BA: Floats,
    values_B: Floats,
    teacher_actions_B: NDArray[np.int64],
    returns_B: Floats,
    coef: float,
    value_coef: float,
    grad_BA: Floats,
    grad_B: Floats,
    stats: Floats,
) -> None:
    size, num_actions = logits_BA.shape
    probs = np.empty(num_actions)
    cross_entropy, square, alike = 0.0, 0.0, 0
    for b in range(size):
        log_total = softmax_row(logits_BA[b], probs)
        action = teacher_actions_B[b]
        cross_entropy += log_total - logits_BA[b, action]
        alike += logits_BA[b].argmax() == action
        for a in range(num_actions):
            grad_BA[b, a] = coef * (probs[a] - (1.0 if a == action else 0.0)) / size
        error = np.float64(values_B[b]) - returns_B[b]
        square += error * error
        grad_B[b] = 2 * value_coef * error / size
    stats[0] = coef * cross_entropy / size + value_coef * square / size
    stats[1] = cross_entropy / size
    stats[2] = square / size
    stats[3] = alike / size
