"""Gymnasium environments behind our interface.

Ours start the next episode in the step that ended the last. A vector environment that can do that too is used as a
whole; Gymnasium's default, a step later, would add an idle step to every episode. All others are stepped one by one.

A mask of the actions is the observation's key `action_mask`, else that of the info, else what the method
`action_masks` returns.
"""

from __future__ import annotations

import pickle
import sys
from importlib import import_module
from importlib.machinery import PathFinder
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv
from numpy.typing import NDArray

from velodrome.errors import InputError, blame
from velodrome.training.envs.env_arrays import EnvArrays
from velodrome.training.envs.interface import Array, Spec, VectorEnv
from velodrome.training.envs.members import EnvPlan
from velodrome.training.envs.pixel_letters import PALETTE, as_picture, letters_of, plain_picture
from velodrome.training.envs.reset_only import ResetOnly
from velodrome.training.envs.spaces import MASK, ActionWriter, MaskReader, MaskSource, ObservationReader, mask_source
from velodrome.training.envs.stepped import SteppedEnv, make_runner
from velodrome.training.settings import EnvSettings

PREFIX = "gymnasium:"

_DRAWN_AT_ONCE = 32  # a vector environment draws all of its environments or none


def make(settings: EnvSettings, *, pictures: bool = False) -> VectorEnv:
    """The environments that `gymnasium:<id>` names, or `gymnasium:<module>:<id>` if a module has to register them."""
    where = f"env.name={settings.name}"
    with blame(InputError, where):
        name = _registered(settings)
        try:
            many = _vectorised(name, settings) if settings.action_repeat == 1 else None
            if many is not None:
                return many
            if gymnasium.spec(name).entry_point is None:
                raise InputError(f"{where}: starts episodes a step late and cannot be stepped one by one; not usable")
            spec, plan = _probed(settings, pictures=pictures)
        except gymnasium.error.DependencyNotInstalled as error:
            if "Box2D" not in str(error):
                raise
            raise InputError(f'{where}: needs the package "Box2D" (pip install "velodrome[box2d]")') from error
    return SteppedEnv(spec, make_runner(settings, spec, plan))


def make_member(settings: EnvSettings, plan: EnvPlan) -> GymnasiumMember:
    """One of the environments."""
    if plan.registered:
        entry = pickle.loads(plan.registered)
        gymnasium.registry.setdefault(entry.id, entry)
    options = {"render_mode": "rgb_array"} if plan.renders else {}
    env = gymnasium.make(_registered(settings), **{**options, **(settings.options or {})}, disable_env_checker=True)
    return GymnasiumMember(f"env.name={settings.name}", env, plan.mask, settings.action_repeat)


def _registered(settings: EnvSettings) -> str:
    """The id, after its module has registered it."""
    module, _, name = settings.name.removeprefix(PREFIX).rpartition(":")
    if module:
        import_module(module)
    return name


def _probed(settings: EnvSettings, *, pictures: bool) -> tuple[Spec, EnvPlan]:
    """What only an environment can tell: its spaces, whether it renders (some take no `render_mode`), its mask."""
    env = gymnasium.make(_registered(settings), **(settings.options or {}), disable_env_checker=True)
    try:
        method = env.has_wrapper_attr("action_masks")
        source = mask_source(env.observation_space, env.action_space, env.reset(seed=0)[1], method=method)
        member = GymnasiumMember(f"env.name={settings.name}", env, source)
        spec = Spec(settings.name, settings.num_envs, 1, member.writer.actions, **member.reader.layout_fields())
        renders = pictures and "rgb_array" in env.metadata.get("render_modes", ())
        return spec, EnvPlan(__name__, renders, source, _portable(settings) if settings.workers else b"")
    finally:
        env.close()


def _portable(settings: EnvSettings) -> bytes:
    """Gymnasium's entry of an id, for workers: a recipe's own file, or a notebook, may have made it."""
    entry = gymnasium.spec(_registered(settings))
    module = sys.modules.get(getattr(entry.entry_point, "__module__", ""))
    alone = module is not None and PathFinder.find_spec(module.__name__.partition(".")[0]) is None
    try:
        if alone:  # a worker cannot import it, so its code is sent
            cloudpickle.register_pickle_by_value(module)
        return bytes(cloudpickle.dumps(entry))
    except (TypeError, pickle.PicklingError) as error:
        way = "register it in a module, and name it gymnasium:<module>:<id>"
        raise InputError(
            f"env.workers={settings.workers}: {entry.id} cannot be sent to workers ({error}); {way}"
        ) from error
    finally:
        if alone:
            cloudpickle.unregister_pickle_by_value(module)


class GymnasiumMember:
    """One environment of Gymnasium's."""

    def __init__(self, where: str, env: gymnasium.Env[Any, Any], source: MaskSource | None, repeat: int = 1) -> None:
        without = MASK if source == "observation" else None
        self.reader = ObservationReader(where, env.observation_space, without)
        self.writer = ActionWriter(where, env.action_space, masked=source is not None)
        self._env = env
        self._repeat = repeat
        self._source = source
        self._mask = MaskReader(where, self.writer.actions)

    def reset(self, seed: int, rows: EnvArrays) -> None:
        self._show(*self._env.reset(seed=seed), rows)

    def step(self, rows: EnvArrays) -> None:
        action, total = self.writer.write(rows.actions[0]), 0.0
        for _ in range(self._repeat):
            obs, reward, terminal, truncated, info = self._env.step(action)
            total += float(reward)
            if terminal or truncated:
                break
        rows.rewards[:], rows.terminals[:], rows.truncations[:] = total, terminal, truncated
        if terminal or truncated:
            self.reader.write(obs, rows.final_obs[0])
            obs, info = self._env.reset()
        self._show(obs, info, rows)

    def _show(self, obs: Any, info: dict[str, Any], rows: EnvArrays) -> None:
        self.reader.write(obs, rows.obs[0])
        if self._source == "observation":
            self._mask.write(obs[MASK], rows.action_mask[0])
        elif self._source == "info":
            self._mask.write(info[MASK], rows.action_mask[0])
        elif self._source == "method":
            self._mask.write(self._env.get_wrapper_attr("action_masks")(), rows.action_mask[0])

    def picture(self) -> NDArray[np.uint8] | None:
        try:
            return as_picture(self._env.render()) if self._env.render_mode == "rgb_array" else None
        except gymnasium.error.Error:  # its renderer is not installed
            return None

    def close(self) -> None:
        self._env.close()


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


class GymnasiumVector(ResetOnly):
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
        self.action_names: list[str] = []  # unknown
        self.palette = PALETTE
        self._pictures: Any = None  # of all environments, drawn once per step
        if settings.num_envs <= _DRAWN_AT_ONCE and "rgb_array" in envs.metadata.get("render_modes", ()):
            envs.unwrapped.render_mode = "rgb_array"

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
        self._pictures = None
        for seen, row in zip(seen_N, self.obs, strict=True):
            self._reader.write(seen, row)

    def letters(self, env: int) -> NDArray[np.uint8]:
        return letters_of(plain_picture(self.spec, self.obs[env]))

    def picture(self, env: int) -> NDArray[np.uint8] | None:
        try:
            if self._pictures is None and self._envs.unwrapped.render_mode == "rgb_array":
                self._pictures = self._envs.render()
            return None if self._pictures is None else as_picture(self._pictures[env])
        except gymnasium.error.Error:  # its renderer is not installed
            return None

    def close(self) -> None:
        self._envs.close()
