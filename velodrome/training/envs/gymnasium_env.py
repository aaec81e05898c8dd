"""Gymnasium environments behind our interface.

Ours start the next episode in the step that ended the last. A vector environment that can do that too is used as a
whole; Gymnasium's default, a step later, would add an idle step to every episode. All others are stepped one by one,
here or in worker processes.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv

from velodrome.errors import InputError, blame
from velodrome.training.envs.gymnasium_members import GymnasiumMember, Members, registered
from velodrome.training.envs.interface import Array, Spec, VectorEnv, allocate_arrays
from velodrome.training.envs.spaces import ActionWriter, MaskSource, ObservationReader, mask_source
from velodrome.training.envs.worker_pool import WorkerPool
from velodrome.training.settings import EnvSettings


def make(settings: EnvSettings) -> VectorEnv:
    """The environments that `gymnasium:<id>` names, or `gymnasium:<module>:<id>` if a module has to register them."""
    where = f"env.name={settings.name}"
    with blame(InputError, where):
        name = registered(settings)
        try:
            many = _vectorised(name, settings) if settings.action_repeat == 1 else None
            if many is not None:
                return many
            if gymnasium.spec(name).entry_point is None:
                raise InputError(f"{where}: starts episodes a step late and cannot be stepped one by one; not usable")
            spec, mask = _probed(settings)
        except gymnasium.error.DependencyNotInstalled as error:
            if "Box2D" not in str(error):
                raise
            raise InputError(f'{where}: needs the package "Box2D" (pip install "velodrome[box2d]")') from error
    if settings.workers:
        return SteppedEnv(spec, WorkerPool(settings, spec, mask))
    return SteppedEnv(spec, Members(settings, mask, allocate_arrays(spec)))


def _probed(settings: EnvSettings) -> tuple[Spec, MaskSource | None]:
    """What only an environment knows: its spaces, and where it says which actions are allowed."""
    env = gymnasium.make(registered(settings), **(settings.options or {}), disable_env_checker=True)
    try:
        method = env.has_wrapper_attr("action_masks")
        source = mask_source(env.observation_space, env.action_space, env.reset(seed=0)[1], method=method)
        return GymnasiumMember(settings, env, source).spec, source
    finally:
        env.close()


class SteppedEnv(VectorEnv):
    """Environments that are stepped one by one, here or in worker processes."""

    def __init__(self, spec: Spec, runner: Members | WorkerPool) -> None:
        super().__init__(spec, runner.arrays)
        self._runner = runner

    def reset(self, seed: int) -> None:
        self._begin_counting()
        self._runner.reset(np.random.SeedSequence(seed).generate_state(self.spec.num_envs).tolist())

    def step(self, actions_N: Array) -> None:
        self._runner.arrays.actions[:] = actions_N
        self._runner.step()
        self._count()

    def close(self) -> None:
        self._runner.close()


def _vectorised(name: str, settings: EnvSettings) -> GymnasiumVector | None:
    """The vector environment of an id, if it can start episodes in the same step and has nothing but plain spaces."""
    if gymnasium.spec(name).vector_entry_point is None:
        return None
    options = {**(settings.options or {}), "vectorization_mode": "vector_entry_point"}
    try:
        many = gymnasium.make_vec(name, settings.num_envs, autoreset_mode=AutoresetMode.SAME_STEP, **options)
    except TypeError:  # it does not know the argument
        many = gymnasium.make_vec(name, settings.num_envs, **options)
    plain = isinstance(many.single_observation_space, Box) and isinstance(many.single_action_space, Discrete)
    if plain and many.metadata.get("autoreset_mode") is AutoresetMode.SAME_STEP:
        return GymnasiumVector(settings, many)
    many.close()
    return None


class GymnasiumVector(VectorEnv):
    """A vector environment of Gymnasium's."""

    def __init__(self, settings: EnvSettings, envs: GymnasiumVectorEnv) -> None:
        where = f"env.name={settings.name}"
        self._reader = ObservationReader(where, envs.single_observation_space)
        actions = ActionWriter(where, envs.single_action_space, masked=False).actions
        super().__init__(Spec(settings.name, settings.num_envs, 1, actions, **self._reader.layout_fields()))
        assert isinstance(envs.single_action_space, Discrete)
        self._first_action = int(envs.single_action_space.start)
        self._envs = envs
        self._theirs = blame(InputError, where)  # for anything raised by their code

    def reset(self, seed: int) -> None:
        self._begin_counting()
        seeds = np.random.SeedSequence(seed).generate_state(self.spec.num_envs).tolist()
        with self._theirs:
            self._show(self._envs.reset(seed=seeds)[0])

    def step(self, actions_N: Array) -> None:
        with self._theirs:
            seen_N, self.rewards[:], self.terminals[:], self.truncations[:], infos = self._envs.step(
                actions_N + self._first_action
            )
            self._show(seen_N)
            for e in self._count():
                self._reader.write(infos["final_obs"][e], self.final_obs[e])

    def _show(self, seen_N: Any) -> None:
        for seen, row in zip(seen_N, self.obs, strict=True):
            self._reader.write(seen, row)

    def close(self) -> None:
        self._envs.close()
