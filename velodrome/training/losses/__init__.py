"""What is minimised. A loss is one file here, or in a user's recipe, and one line in the recipe.

The settings of a loss name its class (`LossTerm.implementation`); the loop imports it, and knows nothing else of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar

from torch import Tensor

from velodrome.training.buffer import Minibatch
from velodrome.training.network.distributions import Distribution
from velodrome.training.settings import LossTerm


class Loss:
    """A term of the loss, made once per run from its settings."""

    reports: ClassVar[tuple[str, ...]] = ()  # names of the numbers it reports, as in metrics.jsonl; "loss" is the sum's

    def __init__(self, term: LossTerm) -> None:
        self.term = term

    def __call__(self, batch: Minibatch, policy: Distribution, values_B: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """The loss of a minibatch at an agent step, and what it reports as one tensor: nothing waits for the device.

        `policy` is the student's distribution of actions now, `values_B` are its values now.
        """
        raise NotImplementedError

    def ends_update(self, reported: Tensor) -> bool:
        """Whether the passes over this rollout end after a pass whose last minibatch reported this."""
        return False


def make_loss(term: LossTerm) -> Loss:
    """The loss that a term names."""
    module, _, name = term.implementation.partition(":")
    loss: Any = getattr(import_module(module), name)(term)
    assert isinstance(loss, Loss), f"{term.implementation} is not a velodrome.training.losses.Loss"
    return loss


def annealed(start: float, end: float, done: int, steps: int) -> float:
    """On the line from `start` to `end`, `done` of `steps` along it; beyond the line, its end."""
    return end if done >= steps else start + (end - start) * (done / steps)
