"""Asking the teacher, in the four parts the timing tree shows.

The environment's arrays are in the host's memory, and the teacher reads them there: nothing is fetched from a device,
which is why `GPU->CPU` is about nothing.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from velodrome.training.envs.interface import Environment, Teacher
from velodrome.training.parts import BACK, FETCH, KERNELS, RESHAPE, Part


class Lesson:
    """A teacher beside an environment. `actions_N` is what it said last, one for each agent."""

    def __init__(self, teacher: Teacher, env: Environment, device: torch.device, part: Part) -> None:
        self.teacher = teacher
        self._env = env
        self._device = device
        self._part = part
        spec = env.spec
        self._shape = (spec.num_envs, spec.agents, *spec.obs_shape)
        self._said_EA: NDArray[np.int64] = np.zeros((spec.num_envs, spec.agents), np.int64)
        self._flat_N = torch.from_numpy(self._said_EA.reshape(-1))
        self.actions_N = self._flat_N.to(device)

    def ask(self, begun_N: NDArray[np.bool_]) -> torch.Tensor:
        """What the teacher would do now."""
        with self._part(RESHAPE):
            obs_EA = self._env.obs.reshape(self._shape)
            begun_E = begun_N.reshape(self._shape[:2])[:, 0]
        with self._part(FETCH):
            pass
        with self._part(KERNELS):
            self.teacher.ask(obs_EA, begun_E, self._said_EA)
        with self._part(BACK):
            self.actions_N = self._flat_N.to(self._device)
        return self.actions_N
