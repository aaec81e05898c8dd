"""Environments that are stepped one by one, here or in worker processes, each writing its own rows of the arrays."""

from __future__ import annotations

from contextlib import ExitStack
from importlib import import_module
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from velodrome.errors import InputError, blame
from velodrome.training.envs.env_arrays import EnvArrays, allocate_arrays
from velodrome.training.envs.interface import Array, Spec
from velodrome.training.envs.pixel_letters import PALETTE, letters_of, plain_picture
from velodrome.training.envs.reset_only import ResetOnly
from velodrome.training.envs.spaces import MaskSource
from velodrome.training.settings import EnvSettings


class EnvPlan(NamedTuple):
    """What a worker has to know beside the settings to make a member."""

    module: str  # has make_member(settings, plan)
    renders: bool
    mask: MaskSource | None


class Member(Protocol):
    """One environment. After the end of an episode `step` starts the next."""

    def reset(self, seed: int, rows: EnvArrays) -> None: ...

    def step(self, rows: EnvArrays) -> None: ...

    def picture(self) -> NDArray[np.uint8] | None: ...

    def close(self) -> None: ...


class Runner(Protocol):
    """Steps every environment."""

    rows: EnvArrays

    def reset(self, seeds: list[int]) -> None: ...

    def step(self) -> None: ...

    def picture(self, env: int) -> NDArray[np.uint8] | None: ...

    def close(self) -> None: ...


class InProcess:
    """Environments in this process, each with its rows."""

    def __init__(self, where: str, members: list[Member], rows: EnvArrays, agents: int) -> None:
        self.rows = rows
        self._members = [(member, rows.of(e, agents)) for e, member in enumerate(members)]
        self._theirs = blame(InputError, where)  # for anything raised by their code

    def reset(self, seeds: list[int]) -> None:
        with self._theirs:
            for (member, rows), seed in zip(self._members, seeds, strict=True):
                member.reset(seed, rows)

    def step(self) -> None:
        with self._theirs:
            for member, rows in self._members:
                member.step(rows)

    def picture(self, env: int) -> NDArray[np.uint8] | None:
        with self._theirs:
            return self._members[env][0].picture()

    def close(self) -> None:
        with self._theirs:
            for member, _ in self._members:
                member.close()


def make_members(settings: EnvSettings, plan: EnvPlan, count: int) -> list[Member]:
    """So many environments; none is left open if one cannot be made."""
    make, members = import_module(plan.module).make_member, list[Member]()
    with blame(InputError, f"env.name={settings.name}"), ExitStack() as undo:
        for _ in range(count):
            members.append(make(settings, plan))
            undo.callback(members[-1].close)
        undo.pop_all()
    return members


def make_runner(settings: EnvSettings, spec: Spec, plan: EnvPlan) -> Runner:
    """All environments, here or in `env.workers` processes."""
    members = make_members(settings, plan, settings.num_envs)
    return InProcess(f"env.name={settings.name}", members, allocate_arrays(spec, np.zeros), spec.agents)


class SteppedEnv(ResetOnly):
    """Many environments, by a runner."""

    def __init__(self, spec: Spec, runner: Runner) -> None:
        super().__init__(spec, runner.rows)
        self.action_names: list[str] = []  # unknown
        self.palette = PALETTE
        self._runner = runner

    def reset(self, seed: int) -> None:
        self._begin_counting()
        self._runner.reset(np.random.SeedSequence(seed).generate_state(self.spec.num_envs).tolist())

    def step(self, actions_N: Array) -> None:
        self._runner.rows.actions[:] = actions_N
        self._runner.step()
        self._count()

    def letters(self, env: int) -> NDArray[np.uint8]:
        picture = self.picture(env)
        return letters_of(plain_picture(self.spec, self.obs[env * self.spec.agents]) if picture is None else picture)

    def picture(self, env: int) -> NDArray[np.uint8] | None:
        return self._runner.picture(env)

    def close(self) -> None:
        self._runner.close()
