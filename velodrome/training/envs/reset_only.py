"""Arrays and counts of environments whose state cannot be saved: they are reset at every checkpoint."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from velodrome.errors import InputError
from velodrome.training.envs.env_arrays import EnvArrays, allocate_arrays
from velodrome.training.envs.interface import Ended, Spec


class ResetOnly:
    """Subclasses step, write into the arrays, and call `_count`."""

    def __init__(self, spec: Spec, rows: EnvArrays | None = None) -> None:
        rows = rows or allocate_arrays(spec, np.zeros)
        self.spec = spec
        self.obs = rows.obs
        self.action_mask = rows.action_mask if spec.actions.masked else None
        self.alive = rows.alive if spec.leavers else None
        self.final_obs = rows.final_obs
        self.rewards = rows.rewards
        self.terminals = rows.terminals
        self.truncations = rows.truncations
        self._begin_counting()

    def _begin_counting(self) -> None:
        self._returns_E = np.zeros(self.spec.num_envs)
        self._lengths_E = np.zeros(self.spec.num_envs, np.int64)
        self._ended: list[tuple[int, float, int]] = []
        for array in (self.rewards, self.terminals, self.truncations):
            array[:] = 0

    def _count(self) -> list[int]:
        """Count a step; returns the environments whose episode has ended."""
        self._returns_E += self.rewards.reshape(self.spec.num_envs, -1).mean(1)
        self._lengths_E += 1
        over = np.flatnonzero((self.terminals | self.truncations).reshape(self.spec.num_envs, -1).all(1)).tolist()
        for e in over:
            self._ended.append((e, float(self._returns_E[e]), int(self._lengths_E[e])))
            self._returns_E[e] = self._lengths_E[e] = 0
        return over

    def ended(self) -> Ended:
        envs, returns, lengths = zip(*self._ended, strict=True) if self._ended else ((), (), ())
        self._ended = []
        return Ended(np.array(envs, np.int64), np.array(returns, np.float64), np.array(lengths, np.int64), {})

    def picture(self, env: int) -> NDArray[np.uint8] | None:
        return None

    def state(self) -> None:
        return None

    def load(self, state: object) -> None:
        raise InputError(f"env.name={self.spec.name}: has no state to restore; it is reset")
