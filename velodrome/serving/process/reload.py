"""`velo run --dev`: restart the servers whose code changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from velodrome.serving.components import entry_file

if TYPE_CHECKING:
    from velodrome.serving.process.supervisor import Supervisor

_POLL_S = 0.25


async def watch(supervisor: Supervisor, say: Callable[[str], None], cwd: Path) -> None:
    """Restart servers when files in their folders change, until cancelled."""
    instances = [each for name, each in supervisor.config.instances.items() if name in supervisor.servers]
    folders = {each.name: entry_file(each, cwd).parent.resolve() for each in instances}
    before = await asyncio.to_thread(_code, folders.values())
    say(f"watching the code of {len(instances)} servers for changes")
    while True:
        await asyncio.sleep(_POLL_S)
        now = await asyncio.to_thread(_code, folders.values())
        changed_files, before = {path for path, _, _ in now ^ before}, now
        names = [name for name in sorted(folders) if any(path.is_relative_to(folders[name]) for path in changed_files)]
        if names:
            shown = ", ".join(sorted(path.name for path in changed_files))
            say(f"changed: {shown}; restarting: {', '.join(names)}")
            supervisor.restart(names)


def _code(folders: Iterable[Path]) -> set[tuple[Path, int, int]]:
    """The Python files in the folders, each with its time and size."""
    files = set()
    for path in {path for folder in folders for path in folder.rglob("*.py")}:
        with suppress(OSError):  # removed since
            files.add((path, path.stat().st_mtime_ns, path.stat().st_size))
    return files
