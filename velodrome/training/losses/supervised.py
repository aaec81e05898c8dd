"""Learning from a teacher: cross-entropy to the action it would have taken, and a critic fitted to the returns.

loss = coef * mean(-log p(teacher's action)) + value_coef * mean((v - R)^2)

Kickstarting is PPO with the cross-entropy to the teacher's action beside it, with a weight that falls to zero.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from velodrome.training.buffer import Minibatch
from velodrome.training.losses import Loss, annealed
from velodrome.training.network.distributions import Distribution

SUPERVISED_STATS = ("loss", "cross_entropy", "value_loss", "agreement")


class Supervised(Loss):
    """The first phase."""

    reports = SUPERVISED_STATS

    def __call__(self, batch: Minibatch, policy: Distribution, values_B: Tensor, step: int) -> tuple[Tensor, Tensor]:
        weights = self.term.settings.coef, self.term.settings.value_coef
        return supervised_loss(policy, values_B, batch.teacher_actions_B, batch.returns_B, *weights)


class Kickstart(Loss):
    """`supervised.kickstart_coef` and `supervised.kickstart_steps`. It reports nothing."""

    def __call__(self, batch: Minibatch, policy: Distribution, values_B: Tensor, step: int) -> tuple[Tensor, Tensor]:
        term = self.term
        coef = annealed(term.settings.kickstart_coef, 0.0, step - term.start, term.until - term.start)
        return -coef * policy.log_prob(batch.teacher_actions_B).mean(), values_B.new_empty(0)


def supervised_loss(
    policy: Distribution,
    values_B: Tensor,
    teacher_actions_B: Tensor,
    returns_B: Tensor,
    coef: float,
    value_coef: float,
) -> tuple[Tensor, Tensor]:
    """The loss, and the numbers `SUPERVISED_STATS` names as one tensor: nothing waits for the device."""
    cross_entropy = -policy.log_prob(teacher_actions_B).mean()
    value_loss = F.mse_loss(values_B, returns_B)
    loss = coef * cross_entropy + value_coef * value_loss
    with torch.no_grad():
        same = (policy.mode() == teacher_actions_B).view(len(values_B), -1).all(1)
        return loss, torch.stack((loss, cross_entropy, value_loss, same.float().mean()))
