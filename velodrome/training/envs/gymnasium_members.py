"""Single environments of Gymnasium's, each with its row of the arrays, stepped one after another in one process.

A mask of the actions is the observation's key `action_mask`, else that of the info, else what the method
`action_masks` returns.
"""

from __future__ import annotations

from contextlib import ExitStack
from importlib import import_module
from typing import Any

import gymnasium

from velodrome.errors import InputError, blame
from velodrome.training.envs.interface import EnvArrays, Spec
from velodrome.training.envs.spaces import MASK, ActionWriter, MaskReader, MaskSource, ObservationReader
from velodrome.training.settings import EnvSettings

PREFIX = "gymnasium:"


def registered(settings: EnvSettings) -> str:
    """The id of `gymnasium:<id>` or `gymnasium:<module>:<id>`, after the module has registered it."""
    module, _, name = settings.name.removeprefix(PREFIX).rpartition(":")
    if module:
        import_module(module)
    return name


class GymnasiumMember:
    """One environment. After the end of an episode `step` starts the next."""

    def __init__(self, settings: EnvSettings, env: gymnasium.Env[Any, Any], source: MaskSource | None) -> None:
        where = f"env.name={settings.name}"
        self._env, self._repeat = env, settings.action_repeat
        self._reader = ObservationReader(where, env.observation_space, MASK if source == "observation" else None)
        self._writer = ActionWriter(where, env.action_space, masked=source is not None)
        self._mask = MaskReader(where, self._writer.actions, source, env)
        fields = self._reader.layout_fields()
        self.spec = Spec(settings.name, settings.num_envs, 1, self._writer.actions, **fields)  # of all environments

    def reset(self, seed: int | None, rows: EnvArrays) -> None:
        obs, info = self._env.reset(seed=seed)
        self._reader.write(obs, rows.obs[0])
        self._mask.write(obs, info, rows.action_mask[0])

    def step(self, rows: EnvArrays) -> None:
        action, total = self._writer.write(rows.actions[0]), 0.0
        for _ in range(self._repeat):
            obs, reward, terminal, truncated, info = self._env.step(action)
            total += float(reward)
            if terminal or truncated:
                break
        rows.rewards[:], rows.terminals[:], rows.truncations[:] = total, terminal, truncated
        if terminal or truncated:
            self._reader.write(obs, rows.final_obs[0])
            self.reset(None, rows)
        else:
            self._reader.write(obs, rows.obs[0])
            self._mask.write(obs, info, rows.action_mask[0])

    def close(self) -> None:
        self._env.close()


class Members:
    """Environments in this process, each with its row. None is left open if one cannot be made."""

    def __init__(self, settings: EnvSettings, mask: MaskSource | None, arrays: EnvArrays) -> None:
        self.arrays = arrays
        self._theirs = blame(InputError, f"env.name={settings.name}")  # for anything raised by their code
        with self._theirs, ExitStack() as undo:
            self._members: list[tuple[GymnasiumMember, EnvArrays]] = []
            for e in range(len(arrays.obs)):
                env = gymnasium.make(registered(settings), **(settings.options or {}), disable_env_checker=True)
                undo.callback(env.close)
                self._members.append((GymnasiumMember(settings, env, mask), arrays.rows(e, e + 1)))
            undo.pop_all()

    def reset(self, seeds: list[int]) -> None:
        with self._theirs:
            for (member, rows), seed in zip(self._members, seeds, strict=True):
                member.reset(seed, rows)

    def step(self) -> None:
        with self._theirs:
            for member, rows in self._members:
                member.step(rows)

    def close(self) -> None:
        with self._theirs:
            for member, _ in self._members:
                member.close()
