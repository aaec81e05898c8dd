"""A small parallel environment of PettingZoo's whose agents leave one after another."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from pettingzoo import ParallelEnv


class Leaving(ParallelEnv[str, Any, Any]):
    """The k-th agent leaves after 2, 4 and 6 steps (the last is truncated), or with option 2. A step pays its number.

    Those who have left are still paid, which nobody may see. Shows the step, the agent and a random number.
    """

    metadata = {"render_modes": ["rgb_array"], "name": "leaving"}  # noqa: RUF012

    def __init__(
        self, masked: bool = False, unequal: bool = False, silent: bool = False, render_mode: str | None = None
    ) -> None:
        self.possible_agents = ["first", "second", "third"]
        self.render_mode = render_mode
        self._masked = masked
        self._unequal = unequal
        self._silent = silent

    def observation_space(self, agent: str) -> Any:
        seen = Box(-9, 9, (3,))
        return Dict(observation=seen, action_mask=MultiBinary(3)) if self._masked else seen

    def action_space(self, agent: str) -> Any:
        return Discrete(4 if self._unequal and agent == "third" else 3)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        if seed is not None:
            self._random = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self._done = 0
        return self._seen(self.agents), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        assert sorted(actions) == sorted(self.agents)
        assert not (self._masked and 1 in actions.values())
        self._done += 1
        acted = list(self.agents)
        last = {agent: 2 * k + 2 for k, agent in enumerate(self.possible_agents)}
        gone = {agent: self._done >= last[agent] or actions[agent] == 2 for agent in acted}
        terminals = {agent: gone[agent] and agent != "third" for agent in acted}
        truncations = {agent: gone[agent] and agent == "third" for agent in acted}
        self.agents = [agent for agent in acted if not gone[agent]]
        rewards = {agent: float(self._done) for agent in self.possible_agents}
        if self._silent:  # whoever leaves is just not there any more
            return self._seen(self.agents), rewards, {}, {}, {}
        return self._seen(acted), rewards, terminals, truncations, {agent: {} for agent in acted}

    def _seen(self, agents: list[str]) -> dict[str, Any]:
        rows = {
            agent: np.array([self._done, self.possible_agents.index(agent) + 1, self._random.random()], np.float32)
            for agent in agents
        }
        if not self._masked:
            return rows
        return {agent: {"observation": row, "action_mask": np.array([1, 0, 1])} for agent, row in rows.items()}

    def render(self) -> Any:
        return np.full((2, 2, 3), self._done, np.uint8)


class Arriving(Leaving):
    """The third comes with the first step."""

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed)
        self.agents = self.agents[:2]
        return self._seen(self.agents), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        _, *rest = super().step(actions)
        if self._done == 1:
            self.agents = [*self.agents, "third"]
        return self._seen(self.possible_agents), *rest


class Deserted(Leaving):
    """Has no agent, ever."""

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed)
        self.agents = []
        return {}, {}


class Unknown(Leaving):
    """Does not say which agents there may be."""

    def __init__(self) -> None:
        super().__init__()
        del self.possible_agents


def parallel_env(**options: Any) -> Leaving:
    return Leaving(**options)


def nothing() -> object:
    return object()
