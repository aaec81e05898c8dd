"""An environment whose step takes a while: busy, or asleep as one that waits for another program."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class Slow(gymnasium.Env[Any, Any]):
    """Ends after 100 steps."""

    def __init__(self, busy_s: float = 0.0, sleep_s: float = 0.0) -> None:
        self.action_space = Discrete(2)
        self.observation_space = Box(-1, 1, (4,))
        self._busy_s = busy_s
        self._sleep_s = sleep_s
        self._done = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._done = 0
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        end = time.thread_time() + self._busy_s
        while time.thread_time() < end:
            pass
        if self._sleep_s:
            time.sleep(self._sleep_s)
        self._done += 1
        return np.zeros(4, np.float32), 1.0, self._done == 100, False, {}


gymnasium.register("velodrome/Slow-v0", Slow)  # type: ignore[arg-type]
