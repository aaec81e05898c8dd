"""A small parallel environment of PettingZoo's: `PettingZooVector` of examples/ with these games."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv


class Counting(ParallelEnv[str, Any, Any]):
    """Shows the step and the agent's number; a step pays that number. It is over after 4 steps, the last truncates."""

    metadata = {"name": "counting"}  # noqa: RUF012

    def __init__(self, leaves: bool = False, unequal: bool = False) -> None:
        self.possible_agents = ["first", "second", "third"]
        self._leaves, self._unequal = leaves, unequal

    def observation_space(self, agent: str) -> Any:
        return Box(0, 9, (2,))

    def action_space(self, agent: str) -> Any:
        return Discrete(4 if self._unequal and agent == "third" else 3)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.agents = list(self.possible_agents)
        self._done = 0
        return self._seen(), {}

    def step(self, actions: dict[str, Any]) -> Any:
        assert list(actions) == self.possible_agents
        self._done += 1
        if self._leaves:
            self.agents.pop()
        if self._done == 4:
            self.agents = []
        ends = dict.fromkeys(self.possible_agents, False)
        rewards = {agent: float(number) for number, agent in enumerate(self.possible_agents)}
        return self._seen(), rewards, ends, dict.fromkeys(ends, self._done == 4), {}

    def _seen(self) -> dict[str, Any]:
        return {agent: np.array([self._done, k], np.float32) for k, agent in enumerate(self.possible_agents)}
