"""What the outputs of a policy mean: probabilities of options, or Gaussians over numbers.

Every random number comes from the generator that is passed in. An option that a mask forbids has no probability.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from velodrome.training.envs.interface import ActionSpace

_HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)
_LEAST = -1e4  # log-probability: finite, and no probability all the same
_BELOW_ONE = 1 - 2**-22  # so that rounding never leads to an option without probability


class Distribution(Protocol):
    """Over the actions of B agents."""

    def sample(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Actions, and their log-probabilities."""
        ...

    def mode(self) -> Tensor:
        """The likeliest actions."""
        ...

    def log_prob(self, actions_B: Tensor) -> Tensor: ...

    def entropy(self) -> Tensor: ...


class Categorical:
    """One choice (`sizes` is one number) or several that are independent of each other.

    `logits_BA` are those of all options, side by side; `mask_BA` is True where an option is allowed.
    """

    def __init__(self, logits_BA: Tensor, sizes: tuple[int, ...], mask_BA: Tensor | None = None) -> None:
        self.logits_BA = logits_BA if mask_BA is None else logits_BA.masked_fill(~mask_BA, -math.inf)
        self._sizes = sizes
        self.single = len(sizes) == 1
        self.plain = mask_BA is None and self.single

    @cached_property
    def _log_probs(self) -> list[Tensor]:
        with torch.enable_grad():  # the first caller may need no gradient, the next one does
            # down columns: along rows of a few options takes five times as long
            return [part.t().log_softmax(0).t() for part in self._parts()]

    def _parts(self) -> list[Tensor]:
        return [self.logits_BA] if self.single else list(torch.split(self.logits_BA, list(self._sizes), 1))

    def _joined(self, parts: list[Tensor]) -> Tensor:
        return parts[0] if len(parts) == 1 else torch.stack(parts, 1)

    def sample(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        actions, total_B = [], None
        for log_probs_BA in self._log_probs:
            uniform_B = torch.rand(len(log_probs_BA), generator=generator, device=log_probs_BA.device)
            actions.append(picked(log_probs_BA, uniform_B))
            chosen_B = log_probs_BA.gather(1, actions[-1].unsqueeze(1)).squeeze(1)
            total_B = chosen_B if total_B is None else total_B + chosen_B
        assert total_B is not None
        return self._joined(actions), total_B

    def mode(self) -> Tensor:
        return self._joined([part.argmax(1) for part in self._parts()])

    def log_prob(self, actions_B: Tensor) -> Tensor:
        columns = [actions_B.unsqueeze(1)] if self.single else torch.split(actions_B, 1, 1)
        parts = [each.gather(1, column) for each, column in zip(self._log_probs, columns, strict=True)]
        return parts[0].squeeze(1) if self.single else torch.cat(parts, 1).sum(1)

    def entropy(self) -> Tensor:
        parts = [(each.exp() * each.clamp(min=_LEAST)).sum(1) for each in self._log_probs]
        return -torch.stack(parts).sum(0)


def picked(log_probs_BA: Tensor, uniform_B: Tensor) -> Tensor:
    """The options picked by numbers from [0, 1), by their place among the cumulated probabilities."""
    below_BA = log_probs_BA.exp().cumsum(1)
    place_B1 = uniform_B.unsqueeze(1) * (below_BA[:, -1:] * _BELOW_ONE)
    index_B1 = torch.searchsorted(below_BA, place_B1, right=True)
    return index_B1.clamp_(max=below_BA.shape[1] - 1).squeeze(1)  # of outputs that are not numbers: any


class Gaussian:
    """Numbers that are independent of each other; `outputs_BO` holds their means, then the logs of their deviations."""

    def __init__(self, outputs_BO: Tensor) -> None:
        self.mean_BD, self.log_std_BD = outputs_BO.chunk(2, 1)

    def sample(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        noise_BD = torch.randn(self.mean_BD.shape, generator=generator, device=self.mean_BD.device)
        actions_BD = self.mean_BD + self.log_std_BD.exp() * noise_BD
        return actions_BD, self.log_prob(actions_BD)

    def mode(self) -> Tensor:
        return self.mean_BD

    def log_prob(self, actions_B: Tensor) -> Tensor:
        scaled_BD = (actions_B - self.mean_BD) * (-self.log_std_BD).exp()
        return -(0.5 * scaled_BD.square() + self.log_std_BD + _HALF_LOG_TAU).sum(1)

    def entropy(self) -> Tensor:
        return (self.log_std_BD + 0.5 + _HALF_LOG_TAU).sum(1)


def bounded(actions_B: Tensor, space: ActionSpace) -> Tensor:
    """Actions as the environment takes them.

    The policy acts in numbers around zero. Where both bounds are finite, -1 and 1 mean the bounds; otherwise a number
    is only clipped. Choices stay as they are.
    """
    if not space.continuous:
        return actions_B
    spans = [
        ((high - low) / 2, (high + low) / 2) if math.isfinite(high - low) else (1.0, 0.0)
        for low, high in zip(space.low, space.high, strict=True)
    ]
    scale, shift, low, high = (
        actions_B.new_tensor(each) for each in (*zip(*spans, strict=True), space.low, space.high)
    )
    return (actions_B * scale + shift).clamp(low, high)
