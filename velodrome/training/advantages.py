"""Generalised advantage estimation, as a pure function of one rollout, and rewards scaled by their returns.

A truncated episode is bootstrapped from the value of its last observation, a terminated one is not; nothing passes
from one episode into the one before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_LARGEST_REWARD = 10.0  # after scaling


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


class RewardScaler:
    """Divides rewards by the deviation of the discounted return so far; their sign and zero stay."""

    def __init__(self, agents: int, gamma: float) -> None:
        self._gamma = gamma
        self._returns_N = np.zeros(agents)
        self._moments = np.zeros(3)  # count, mean, mean square distance from it

    def scaled(self, rewards_N: NDArray[np.float32], ended_N: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Count a step, then scale its rewards."""
        self._returns_N = self._returns_N * self._gamma + rewards_N
        returns = self._returns_N
        count, mean, var = self._moments
        new, total = len(returns), count + len(returns)
        apart = returns.mean() - mean
        square = var * count + returns.var() * new + apart * apart * count * new / total
        self._moments[:] = total, mean + apart * new / total, square / total
        self._returns_N[ended_N] = 0.0
        scaled = rewards_N / np.sqrt(self._moments[2] + 1e-8)
        clipped: NDArray[np.float32] = np.clip(scaled, -_LARGEST_REWARD, _LARGEST_REWARD).astype(np.float32)
        return clipped

    def reset(self) -> None:
        """All episodes start over; the statistics stay."""
        self._returns_N[:] = 0.0

    def state(self) -> dict[str, NDArray[Any]]:
        return {"returns": self._returns_N.copy(), "moments": self._moments.copy()}

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        self._returns_N[:] = state["returns"]
        self._moments[:] = state["moments"]
