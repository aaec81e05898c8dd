"""Environments that are stepped one by one, here or in worker processes, as one environment of ours."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from velodrome.training.envs.env_arrays import EnvArrays, allocate_arrays
from velodrome.training.envs.interface import Array, Spec
from velodrome.training.envs.members import EnvPlan, InProcess, make_members
from velodrome.training.envs.pixel_letters import PALETTE, letters_of, plain_picture
from velodrome.training.envs.reset_only import ResetOnly
from velodrome.training.envs.worker_pool import WorkerPool
from velodrome.training.settings import EnvSettings


class Runner(Protocol):
    """Steps every environment."""

    arrays: EnvArrays

    def reset(self, seeds: list[int]) -> None: ...

    def step(self) -> None: ...

    def picture(self, env: int) -> NDArray[np.uint8] | None: ...

    def close(self) -> None: ...


def make_runner(settings: EnvSettings, spec: Spec, plan: EnvPlan) -> Runner:
    """All environments, here or in `env.workers` processes."""
    if settings.workers:
        return WorkerPool(settings, spec, plan)
    members = make_members(settings, plan, settings.num_envs)
    return InProcess(f"env.name={settings.name}", members, allocate_arrays(spec, np.zeros), spec.agents)


class SteppedEnv(ResetOnly):
    """Many environments, by a runner."""

    def __init__(self, spec: Spec, runner: Runner) -> None:
        super().__init__(spec, runner.arrays)
        self.action_names: list[str] = []  # unknown
        self.palette = PALETTE
        self._runner = runner

    def reset(self, seed: int) -> None:
        self._begin_counting()
        self._runner.reset(np.random.SeedSequence(seed).generate_state(self.spec.num_envs).tolist())

    def step(self, actions_N: Array) -> None:
        self._runner.arrays.actions[:] = actions_N
        self._runner.step()
        self._count()

    def letters(self, env: int) -> NDArray[np.uint8]:
        picture = self.picture(env)
        return letters_of(plain_picture(self.spec, self.obs[env * self.spec.agents]) if picture is None else picture)

    def picture(self, env: int) -> NDArray[np.uint8] | None:
        return self._runner.picture(env)

    def close(self) -> None:
        self._runner.close()
