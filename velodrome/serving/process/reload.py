"""`velo run --dev`: servers whose code changed restart; the others are not touched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from velodrome.serving.components import entry_file

if TYPE_CHECKING:
    from velodrome.serving.process.supervisor import Supervisor

_LOOK_S = 0.25


async def watch(supervisor: Supervisor, say: Callable[[str], None], cwd: Path) -> None:
    """Until cancelled: restart the servers concerned whenever a file of their folder changes."""
    instances = [each for name, each in supervisor.config.instances.items() if name in supervisor.servers]
    folders = {each.name: entry_file(each, cwd).parent.resolve() for each in instances}
    before = await asyncio.to_thread(_code, folders.values())
    say(f"watching the code of {len(instances)} servers for changes")
    while True:
        await asyncio.sleep(_LOOK_S)
        now = await asyncio.to_thread(_code, folders.values())
        changed, before = {path for path, _, _ in now ^ before}, now
        names = [name for name in sorted(folders) if any(path.is_relative_to(folders[name]) for path in changed)]
        if names:
            shown = ", ".join(sorted(path.name for path in changed))
            say(f"changed: {shown}; restarting: {', '.join(names)}")
            supervisor.restart(names)


def _code(folders: Iterable[Path]) -> set[tuple[Path, int, int]]:
    """The code of implementations: each file with its time and size."""
    seen = set()
    for path in {path for folder in folders for path in folder.rglob("*.py")}:
        with suppress(OSError):  # removed since
            seen.add((path, path.stat().st_mtime_ns, path.stat().st_size))
    return seen
