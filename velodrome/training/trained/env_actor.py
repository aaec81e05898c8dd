"""A policy for one Gymnasium environment: its own observations in, its own actions out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from velodrome.errors import InputError
from velodrome.training.envs.interface import Array, Spec
from velodrome.training.envs.spaces import MASK, ActionWriter, MaskReader, ObservationReader, mask_source


class EnvActor:
    """What `policy.for_env(env)` returns; `choose` is the policy's `act`. Take each action `repeat` times."""

    def __init__(
        self, env: gymnasium.Env[Any, Any], choose: Callable[..., tuple[Array, Any]], *, masked: bool, repeat: int
    ) -> None:
        self.repeat = repeat
        name = f"gymnasium:{env.spec.id}" if env.spec else type(env.unwrapped).__name__
        method = env.has_wrapper_attr("action_masks")
        self._source = mask_source(env.observation_space, env.action_space, {}, method=method) if masked else None
        without = MASK if self._source == "observation" else None
        self._reader = ObservationReader(name, env.observation_space, without)
        self._writer = ActionWriter(name, env.action_space, masked=masked)
        self._mask = MaskReader(name, self._writer.actions)
        self._env, self._choose = env, choose
        self.spec = Spec(name, 1, 1, self._writer.actions, **self._reader.layout_fields())

    def act(
        self,
        obs: Any,
        state: Array | None = None,
        *,
        info: dict[str, Any] | None = None,
        sample: bool = False,
        seed: int | None = None,
    ) -> tuple[Any, Array | None]:
        """The action for an observation of the environment, and the memory after it; without `state` one begins.

        `info` is needed where the environment has its `action_mask` there.
        """
        row = np.empty(self._reader.shape, self._reader.dtype)
        self._reader.write(obs, row)
        mask = self._allowed(obs, info or {}) if self.spec.actions.masked else None
        action, state = self._choose(row, state, mask=mask, sample=sample, seed=seed)
        return self._writer.write(action), state

    def _allowed(self, obs: Any, info: dict[str, Any]) -> Array:
        row = np.empty(self.spec.actions.width, np.bool_)
        if self._source == "observation":
            self._mask.write(obs[MASK], row)
        elif self._source == "method":
            self._mask.write(self._env.get_wrapper_attr("action_masks")(), row)
        elif MASK in info:
            self._mask.write(info[MASK], row)
        else:
            raise InputError(f'info: expected the info of this observation, with "{MASK}"')
        return row
