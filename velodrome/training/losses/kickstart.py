"""Kickstarting: PPO with the cross-entropy to the teacher's action beside it, with a weight that falls to zero."""

from __future__ import annotations

from torch import Tensor

from velodrome.training.buffer import Minibatch
from velodrome.training.losses import Loss, annealed
from velodrome.training.network.distributions import Distribution


class Kickstart(Loss):
    """`supervised.kickstart_coef` and `supervised.kickstart_steps`. It reports nothing."""

    def __call__(self, batch: Minibatch, policy: Distribution, values_B: Tensor, step: int) -> tuple[Tensor, Tensor]:
        term = self.term
        coef = annealed(term.settings.kickstart_coef, 0.0, step - term.start, term.until - term.start)
        return -coef * policy.log_prob(batch.teacher_actions_B).mean(), values_B.new_empty(0)
