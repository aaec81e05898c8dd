"""Three names that NeMo Gym's users type, as verbs of ours. docs/from-nemo-gym.md says what to type for the others."""

from __future__ import annotations

from collections.abc import Sequence

from velodrome.errors import InputError
from velodrome.settings.names import hint

COMMANDS = {
    "ng_run": ["run"],
    "ng_collect_rollouts": ["collect", "--json"],  # NeMo Gym's prints its metrics, on a terminal too
    "ng_viewer": ["view"],
}


def opened(name: str, words: Sequence[str]) -> list[str]:
    """The words after `velo` that a command of NeMo Gym's stands for."""
    if name not in COMMANDS:
        raise InputError(f"no command {name}{hint(name, COMMANDS)}; see docs/from-nemo-gym.md#commands")
    return [*COMMANDS[name], *("--help" if word in ("+help=true", "+h=true") else word for word in words)]
