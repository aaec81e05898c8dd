"""The teacher's cross-entropy kept during the first steps of PPO, with a weight that falls to zero."""

from __future__ import annotations

from torch import Tensor

from velodrome.training.buffer import Minibatch
from velodrome.training.distributions import Distribution
from velodrome.training.losses import Loss, annealed


class Keep(Loss):
    """`supervised.keep_coef` and `supervised.keep_steps`. Reports nothing of its own."""

    def __call__(self, batch: Minibatch, policy: Distribution, values_B: Tensor, step: int) -> tuple[Tensor, Tensor]:
        term = self.term
        coef = annealed(term.settings.keep_coef, 0.0, step - term.start, term.until - term.start)
        return -coef * policy.log_prob(batch.teacher_actions_B).mean(), values_B.new_empty(0)
