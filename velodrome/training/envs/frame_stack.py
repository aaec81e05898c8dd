"""The last observations of each agent shown together, the oldest first, for any environment.

Planes are stacked as further channels, vectors are concatenated; so are the images of a mixed row, and its numbers. An
episode starts with its first observation in every place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from velodrome.errors import InputError
from velodrome.training.envs.interface import Array, Ended, Spec, VectorEnv

_STACK = "frame_stack"  # its observations, in the environment's state


class FrameStack:
    """An environment that shows its last `frames` observations."""

    def __init__(self, env: VectorEnv, frames: int) -> None:
        inner = env.spec
        if inner.layout == "tokens":
            raise InputError(
                f"env.frame_stack={frames}: {inner.name} shows tokens, which cannot be stacked; leave it 1"
            )
        self._env = env
        self._frames = frames
        images = [int(np.prod(image)) for image in inner.images]
        self._cuts = np.cumsum([0, *images, int(np.prod(inner.obs_shape)) - sum(images)])
        self.spec = _stacked(inner, frames)
        self.obs: Array = np.zeros((inner.total, *self.spec.obs_shape), inner.obs_dtype)
        self.final_obs: Array = np.zeros_like(self.obs)
        self.rewards, self.terminals, self.truncations = env.rewards, env.terminals, env.truncations
        self.alive = env.alive
        self.action_mask, self.palette, self.action_names = env.action_mask, env.palette, env.action_names

    def reset(self, seed: int) -> None:
        self._env.reset(seed)
        self._fill(np.arange(self.spec.total))

    def step(self, actions_N: Array) -> None:
        self._env.step(actions_N)
        ended = np.flatnonzero(self.terminals | self.truncations)
        stack_N = self.obs.reshape(self.spec.total, -1)
        before = stack_N[ended]
        self._push(stack_N, self._env.obs)
        if len(ended):
            self._push(before, self._env.final_obs[ended])
            self.final_obs[ended] = before.reshape(self.final_obs[ended].shape)
            self._fill(ended)

    def _push(self, stack_N: Array, newest_N: Array) -> None:
        """Drop the oldest frame of each row and add the newest, part by part."""
        flat_N = newest_N.reshape(len(newest_N), -1)
        for start, end in pairwise(self._cuts):
            part_N = stack_N[:, start * self._frames : end * self._frames]
            part_N[:, : start - end] = part_N[:, end - start :].copy()
            part_N[:, start - end :] = flat_N[:, start:end]

    def _fill(self, rows: NDArray[np.intp]) -> None:
        """The current observation in every place."""
        first = self._env.obs[rows].reshape(len(rows), -1)
        parts = [np.tile(first[:, a:b], self._frames) for a, b in pairwise(self._cuts)]
        self.obs[rows] = np.concatenate(parts, 1).reshape(self.obs[rows].shape)

    def ended(self) -> Ended:
        return self._env.ended()

    def state(self) -> dict[str, Array] | None:
        inner = self._env.state()
        return None if inner is None else {**inner, _STACK: self.obs}

    def load(self, state: Mapping[str, Array]) -> None:
        self._env.load({name: array for name, array in state.items() if name != _STACK})
        self.obs[:] = state[_STACK]

    def letters(self, env: int) -> NDArray[np.uint8]:
        return self._env.letters(env)

    def picture(self, env: int) -> NDArray[np.uint8] | None:
        return self._env.picture(env)

    def close(self) -> None:
        self._env.close()


def _stacked(spec: Spec, frames: int) -> Spec:
    first, *rest = spec.obs_shape
    images = tuple((channels * frames, height, width) for channels, height, width in spec.images)
    return replace(spec, obs_shape=(first * frames, *rest), images=images)
