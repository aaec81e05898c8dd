"""The named parts of an epoch, and the teacher timed in its parts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velodrome.training.envs.interface import Array, Spec, Teacher

ROLLOUT, UPDATE = "rollout", "update"
STUDENT, TEACHER, STORE, ENVIRONMENT = "student_forward", "teacher", "replay_store", "environment"
RESHAPE, FETCH, KERNELS, BACK = "reshape", "gpu_to_cpu", "nim_calls", "stack_back"
ADVANTAGES, MINIBATCH, FORWARD, BACKWARD, OPTIMIZER = "advantages", "minibatch", "forward", "backward", "optimizer"

Timed = Callable[[str], AbstractContextManager[Any]]


def untimed(name: str) -> AbstractContextManager[Any]:
    """A part that is not timed."""
    return nullcontext()


class TeacherActor:
    """A teacher that acts for all agents. It reads observations in host memory, so `gpu_to_cpu` takes no time."""

    def __init__(self, teacher: Teacher, spec: Spec, part: Timed = untimed) -> None:
        self.teacher = teacher
        self._part = part
        self._shape = (spec.num_envs, spec.agents)
        self._actions_EA: NDArray[np.int64] = np.zeros(self._shape, np.int64)

    def act(self, obs_N: Array, starts_N: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Its actions, good until the next ones."""
        with self._part(RESHAPE):
            obs_EA = obs_N.reshape(*self._shape, *obs_N.shape[1:])
            starts_E = starts_N.reshape(self._shape)[:, 0]
        with self._part(FETCH):
            pass
        with self._part(KERNELS):
            self.teacher.ask(obs_EA, starts_E, self._actions_EA)
        return self._actions_EA.reshape(-1)
