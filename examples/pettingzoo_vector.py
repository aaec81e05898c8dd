"""PettingZoo's parallel environments for `velo train`: a vector environment of Gymnasium's with a row for every agent.

    pip install pettingzoo
    PYTHONPATH=examples velo train cartpole run=pursuit 'env.options={"env": "sisl/pursuit-v5"}' \\
        env.name=gymnasium:pettingzoo_vector:PettingZoo-v0 env.num_envs=16

The agents of a game share one policy, so their spaces must be equal, and all of them play until its end. Rows beyond
the last whole game belong to one more game, whose other agents act at random.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pettingzoo
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space


class PettingZooVector(VectorEnv[Any, Any, Any]):
    """`env` is a name in PettingZoo's registry, or a function that makes a game; `options` are for it."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(self, num_envs: int, env: Any, autoreset_mode: AutoresetMode, **options: Any) -> None:
        if autoreset_mode is not AutoresetMode.SAME_STEP:
            raise ValueError("episodes start in the step that ends the last one: autoreset_mode must be SAME_STEP")
        self.num_envs = num_envs
        self._games = [self._made(env, options)]
        self._agents = list(self._games[0].possible_agents)
        self._games += [self._made(env, options) for _ in range(-(-num_envs // len(self._agents)) - 1)]
        seen, *others = {str(self._games[0].observation_space(agent)) for agent in self._agents}
        acted, *more = {str(self._games[0].action_space(agent)) for agent in self._agents}
        if others or more:
            raise ValueError(f"agents share one policy, so their spaces must be equal: {seen, acted}, {others + more}")
        self.single_observation_space = self._games[0].observation_space(self._agents[0])
        self.single_action_space = self._games[0].action_space(self._agents[0])
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    @staticmethod
    def _made(env: Any, options: dict[str, Any]) -> Any:
        return env(**options) if callable(env) else pettingzoo.make("parallel", env, **options)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        seeds = seed or [None] * self.num_envs
        first = [game.reset(seed=each)[0] for game, each in zip(self._games, seeds[:: len(self._agents)], strict=True)]
        return self._rows(first), {}

    def step(self, actions: Any) -> Any:
        shown, final, rewards, terminals, truncations = [], [], [], [], []
        for number, game in enumerate(self._games):
            own = dict(zip(self._agents, actions[number * len(self._agents) :], strict=False))
            seen, paid, ended, cut, _ = game.step({a: own.get(a, game.action_space(a).sample()) for a in self._agents})
            over = not game.agents
            if not over and len(game.agents) < len(self._agents):
                raise ValueError(f"{game.metadata.get('name')}: an agent left before the end of the game")
            final.append(seen)
            rewards.append(paid)
            truncations.append({agent: over and cut[agent] for agent in self._agents})
            terminals.append({agent: over and ended[agent] and not cut[agent] for agent in self._agents})
            shown.append(game.reset()[0] if over else seen)
        results = (self._rows(each) for each in (shown, rewards, terminals, truncations, final))
        observations, paid_N, ended_N, cut_N, final_N = results
        return observations, paid_N, ended_N, cut_N, {"final_obs": final_N}

    def _rows(self, games: list[dict[str, Any]]) -> Any:
        return np.array([game[agent] for game in games for agent in self._agents][: self.num_envs])

    def close_extras(self, **_: Any) -> None:
        for game in self._games:
            game.close()


gymnasium.register("PettingZoo-v0", vector_entry_point=PettingZooVector)
