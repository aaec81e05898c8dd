"""`velo run --dev`: servers whose files changed restart; the others are not touched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from velodrome.errors import InputError
from velodrome.serving.connect import entry_file
from velodrome.settings import Config, find_file

if TYPE_CHECKING:
    from velodrome.serving.process.supervisor import Supervisor

_LOOK_S = 0.25


async def watch(supervisor: Supervisor, load: Callable[[], Config], say: Callable[[str], None], cwd: Path) -> None:
    """Until cancelled: restart the servers concerned whenever a file changes."""
    instances = [each for name, each in supervisor.config.instances.items() if name in supervisor.servers]
    folders = {each.name: entry_file(each, cwd).parent.resolve() for each in instances}
    configs = {cwd, *(path.parent for each in instances if (path := find_file(each.source, cwd)) is not None)}
    acted = seen = await asyncio.to_thread(_files, folders.values(), configs)
    say(f"watching the files of {len(instances)} servers for changes")
    while True:
        await asyncio.sleep(_LOOK_S)
        before, seen = seen, await asyncio.to_thread(_files, folders.values(), configs)
        if seen == before != acted:  # nobody is writing any more
            changed = {path for path in acted.keys() | seen.keys() if acted.get(path) != seen.get(path)}
            acted = seen
            _act(changed, folders, supervisor, load, say)


def _files(folders: Iterable[Path], configs: Iterable[Path]) -> dict[Path, tuple[int, int]]:
    """What may change a server: the code of its implementation, and configs; each with its time and size."""
    files = {path for folder in configs for pattern in ("*.yaml", "*.yml") for path in folder.glob(pattern)}
    for folder in folders:
        files.update(folder.rglob("*.py"))
    seen = {}
    for path in files:
        try:
            about = path.stat()
        except OSError:
            continue  # removed since
        seen[path.resolve()] = about.st_mtime_ns, about.st_size
    return seen


def _act(
    changed: set[Path],
    folders: Mapping[str, Path],
    supervisor: Supervisor,
    load: Callable[[], Config],
    say: Callable[[str], None],
) -> None:
    running, config = supervisor.config.instances, None
    restarted = {
        name
        for name, folder in folders.items()
        if any(path.suffix == ".py" and path.is_relative_to(folder) for path in changed)
    }
    if any(path.suffix != ".py" for path in changed):
        try:
            config = load()
        except InputError as error:
            say(f"the configuration is left as it was: {error}")
            return
        if config.instances.keys() != running.keys():
            say("the configuration has other servers now: start velo run again to see them")
            return
        restarted |= {name for name in folders if config.instances[name] != running[name]}
    if restarted:
        shown = ", ".join(sorted(path.name for path in changed))
        say(f"changed: {shown}; restarting: {', '.join(sorted(restarted))}")
        supervisor.restart(sorted(restarted), config)
