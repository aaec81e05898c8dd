"""The arrays of environments, the rows that belong to a part of them, and episodes counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from velodrome.errors import InputError
from velodrome.training.envs.interface import Array, Ended, Spec

Allocate = Callable[[tuple[int, ...], str], Array]


class EnvArrays(NamedTuple):
    """The arrays of some agents: their actions are read, everything else is written."""

    actions: Array
    obs: Array
    final_obs: Array
    rewards: NDArray[np.float32]
    terminals: NDArray[np.bool_]
    truncations: NDArray[np.bool_]
    action_mask: NDArray[np.bool_]  # without columns if nothing is masked

    def rows(self, start: int, end: int) -> EnvArrays:
        """Some rows of each."""
        return EnvArrays._make(array[start:end] for array in self)


def allocate_arrays(spec: Spec, allocate: Allocate = np.zeros) -> EnvArrays:
    """The arrays of all agents."""
    n, acts = spec.total, spec.actions
    return EnvArrays(
        actions=allocate((n, *acts.shape), acts.dtype),
        obs=allocate((n, *spec.obs_shape), spec.obs_dtype),
        final_obs=allocate((n, *spec.obs_shape), spec.obs_dtype),
        rewards=allocate((n,), "float32"),
        terminals=allocate((n,), "bool"),
        truncations=allocate((n,), "bool"),
        action_mask=allocate((n, acts.width if acts.masked else 0), "bool"),
    )


class ArrayEnv:
    """Environments with the usual arrays. Subclasses step, write into the arrays, and call `_count`.

    By default there is no state to save, no map to draw and nothing to close.
    """

    def __init__(self, spec: Spec, rows: EnvArrays | None = None) -> None:
        rows = rows or allocate_arrays(spec)
        self.spec = spec
        self.palette: dict[str, str] = {}
        self.action_names: list[str] = []
        self.obs = rows.obs
        self.action_mask = rows.action_mask if spec.actions.masked else None
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

    def letters(self, env: int) -> NDArray[np.uint8] | None:
        return None

    def state(self) -> dict[str, Array] | None:
        return None

    def load(self, state: Mapping[str, Array]) -> None:
        raise InputError(f"env.name={self.spec.name}: has no state to restore; it is reset")

    def close(self) -> None:
        """Nothing to close."""
