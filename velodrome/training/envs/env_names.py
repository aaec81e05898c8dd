"""The table of environments: their names, the modules that make them, and what is wrong with a name.

This needs no package beyond the core.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable
from typing import NamedTuple

from velodrome.settings.names import hint
from velodrome.training.envs.extractor_hub import hub_rules


class EnvKind(NamedTuple):
    """One kind of environment."""

    names: str  # what its names look like
    module: str  # has make(settings), and make_teacher(env) if `teacher`
    extra: str  # installs what the module imports
    agents: Callable[[int], int | None]  # in each environment, by `env.agents`; None if only the environment knows
    teacher: bool = False
    unused: tuple[str, ...] = ()  # settings without effect
    wheels: tuple[str, ...] = ()  # where its extra installs something; everywhere if empty


_STEPPED = ("options", "action_repeat", "workers")  # settings of Gymnasium's environments
_HERE = "velodrome.training.envs"
MEMORY, LONGEST_MEMORY = "memory:", 1000
KINDS = {
    "extractor_hub": EnvKind(
        "extractor_hub_<size>",
        f"{_HERE}.extractor_hub.env",
        "train",
        lambda agents: agents,
        teacher=True,
        unused=_STEPPED,
    ),
    "gymnasium": EnvKind(
        "gymnasium:<id>",
        f"{_HERE}.gymnasium_env",
        "train",
        lambda _: 1,
        unused=("agents", "max_steps", "notes"),
    ),
    "mettagrid": EnvKind(
        "mettagrid:<mission>",
        f"{_HERE}.mettagrid_env",
        "mettagrid",
        lambda _: None,
        unused=_STEPPED,
        wheels=("Python 3.11 on Linux x86_64", "Python 3.12 on Linux x86_64"),
    ),
    "memory": EnvKind(
        f"{MEMORY}<steps>",
        f"{_HERE}.memory_env",
        "train",
        lambda _: 1,
        unused=("agents", "max_steps", "notes", *_STEPPED),
    ),
}


def kind_of(name: str) -> EnvKind:
    """The kind of a name that `name_problem` accepts."""
    return KINDS["extractor_hub" if hub_size(name) is not None else name.partition(":")[0]]


def no_wheel(kind: EnvKind) -> str | None:
    """Why its extra installs nothing on this interpreter and machine."""
    python = ".".join(platform.python_version_tuple()[:2])
    here = f"Python {python} on {platform.system()} {platform.machine()}"
    if not kind.wheels or here in kind.wheels:
        return None
    return f"{kind.extra} has no wheel for {here}, only for {' and '.join(kind.wheels)}"


def hub_size(name: str) -> int | None:
    """The size of an extractor_hub; None for any other name."""
    hub = re.fullmatch(r"extractor_hub_([0-9]{1,4})", name)
    return int(hub[1]) if hub else None


def name_problem(name: str) -> str | None:
    """Why there is no environment of this name, judged by the name alone."""
    size, (kind, _, rest) = hub_size(name), name.partition(":")
    if size is not None:
        fits = hub_rules.MIN_SIZE <= size <= hub_rules.MAX_SIZE
        return None if fits else f"{name}: the size is from {hub_rules.MIN_SIZE} to {hub_rules.MAX_SIZE}"
    if rest and kind in ("gymnasium", "mettagrid"):
        return None
    if rest and name.startswith(MEMORY):
        fits = rest.isdecimal() and 1 <= int(rest) <= LONGEST_MEMORY
        return None if fits else f"{name}: the steps between cue and choice are from 1 to {LONGEST_MEMORY}"
    forms = ", ".join(each.names for each in KINDS.values())
    return f'no environment "{name}"{hint(kind, KINDS, cutoff=0.5)} ({forms})'


def agents_problem(name: str, agents: int) -> str | None:
    """Why an extractor_hub cannot have this many agents."""
    size = hub_size(name)
    if size is None or agents <= hub_rules.most_agents(size):
        return None
    return f"env.agents: {agents} are too many for {name}; at most {hub_rules.most_agents(size)}, or a larger size"
