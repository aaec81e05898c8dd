"""Gymnasium environments behind our interface: discrete actions, observations that are vectors or images.

A vector environment is used as a whole if it starts the next episode in the step that ended the last, as ours do;
Gymnasium's default, a step later, would add an idle step to every episode. All others are stepped one by one.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, Space
from gymnasium.vector import AutoresetMode
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv
from numpy.typing import NDArray

from velodrome.errors import InputError, blame
from velodrome.training.envs.interface import Array, Ended, Layout, Spec, VectorEnv
from velodrome.training.settings import EnvSettings

PREFIX = "gymnasium:"

_BAR_HEIGHT, _BAR_WIDTH = 64, 16  # pixels of the plain picture of a vector


def make(settings: EnvSettings) -> VectorEnv:
    """The environments that `gymnasium:<id>` names, or `gymnasium:<module>:<id>` if a module has to register them."""
    where = f"env.name={settings.name}"
    module, _, name = settings.name.removeprefix(PREFIX).rpartition(":")
    with blame(InputError, where):
        if module:
            import_module(module)
        spec = gymnasium.spec(name)
        many = _vectorised(name, settings.num_envs) if spec.vector_entry_point else None
        if many is None and spec.entry_point is None:
            raise InputError(f"{where}: starts episodes a step late and cannot be stepped one by one; not usable")
        singles = _singles(name, settings.num_envs) if many is None else []
    if many is not None:
        return _Many(_spec(where, settings, many.single_observation_space, many.single_action_space), many)
    return _OneByOne(_spec(where, settings, singles[0].observation_space, singles[0].action_space), singles)


def _vectorised(name: str, num_envs: int) -> GymnasiumVectorEnv | None:
    """The vector environment of an id, if it can start episodes in the same step."""
    try:
        many = gymnasium.make_vec(
            name, num_envs, vectorization_mode="vector_entry_point", autoreset_mode=AutoresetMode.SAME_STEP
        )
    except TypeError:  # it does not know the argument
        many = gymnasium.make_vec(name, num_envs, vectorization_mode="vector_entry_point")
    if many.metadata.get("autoreset_mode") is AutoresetMode.SAME_STEP:
        return many
    many.close()
    return None


def _singles(name: str, num_envs: int) -> list[gymnasium.Env]:
    """Single environments, with rendering if they support it."""
    first = gymnasium.make(name)
    seen: dict[str, Any] = {"render_mode": "rgb_array"} if "rgb_array" in first.metadata.get("render_modes", ()) else {}
    first.close()
    return [gymnasium.make(name, disable_env_checker=True, **seen) for _ in range(num_envs)]  # some take no render_mode


def _spec(where: str, settings: EnvSettings, seen: Space[Any], acted: Space[Any]) -> Spec:
    if not isinstance(acted, Discrete):
        raise InputError(f"{where}: acts by {acted}; only Discrete actions are supported")
    image = isinstance(seen, Box) and seen.dtype == np.uint8 and len(seen.shape) in (2, 3)
    if not isinstance(seen, Box) or not (image or len(seen.shape) == 1):
        raise InputError(f"{where}: shows {seen}; only Box vectors and uint8 Box images are supported")
    layout: Layout = "planes" if image else "vector"
    return Spec(
        name=settings.name,
        num_envs=settings.num_envs,
        agents=1,
        num_actions=int(acted.n),
        layout=layout,
        obs_shape=_planes(np.empty((1, *seen.shape), np.uint8)).shape[1:] if image else seen.shape,
        obs_dtype="uint8" if image else "float32",
    )


def _planes(images: Array) -> Array:
    """Images of N x height x width (x channels) with channels first; those that have them first are unchanged."""
    if images.ndim == 3:
        return images[:, None]
    return images if images.shape[1] < images.shape[3] else np.moveaxis(images, 3, 1)


class _Adapter:
    """The arrays and the counting; subclasses step."""

    def __init__(self, spec: Spec, actions: Space[Any]) -> None:
        self.spec = spec
        self.obs: Array = np.zeros((spec.total, *spec.obs_shape), spec.obs_dtype)
        self.final_obs: Array = np.zeros_like(self.obs)
        self.rewards = np.zeros(spec.total, np.float32)
        self.terminals = np.zeros(spec.total, np.bool_)
        self.truncations = np.zeros(spec.total, np.bool_)
        assert isinstance(actions, Discrete)
        self._first_action = int(actions.start)
        self._returns = np.zeros(spec.total)
        self._lengths = np.zeros(spec.total, np.int64)
        self._ended: list[tuple[int, float, int]] = []
        self._theirs = blame(InputError, f"env.name={spec.name}")  # for anything raised by their code

    def ended(self) -> Ended:
        ended, self._ended = self._ended, []
        return Ended.of(ended)

    def state(self) -> None:
        return None

    def load(self, state: object) -> None:
        raise InputError(f"env.name={self.spec.name}: has no state to restore; it is reset")

    def text(self, env: int) -> str:
        now = np.array2string(self.obs[env], precision=3, suppress_small=True, threshold=64)
        return f"{self.spec.name} {env}: step {self._lengths[env]}, return {self._returns[env]:g}\n{now}"

    def picture(self, env: int) -> NDArray[np.uint8]:
        try:
            frame = self._rendered(env)
        except gymnasium.error.Error:  # its renderer is not installed
            frame = None
        if isinstance(frame, np.ndarray) and frame.ndim == 3 and frame.dtype == np.uint8:
            return frame
        return _plain_picture(self.obs[env])

    def _rendered(self, env: int) -> Any:
        raise NotImplementedError

    def _begin(self) -> None:
        self._returns[:] = 0
        self._lengths[:] = 0
        self._ended.clear()
        self.rewards[:] = 0
        self.terminals[:] = False
        self.truncations[:] = False

    def _count(self) -> None:
        self._returns += self.rewards
        self._lengths += 1
        over = self.terminals | self.truncations
        if over.any():
            which = np.flatnonzero(over)
            columns = (which, self._returns[which], self._lengths[which])
            self._ended += zip(*(each.tolist() for each in columns), strict=True)
            self._returns[which] = 0
            self._lengths[which] = 0

    def _as_read(self, seen_N: Array) -> Array:
        return _planes(seen_N) if self.spec.layout == "planes" else seen_N


class _OneByOne(_Adapter):
    def __init__(self, spec: Spec, singles: list[gymnasium.Env]) -> None:
        super().__init__(spec, singles[0].action_space)
        self._envs = singles

    def reset(self, seed: int) -> None:
        self._begin()
        seeds = np.random.SeedSequence(seed).generate_state(len(self._envs))
        with self._theirs:
            for k, env in enumerate(self._envs):
                self._see(self.obs, k, env.reset(seed=int(seeds[k]))[0])

    def step(self, actions_N: NDArray[np.int64]) -> None:
        with self._theirs:
            for k, action in enumerate((actions_N + self._first_action).tolist()):
                env = self._envs[k]
                seen, self.rewards[k], terminal, truncated, _ = env.step(action)
                self.terminals[k], self.truncations[k] = terminal, truncated
                if terminal or truncated:
                    self._see(self.final_obs, k, seen)
                    seen, _ = env.reset()
                self._see(self.obs, k, seen)
        self._count()

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _see(self, into: Array, k: int, seen: Array) -> None:
        into[k] = seen if self.spec.layout == "vector" else _planes(seen[None])[0]

    def _rendered(self, env: int) -> Any:
        return self._envs[env].render() if self._envs[env].render_mode else None


class _Many(_Adapter):
    def __init__(self, spec: Spec, many: GymnasiumVectorEnv) -> None:
        super().__init__(spec, many.single_action_space)
        self._envs = many

    def reset(self, seed: int) -> None:
        self._begin()
        with self._theirs:
            self.obs[:] = self._as_read(self._envs.reset(seed=seed)[0])

    def step(self, actions_N: NDArray[np.int64]) -> None:
        with self._theirs:
            seen_N, self.rewards[:], self.terminals[:], self.truncations[:], infos = self._envs.step(
                actions_N + self._first_action
            )
            self.obs[:] = self._as_read(seen_N)
            for k in np.flatnonzero(self.terminals | self.truncations):
                self.final_obs[k] = self._as_read(np.asarray(infos["final_obs"][k])[None])[0]
        self._count()

    def close(self) -> None:
        self._envs.close()

    def _rendered(self, env: int) -> Any:
        frames = self._envs.render() if self._envs.render_mode == "rgb_array" else None
        return frames[env] if frames is not None else None


def _plain_picture(obs: Array) -> NDArray[np.uint8]:
    """An image as it is; a vector as bars from the middle, up for what is above zero."""
    if obs.ndim == 3:
        rgb = obs[:3] if len(obs) >= 3 else np.repeat(obs[:1], 3, 0)
        return np.ascontiguousarray(np.moveaxis(rgb, 0, 2))
    picture = np.full((_BAR_HEIGHT, _BAR_WIDTH * len(obs), 3), 255, np.uint8)
    middle = _BAR_HEIGHT // 2
    for k, length in enumerate(np.rint(np.tanh(obs) * (middle - 1)).astype(int)):
        rows = slice(middle - length, middle) if length > 0 else slice(middle, middle - length)
        picture[rows, k * _BAR_WIDTH + 2 : (k + 1) * _BAR_WIDTH - 2] = (40, 90, 200)
    picture[middle] = 0
    return picture
