"""Single environments, each with its own rows of the arrays: made and stepped one after another in one process."""

from __future__ import annotations

from contextlib import ExitStack
from importlib import import_module
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from velodrome.errors import InputError, blame
from velodrome.training.envs.env_arrays import EnvArrays
from velodrome.training.envs.spaces import MaskSource
from velodrome.training.settings import EnvSettings


class EnvPlan(NamedTuple):
    """What a worker has to know beside the settings to make a member."""

    module: str  # has make_member(settings, plan)
    renders: bool
    mask: MaskSource | None
    registered: bytes = b""  # gymnasium's entry for it, pickled; empty if its module registers it


class Member(Protocol):
    """One environment. After the end of an episode `step` starts the next."""

    def reset(self, seed: int, rows: EnvArrays) -> None: ...

    def step(self, rows: EnvArrays) -> None: ...

    def picture(self) -> NDArray[np.uint8] | None: ...

    def close(self) -> None: ...


class InProcess:
    """Environments in this process, each with its rows."""

    def __init__(self, where: str, members: list[Member], arrays: EnvArrays, agents: int) -> None:
        self.arrays = arrays
        self._members = [(member, arrays.rows(e * agents, (e + 1) * agents)) for e, member in enumerate(members)]
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
