"""Names of environments: which one is meant, and what is wrong with the name. Needs no package beyond the core."""

from __future__ import annotations

import re

from velodrome.settings.names import hint
from velodrome.training.envs.extractor_hub import hub_rules

FOREIGN = {  # module with make(settings), and the extra that installs what it imports
    "gymnasium": ("velodrome.training.envs.gymnasium_env", "train"),
    "mettagrid": ("velodrome.training.envs.mettagrid_env", "mettagrid"),
}

_OWN = re.compile(r"extractor_hub_([0-9]{1,4})")


def own_size(name: str) -> int | None:
    """The size of one of our own missions; None for any other name."""
    own = _OWN.fullmatch(name)
    return int(own[1]) if own else None


def foreign_kind(name: str) -> str | None:
    """`gymnasium` or `mettagrid`; None for any other name."""
    kind, _, rest = name.partition(":")
    return kind if rest and kind in FOREIGN else None


def name_problem(name: str) -> str | None:
    """Why there is no environment of this name, as far as the name tells."""
    size = own_size(name)
    if size is not None:
        fits = hub_rules.MIN_SIZE <= size <= hub_rules.MAX_SIZE
        return None if fits else f"{name}: the size is from {hub_rules.MIN_SIZE} to {hub_rules.MAX_SIZE}"
    if foreign_kind(name):
        return None
    kind, _, rest = name.partition(":")
    digits = re.sub(r"[^0-9]", "", name) or "30"
    guess = hint(kind, FOREIGN, cutoff=0.4) if rest else hint(name, [f"extractor_hub_{digits}"])
    if rest:
        guess = guess.replace('"?', f':{rest}"?')
    return f'no environment "{name}"{guess} (extractor_hub_<size>, gymnasium:<id>, mettagrid:<mission>)'


def agents_problem(name: str, agents: int) -> str | None:
    """Why one of our own missions cannot have this many agents."""
    size = own_size(name)
    if size is None or agents <= hub_rules.most_agents(size):
        return None
    return f"env.agents: {agents} are too many for {name}; at most {hub_rules.most_agents(size)}, or a larger size"
