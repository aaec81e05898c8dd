"""Generalised advantage estimation, as a pure function of one rollout.

A truncated episode is bootstrapped from the value of its last observation, a terminated one is not; nothing passes
from one episode into the one before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from velodrome.training.kernels.compiled import kernel

Floats = NDArray[np.float32]


def gae(
    rewards_TN: Tensor,
    values_TN: Tensor,
    terminals_TN: Tensor,
    truncations_TN: Tensor,
    final_values_TN: Tensor,
    last_value_N: Tensor,
    gamma: float,
    lam: float,
) -> tuple[Tensor, Tensor]:
    """Advantages and returns. `final_values_TN` counts where an episode was truncated; `last_value_N` at the end."""
    tensors = (rewards_TN, values_TN, terminals_TN, truncations_TN, final_values_TN, last_value_N)
    if rewards_TN.device.type != "cpu":
        return _step_by_step(*tensors, gamma, lam)
    advantages_TN, returns_TN = torch.empty_like(rewards_TN), torch.empty_like(rewards_TN)
    args: list[Any] = [each.numpy() for each in (*tensors, advantages_TN, returns_TN)]
    args += [np.float32(gamma), np.float32(lam)]
    _backwards(*args)
    return advantages_TN, returns_TN


def _step_by_step(
    rewards_TN: Tensor,
    values_TN: Tensor,
    terminals_TN: Tensor,
    truncations_TN: Tensor,
    final_values_TN: Tensor,
    last_value_N: Tensor,
    gamma: float,
    lam: float,
) -> tuple[Tensor, Tensor]:
    """For CUDA: vectorised but for the recursion."""
    following_TN = torch.cat((values_TN[1:], last_value_N.unsqueeze(0)))
    following_TN = torch.where(truncations_TN, final_values_TN, following_TN).masked_fill(terminals_TN, 0)
    advantages_TN = rewards_TN + gamma * following_TN - values_TN
    through_TN = gamma * lam * ~(terminals_TN | truncations_TN)
    for t in range(len(rewards_TN) - 2, -1, -1):
        advantages_TN[t].addcmul_(through_TN[t], advantages_TN[t + 1])
    return advantages_TN, advantages_TN + values_TN


def explained_variance(values: Tensor, returns: Tensor) -> Tensor:
    """Share of the returns' variance that the values predicted; 0 if there is none."""
    variance = returns.var(unbiased=False)
    return torch.where(variance > 0, 1 - (returns - values).var(unbiased=False) / variance, 0.0)


@kernel
def _backwards(
    rewards_TN: Floats,
    values_TN: Floats,
    terminals_TN: NDArray[np.bool_],
    truncations_TN: NDArray[np.bool_],
    final_values_TN: Floats,
    last_value_N: Floats,
    advantages_TN: Floats,
    returns_TN: Floats,
    gamma: np.float32,
    lam: np.float32,
) -> None:
    steps, columns = rewards_TN.shape
    none = np.float32(0)
    for t in range(steps - 1, -1, -1):
        for n in range(columns):
            following, through = none, none
            if truncations_TN[t, n]:
                following = final_values_TN[t, n]
            elif t == steps - 1:
                following = last_value_N[n]
            else:
                following, through = values_TN[t + 1, n], advantages_TN[t + 1, n]
            if terminals_TN[t, n]:
                following, through = none, none
            value = values_TN[t, n]
            advantages_TN[t, n] = rewards_TN[t, n] + gamma * following - value + gamma * lam * through
            returns_TN[t, n] = advantages_TN[t, n] + value
