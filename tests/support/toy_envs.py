"""Small Gymnasium environments with every kind of space, with `env.options`.

Their names are `gymnasium:tests.support.toy_envs:toy/<name>`.

Each refuses an action outside its space, or one that its mask forbids.
"""

from __future__ import annotations

import os
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Text, Tuple

UNUSABLE = Text(3)
ACTIONS: dict[str, Space[Any]] = {
    "discrete": Discrete(3, start=2),
    "multi": MultiDiscrete([3, 2], start=[1, 0]),
    "binary": MultiBinary((2, 2)),
    "box": Box(np.array([-1.0, 0.0]), np.array([1.0, 4.0]), dtype=np.float64),
    "free": Box(-np.inf, np.inf, (2,)),
    "steps": Box(-3, 3, (1,), np.int32),
}
OBSERVATIONS: dict[str, Space[Any]] = {
    "vector": Box(-1, 1, (3,)),
    "tensor": Box(-1, 1, (2, 3, 2, 2), np.float64),
    "image": Box(0, 255, (12, 10, 3), np.uint8),
    "floats": Box(0, 1, (12, 10, 3), np.float32),
    "discrete": Discrete(5, start=-2),
    "multi": MultiDiscrete([3, 4]),
    "binary": MultiBinary(4),
    "dict": Dict(pixels=Box(0, 255, (12, 10), np.uint8), place=Tuple([Discrete(4), Box(-2, 2, (2,))])),
    "tuple": Tuple([Discrete(3), Dict(a=MultiBinary(2), b=Box(0, 1, (), np.float32))]),
}


class Sampled(gymnasium.Env[Any, Any]):
    """Shows random observations for eight steps and pays for the first option, or for numbers near zero."""

    def __init__(self, observation: str = "vector", action: str = "discrete", mask: str = "") -> None:
        self.action_space = deepcopy(ACTIONS[action])
        self.observation_space = deepcopy(OBSERVATIONS[observation])  # its own random numbers
        self._inner = self.observation_space
        self._mask_in = mask
        self._width = int(gymnasium.spaces.flatdim(self.action_space))
        if mask == "observation":
            self.observation_space = Dict(action_mask=MultiBinary(self._width), seen=self._inner)
        if mask == "method":
            self.action_masks = lambda: self._mask.astype(bool).tolist()
        self._done, self._length = 0, 8

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self._inner.seed(seed)
        self._done = 0
        return self._shown()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(action):
            raise ValueError(f"{action!r} is not in {self.action_space}")
        one_hot = np.ravel(gymnasium.spaces.flatten(self.action_space, action))
        if self._mask_in and (one_hot > self._mask).any():
            raise ValueError(f"{action!r} is forbidden by {self._mask.tolist()}")
        self._done += 1
        reward = float(one_hot[0]) if not isinstance(self.action_space, Box) else float(-np.abs(one_hot).sum())
        return self._shown()[0], reward, self._done == self._length, False, self._info()

    def _shown(self) -> tuple[Any, dict[str, Any]]:
        self._mask = self._new_mask()
        seen = self._inner.sample()
        return ({"action_mask": self._mask, "seen": seen} if self._mask_in == "observation" else seen), self._info()

    def _info(self) -> dict[str, Any]:
        return {"action_mask": self._mask} if self._mask_in == "info" else {}

    def _new_mask(self) -> Any:
        """Each option allowed by chance, one of each choice at least."""
        space, mask = self.action_space, self.np_random.random(self._width) < 0.4
        sizes = [int(space.n)] if isinstance(space, Discrete) else np.ravel(getattr(space, "nvec", self._width))
        for end, size in zip(np.cumsum(sizes), sizes, strict=True):
            mask[end - 1 - self.np_random.integers(size)] = True
        return mask.astype(np.int8)


class Working(Sampled):
    """Takes a while for each step: busy, or asleep."""

    def __init__(self, busy_s: float = 0.0, sleep_s: float = 0.0, says: bool = False) -> None:
        super().__init__()
        self._busy_s = busy_s
        self._sleep_s = sleep_s
        self._says = says

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._says:
            os.write(1, b"stepping\n")
        end = time.thread_time() + self._busy_s
        while time.thread_time() < end:
            pass
        time.sleep(self._sleep_s)
        return super().step(action)


class Failing(Sampled):
    """Raises, or ends its process, in its third step; or is not made in any process but one."""

    def __init__(self, how: str = "raise", but: int = 0) -> None:
        super().__init__()
        if how == "make" and os.getpid() != but:
            raise RuntimeError("not here")
        self._how = how

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._done == 2 and self._how == "raise":
            raise RuntimeError("the floor\ngave way")
        if self._done == 2 and self._how == "exit":
            os._exit(3)
        return super().step(action)


class Forking(Sampled):
    """Starts a process, in any process but one, and leaves a file when it is closed."""

    def __init__(self, folder: str, but: int) -> None:
        super().__init__()
        self._closed = Path(folder) / f"closed_{os.getpid()}"
        if os.getpid() != but and os.fork() == 0:
            time.sleep(1000)
            os._exit(0)

    def close(self) -> None:
        self._closed.touch()


class Infinite(Sampled):
    """Shows, or pays, what is not a finite number."""

    def __init__(self, pays: bool = False) -> None:
        super().__init__()
        self._pays = pays

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        seen, reward, *rest = super().step(action)
        return (seen, np.nan, *rest) if self._pays else (np.full_like(seen, np.inf), reward, *rest)


class Noise(Sampled):
    """Images that nothing can compress, for long."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = self._inner = Box(0, 255, (64, 64, 3), np.uint8)
        self._length = 2_800


class Many(Sampled):
    """Has more options than any network."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = Discrete(10**13)

    def _new_mask(self) -> Any:
        return None


class Acting(Sampled):
    """Acts by what no policy can."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = UNUSABLE


class Showing(Sampled):
    """Shows what no policy can read."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = UNUSABLE


gymnasium.register("toy/Sampled-v0", Sampled)
gymnasium.register("toy/Acting-v0", Acting)
gymnasium.register("toy/Showing-v0", Showing)
gymnasium.register("toy/Working-v0", Working)
gymnasium.register("toy/Failing-v0", Failing)
gymnasium.register("toy/Forking-v0", Forking)
gymnasium.register("toy/Infinite-v0", Infinite)
gymnasium.register("toy/Noise-v0", Noise)
gymnasium.register("toy/Many-v0", Many)
