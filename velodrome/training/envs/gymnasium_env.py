"""Gymnasium environments behind our interface: discrete actions, observations that are vectors or images.

Ours start the next episode in the step that ended the last. A vector environment that can do that too is used as a
whole; Gymnasium's default, a step later, would add an idle step to every episode. All others are stepped one by one.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, Space
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv
from numpy.typing import NDArray

from velodrome.errors import InputError, blame
from velodrome.training.envs.interface import ActionSpace, Array, Layout, Spec
from velodrome.training.envs.reset_only import ResetOnly
from velodrome.training.settings import EnvSettings

PREFIX = "gymnasium:"

_BAR_HEIGHT, _BAR_WIDTH = 64, 16  # pixels of the plain picture of a vector
_MOST_ROWS, _MOST_COLUMNS = 48, 64  # letters; larger pictures are sampled
_LEVELS = 4  # of red, of green and of blue
_ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-", np.uint8)


def make(settings: EnvSettings) -> GymnasiumEnv:
    """The environments that `gymnasium:<id>` names, or `gymnasium:<module>:<id>` if a module has to register them."""
    where = f"env.name={settings.name}"
    module, _, name = settings.name.removeprefix(PREFIX).rpartition(":")
    with blame(InputError, where):
        if module:
            import_module(module)
        envs = _vectorised(name, settings.num_envs) or _one_by_one(name, settings.num_envs)
        if envs is None:
            raise InputError(f"{where}: starts episodes a step late and cannot be stepped one by one; not usable")
    return GymnasiumEnv(_spec(where, settings, envs.single_observation_space, envs.single_action_space), envs)


def _vectorised(name: str, num_envs: int) -> GymnasiumVectorEnv | None:
    """The vector environment of an id, if it can start episodes in the same step."""
    if gymnasium.spec(name).vector_entry_point is None:
        return None
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


class _Single(gymnasium.Wrapper[Any, Any, Any, Any]):
    """One of many: acts by an int, shows its space's type, and no infos, which may not fit into one array."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self._shown(self.env.reset(seed=seed, options=options)[0]), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        seen, reward, terminal, truncated, _ = self.env.step(int(action))
        return self._shown(seen), reward, terminal, truncated, {}

    def _shown(self, seen: Any) -> Array:
        return np.array(seen, self.observation_space.dtype)  # a copy: the reset may reuse its array


def _one_by_one(name: str, num_envs: int) -> GymnasiumVectorEnv | None:
    """Single environments, with rendering if they support it; some do not take a `render_mode`."""
    if gymnasium.spec(name).entry_point is None:
        return None
    first = gymnasium.make(name)
    options: dict[str, Any] = {"disable_env_checker": True}
    if "rgb_array" in first.metadata.get("render_modes", ()):
        options["render_mode"] = "rgb_array"
    first.close()
    singles = [lambda: _Single(gymnasium.make(name, **options))] * num_envs
    return SyncVectorEnv(singles, copy=False, autoreset_mode=AutoresetMode.SAME_STEP)


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
        actions=ActionSpace((int(acted.n),)),
        layout=layout,
        obs_shape=_planes(np.empty((1, *seen.shape), np.uint8)).shape[1:] if image else seen.shape,
        obs_dtype="uint8" if image else "float32",
    )


def _planes(images: Array) -> Array:
    """Images of N x height x width (x channels) with channels first; those that have them first are unchanged."""
    if images.ndim == 3:
        return images[:, None]
    return images if images.shape[1] < images.shape[3] else np.moveaxis(images, 3, 1)


class GymnasiumEnv(ResetOnly):
    """A vector environment of Gymnasium's."""

    def __init__(self, spec: Spec, envs: GymnasiumVectorEnv) -> None:
        super().__init__(spec)
        assert isinstance(envs.single_action_space, Discrete)
        self._first_action = int(envs.single_action_space.start)
        self._envs = envs
        self._theirs = blame(InputError, f"env.name={spec.name}")  # for anything raised by their code
        self.action_names: list[str] = []  # unknown
        levels = [f"{level * 255 // (_LEVELS - 1):02x}" for level in range(_LEVELS)]
        colours = [f"#{red}{green}{blue}" for red in levels for green in levels for blue in levels]
        self.palette = dict(zip(_ALPHABET.tobytes().decode(), colours, strict=True))

    def reset(self, seed: int) -> None:
        self._begin_counting()
        seeds = np.random.SeedSequence(seed).generate_state(self.spec.num_envs).tolist()
        with self._theirs:
            self.obs[:] = self._as_read(self._envs.reset(seed=seeds)[0])

    def step(self, actions_N: NDArray[np.int64]) -> None:
        with self._theirs:
            seen_N, self.rewards[:], self.terminals[:], self.truncations[:], infos = self._envs.step(
                actions_N + self._first_action
            )
            self.obs[:] = self._as_read(seen_N)
            for e in self._count():
                self.final_obs[e] = self._as_read(np.asarray(infos["final_obs"][e])[None])[0]

    def _as_read(self, seen_N: Any) -> Array:
        return _planes(seen_N) if self.spec.layout == "planes" else seen_N

    def letters(self, env: int) -> NDArray[np.uint8]:
        picture = self.picture(env)
        picture = _plain_picture(self.obs[env]) if picture is None else picture
        every = max(1, -(-picture.shape[0] // _MOST_ROWS), -(-picture.shape[1] // _MOST_COLUMNS))
        levels = (picture[every // 2 :: every, every // 2 :: every].astype(np.intp) * _LEVELS) // 256
        drawn: NDArray[np.uint8] = _ALPHABET[(levels[..., 0] * _LEVELS + levels[..., 1]) * _LEVELS + levels[..., 2]]
        return drawn

    def picture(self, env: int) -> NDArray[np.uint8] | None:
        try:
            singles = self._envs.envs if isinstance(self._envs, SyncVectorEnv) else None
            frame = singles[env].render() if singles and singles[env].render_mode == "rgb_array" else None
        except gymnasium.error.Error:  # its renderer is not installed
            frame = None
        if isinstance(frame, np.ndarray) and frame.ndim == 3 and frame.dtype == np.uint8 and frame.shape[2] == 3:
            return frame if frame.size else None
        return None

    def close(self) -> None:
        self._envs.close()


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
