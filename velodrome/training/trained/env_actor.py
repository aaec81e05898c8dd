"""A policy for one Gymnasium environment: its own observations in, its own actions out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

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
        source = (mask_source(env.observation_space, env.action_space, {}, method=method) or "info") if masked else None
        self._reader = ObservationReader(name, env.observation_space, MASK if source == "observation" else None)
        self._writer = ActionWriter(name, env.action_space, masked=masked)
        self._mask = MaskReader(name, self._writer.actions, source, env)
        self._choose = choose
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
        allowed = np.empty(self.spec.actions.width, np.bool_)
        self._mask.write(obs, info or {}, allowed)
        mask = allowed if self.spec.actions.masked else None
        action, state = self._choose(row, state, mask=mask, sample=sample, seed=seed)
        return self._writer.write(action), state
