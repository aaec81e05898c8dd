"""The table of environments: their names, the modules that make them, and what is wrong with a name.

Importing this needs no package beyond the core. The module of an environment is imported when one is made.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from velodrome.errors import InputError
from velodrome.settings.names import hint
from velodrome.training.envs.extractor_hub import hub_rules

if TYPE_CHECKING:  # settings check names here; the interface needs numpy
    from velodrome.training.envs.interface import Teacher, VectorEnv
    from velodrome.training.settings import EnvSettings

Made = TypeVar("Made")


class EnvKind(NamedTuple):
    """One kind of environment."""

    names: str  # what its names look like
    module: str  # has make(settings), and make_teacher(env) if `teacher`
    extra: str  # installs what the module imports
    agents: Callable[[EnvSettings], int | None]  # in each environment; None if only the environment can tell
    teacher: bool = False
    unused: tuple[str, ...] = ()  # settings without effect


_HERE = "velodrome.training.envs"
KINDS = {
    "extractor_hub": EnvKind(
        "extractor_hub_<size>", f"{_HERE}.extractor_hub.env", "train", lambda settings: settings.agents, teacher=True
    ),
    "gymnasium": EnvKind(
        "gymnasium:<id>", f"{_HERE}.gymnasium_env", "train", lambda _: 1, unused=("agents", "max_steps", "notes")
    ),
    "mettagrid": EnvKind("mettagrid:<mission>", f"{_HERE}.mettagrid_env", "mettagrid", lambda _: None),
}


def kind_of(name: str) -> EnvKind:
    """The kind of a name that `name_problem` accepts."""
    return KINDS["extractor_hub" if hub_size(name) is not None else name.partition(":")[0]]


def hub_size(name: str) -> int | None:
    """The size of an extractor_hub; None for any other name."""
    hub = re.fullmatch(r"extractor_hub_([0-9]{1,4})", name)
    return int(hub[1]) if hub else None


def name_problem(name: str) -> str | None:
    """Why there is no environment of this name, as far as the name tells."""
    size, (kind, _, rest) = hub_size(name), name.partition(":")
    if size is not None:
        fits = hub_rules.MIN_SIZE <= size <= hub_rules.MAX_SIZE
        return None if fits else f"{name}: the size is from {hub_rules.MIN_SIZE} to {hub_rules.MAX_SIZE}"
    if rest and kind in ("gymnasium", "mettagrid"):
        return None
    digits = re.sub(r"[^0-9]", "", name) or "30"
    guess = hint(kind, ("gymnasium", "mettagrid"), cutoff=0.4) if rest else hint(name, [f"extractor_hub_{digits}"])
    if rest:
        guess = guess.replace('"?', f':{rest}"?')
    return f'no environment "{name}"{guess} ({", ".join(each.names for each in KINDS.values())})'


def agents_problem(name: str, agents: int) -> str | None:
    """Why an extractor_hub cannot have this many agents."""
    size = hub_size(name)
    if size is None or agents <= hub_rules.most_agents(size):
        return None
    return f"env.agents: {agents} are too many for {name}; at most {hub_rules.most_agents(size)}, or a larger size"


def make_env(settings: EnvSettings, seed: int) -> VectorEnv:
    """The environments that `settings.name` names, reset with `seed`."""
    problem = agents_problem(settings.name, settings.agents)
    if problem:
        raise InputError(problem)
    kind = kind_of(settings.name)
    try:
        env: VectorEnv = _fitting(settings, lambda: import_module(kind.module).make(settings))
    except ModuleNotFoundError as missing:
        needed = f'needs the package "{missing.name}" (pip install "velodrome[{kind.extra}]")'
        raise InputError(f"env.name={settings.name}: {needed}") from missing
    env.reset(seed)
    return env


def make_teacher(settings: EnvSettings, env: VectorEnv) -> Teacher | None:
    """The scripted teacher of this environment, if it has one."""
    kind = kind_of(settings.name)
    if not kind.teacher:
        return None
    teacher: Teacher = _fitting(settings, lambda: import_module(kind.module).make_teacher(env))
    return teacher


def _fitting(settings: EnvSettings, make: Callable[[], Made]) -> Made:
    """What `make` returns, if the machine has the memory."""
    try:
        return make()
    except MemoryError as error:
        size = f"env.num_envs={settings.num_envs} of {settings.name} with {settings.agents} agents"
        raise InputError(f"{size}: does not fit into memory ({error}); use fewer, or a smaller map") from error
