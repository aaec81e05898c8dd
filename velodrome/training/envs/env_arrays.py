"""The arrays of an environment, and the rows of them that belong to a part of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from velodrome.training.envs.interface import Array, Spec

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
    alive: NDArray[np.bool_]

    def rows(self, start: int, end: int) -> EnvArrays:
        """Some rows of each."""
        return EnvArrays._make(array[start:end] for array in self)


def allocate_arrays(spec: Spec, allocate: Allocate) -> EnvArrays:
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
        alive=allocate((n,), "bool"),
    )
