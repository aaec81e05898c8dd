"""Names of environments: which one is meant, and why another is none. Needs no package, so that settings can be checked
before any is there."""

from __future__ import annotations

import re

from velodrome.settings.spelling import hint
from velodrome.training.envs.extractor_hub import rules

FOREIGN = {  # module with make(settings), and the extra that brings what it imports
    "gymnasium": ("velodrome.training.envs.gymnasium_env", "train"),
    "mettagrid": ("velodrome.training.envs.mettagrid_env", "mettagrid"),
}

_OWN = re.compile(r"extractor_hub_([0-9]{1,4})")


def own_size(name: str) -> int | None:
    """The size of one of our own missions; None if it is none."""
    own = _OWN.fullmatch(name)
    return int(own[1]) if own else None


def foreign_kind(name: str) -> str | None:
    """Whose environment it is, if it is somebody else's that we know how to ask for."""
    kind, _, rest = name.partition(":")
    return kind if rest and kind in FOREIGN else None


def faults(name: str, agents: int) -> list[str]:
    """Why there is no such environment with so many agents in it, as far as its name tells."""
    size = own_size(name)
    if size is not None:
        return unfit(size, agents)
    return [] if foreign_kind(name) else [_unknown(name)]


def unfit(size: int, agents: int) -> list[str]:
    """Why a mission of ours cannot be of this size, or have so many agents."""
    name = f"extractor_hub_{size}"
    if not rules.MIN_SIZE <= size <= rules.MAX_SIZE:
        return [f"env.name: {name}: the size is from {rules.MIN_SIZE} to {rules.MAX_SIZE}"]
    most = rules.most_agents(size)
    if agents > most:
        return [f"env.agents: {agents} are too many for {name}; at most {most}, or a larger size"]
    return []


def _unknown(name: str) -> str:
    kind, _, rest = name.partition(":")
    digits = re.sub(r"[^0-9]", "", name) or "30"
    guess = hint(kind, FOREIGN, cutoff=0.4) if rest else hint(name, [f"extractor_hub_{digits}"])
    if rest:
        guess = guess.replace('"?', f':{rest}"?')
    return f'env.name: no environment "{name}"{guess} (extractor_hub_<size>, gymnasium:<id>, mettagrid:<mission>)'
