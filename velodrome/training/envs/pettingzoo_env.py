"""PettingZoo's parallel environments behind our interface: equal spaces, and a row for each of `possible_agents`.

An agent that leaves before the end of the episode gets a terminal (or a truncation) in its last step. Its row is then
empty: nothing is seen, nothing is paid, and `alive` is False, so nothing is learned from it. The episode ends when no
agent is left; rows that were empty get a terminal, too, because the next observation starts an episode.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pettingzoo
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

from velodrome.errors import InputError, blame
from velodrome.training.envs.env_arrays import EnvArrays
from velodrome.training.envs.interface import Spec, VectorEnv
from velodrome.training.envs.members import EnvPlan
from velodrome.training.envs.pixel_letters import as_picture
from velodrome.training.envs.spaces import MASK, ActionWriter, MaskReader, MaskSource, ObservationReader, mask_source
from velodrome.training.envs.stepped import SteppedEnv, make_runner
from velodrome.training.settings import EnvSettings

PREFIX = "pettingzoo:"


def make(settings: EnvSettings, *, pictures: bool = False) -> VectorEnv:
    """The environments of `pettingzoo:<namespace>/<id>`, `pettingzoo:<module>` or `pettingzoo:<module>:<function>`."""
    with blame(InputError, f"env.name={settings.name}"):
        spec, plan = _probed(settings, pictures=pictures)
    return SteppedEnv(spec, make_runner(settings, spec, plan))


def make_member(settings: EnvSettings, plan: EnvPlan) -> ParallelMember:
    """One of the environments."""
    options = {"render_mode": "rgb_array"} if plan.renders else {}
    return ParallelMember(f"env.name={settings.name}", _made(settings, options), plan.mask, settings.action_repeat)


def _made(settings: EnvSettings, options: dict[str, Any]) -> ParallelEnv[Any, Any, Any]:
    name, options = settings.name.removeprefix(PREFIX), {**options, **(settings.options or {})}
    module, _, function = name.partition(":")
    if "/" in name:
        env = pettingzoo.make("parallel", name, **options)
    else:
        env = getattr(import_module(module), function or "parallel_env")(**options)
    if not isinstance(env, ParallelEnv):
        raise InputError(f"env.name={settings.name}: made a {type(env).__name__}, not a ParallelEnv")
    return env


def _probed(settings: EnvSettings, *, pictures: bool) -> tuple[Spec, EnvPlan]:
    """What only an environment can tell: its agents, their spaces, whether it renders, its masks."""
    env, where = _made(settings, {}), f"env.name={settings.name}"
    try:
        agents = list(getattr(env, "possible_agents", ()))
        if not agents:
            raise InputError(f"{where}: has no possible_agents, so there is no telling how many there will be")
        spaces = {agent: (env.observation_space(agent), env.action_space(agent)) for agent in agents}
        seen, acted = spaces[agents[0]]
        for agent, (other, others) in spaces.items():
            if (other, others) != (seen, acted):
                differs = f"{agents[0]} has {seen} and {acted}, {agent} has {other} and {others}"
                raise InputError(f"{where}: agents share one policy, so their spaces must be equal: {differs}")
        _, infos = env.reset(seed=0)
        source = mask_source(seen, acted, next(iter(infos.values()), {}), method=False)
        member = ParallelMember(where, env, source)
        fields = member.reader.layout_fields()
        spec = Spec(settings.name, settings.num_envs, len(agents), member.writer.actions, **fields, leavers=True)
        renders = pictures and "rgb_array" in env.metadata.get("render_modes", ())
        return spec, EnvPlan(__name__, renders, source)
    finally:
        env.close()


class ParallelMember:
    """One environment of PettingZoo's, with a row for each agent it may have."""

    def __init__(self, where: str, env: ParallelEnv[Any, Any, Any], source: MaskSource | None, repeat: int = 1) -> None:
        self._agents = list(env.possible_agents)
        seen, acted = env.observation_space(self._agents[0]), env.action_space(self._agents[0])
        self.reader = ObservationReader(where, seen, MASK if source == "observation" else None)
        self.writer = ActionWriter(where, acted, masked=source is not None)
        self._env = env
        self._source = source
        self._repeat = repeat
        self._mask = MaskReader(where, self.writer.actions)

    def reset(self, seed: int, rows: EnvArrays) -> None:
        seen, infos = self._env.reset(seed=seed)
        self._show(seen, infos, rows)

    def step(self, rows: EnvArrays) -> None:
        acting = [(k, agent) for k, agent in enumerate(self._agents) if rows.alive[k]]
        actions = {agent: self.writer.write(rows.actions[k]) for k, agent in acting}
        rows.rewards[:], rows.terminals[:], rows.truncations[:] = 0, False, False
        for _ in range(self._repeat):
            seen, rewards, terminals, truncations, infos = self._env.step(actions)
            for k, agent in acting:
                rows.rewards[k] += rewards.get(agent, 0.0)
            if any(terminals.values()) or any(truncations.values()):
                break
        there = set(self._env.agents)
        ended = [(k, a) for k, a in acting if terminals.get(a) or truncations.get(a) or a not in there]
        for k, agent in ended:
            rows.truncations[k] = truncations.get(agent, False)
            rows.terminals[k] = terminals.get(agent, False) or not rows.truncations[k]  # some leave without a word
            if agent in seen or rows.truncations[k]:
                self.reader.write(seen[agent], rows.final_obs[k])
        gone = {agent for _, agent in ended}
        left = [agent for agent in self._env.agents if agent not in gone]
        before = {agent for _, agent in acting}
        for k, agent in enumerate(self._agents):  # an empty row ends with the episode, or when its agent enters
            if agent not in before and (not left or agent in left):
                rows.terminals[k] = True
        if not left:
            seen, infos = self._env.reset()
            left = list(self._env.agents)
        self._show({agent: seen[agent] for agent in left}, infos, rows)

    def _show(self, seen: dict[Any, Any], infos: dict[Any, Any], rows: EnvArrays) -> None:
        for k, agent in enumerate(self._agents):
            rows.alive[k] = agent in seen
            if agent not in seen:
                rows.obs[k], rows.action_mask[k] = 0, True
                continue
            self.reader.write(seen[agent], rows.obs[k])
            if self._source is not None:
                mask = seen[agent][MASK] if self._source == "observation" else infos[agent][MASK]
                self._mask.write(mask, rows.action_mask[k])

    def picture(self) -> NDArray[np.uint8] | None:
        return as_picture(self._env.render()) if getattr(self._env, "render_mode", None) == "rgb_array" else None

    def close(self) -> None:
        self._env.close()
