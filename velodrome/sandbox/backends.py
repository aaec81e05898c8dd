"""Which kind of sandbox works on this machine. Tried once per process, when the first box is opened."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

import velodrome.sandbox.bubblewrap as bubblewrap
import velodrome.sandbox.plain as plain
from velodrome.errors import InputError
from velodrome.sandbox.started import Start

UNSAFE = "unsafe"
_log = logging.getLogger(__name__)
_problems: dict[str, str | None] = {}  # what was found, by name


class Backend(NamedTuple):
    name: str
    start: Start


_SAFE: dict[str, tuple[Callable[[], str | None], Start]] = {
    "bubblewrap": (bubblewrap.problem, bubblewrap.start),
    "sandlock": (plain.sandlock_problem, plain.start_confined),
}


async def choose(allow_unsafe: bool, only: str | None = None) -> Backend:
    """The first kind that works, or the one that is asked for; InputError if there is none that is allowed."""
    for name, (problem, start) in _SAFE.items():
        if only not in (None, name):
            continue
        if name not in _problems:
            _problems[name] = await asyncio.to_thread(problem)
        if _problems[name] is None:
            return Backend(name, start)
    if not allow_unsafe:
        tried = "; ".join(f"{name}: {why}" for name, why in _problems.items() if only in (None, name))
        raise InputError(
            f"no sandbox works on this machine ({tried}); hint: see docs/sandbox.md#no-sandbox-works, or run the "
            "model's code unprotected with allow_unsafe=true"
        )
    if UNSAFE not in _problems:
        _problems[UNSAFE] = None
        _log.warning("allow_unsafe: the model's code runs WITHOUT a sandbox: it can read, write and reach what you can")
    return Backend(UNSAFE, plain.start_unsafe)
