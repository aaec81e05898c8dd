"""`velo run --dev`: servers whose files changed restart; the others are not touched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from velodrome.errors import InputError
from velodrome.settings import Config, Instance, find_file

if TYPE_CHECKING:
    from velodrome.serving.process.supervisor import Supervisor

_DEBOUNCE_MS = 200
_LOOK_MS = 1000
_PACKAGE = Path(__file__).parents[2]


def folder_of(instance: Instance, cwd: Path) -> Path:
    """The folder with the implementation of an instance."""
    own = cwd / instance.kind / instance.implementation
    return own if own.is_dir() else _PACKAGE / instance.kind / instance.implementation


def concerned(changed: Iterable[Path], instances: Iterable[Instance], cwd: Path) -> list[str]:
    """The instances whose implementation a changed file belongs to."""
    paths = list(changed)
    return [
        instance.name
        for instance in instances
        if any(path.is_relative_to(folder_of(instance, cwd).resolve()) for path in paths)
    ]


def differing(before: Config, now: Config, names: Iterable[str]) -> list[str]:
    """The instances among these whose block is another now."""
    return [name for name in names if name in now.instances and before.instances[name] != now.instances[name]]


async def watch(supervisor: Supervisor, load: Callable[[], Config], say: Callable[[str], None], cwd: Path) -> None:
    """Until cancelled: restart the servers concerned whenever a file changes."""
    from watchfiles import awatch

    served = [supervisor.config.instances[name] for name in supervisor.servers if name in supervisor.config.instances]
    folders = {folder_of(instance, cwd).resolve() for instance in served}
    files = {path.resolve() for each in served if (path := find_file(each.source, cwd)) is not None}
    around = {cwd.resolve(), *(file.parent for file in files)}
    changes: asyncio.Queue[set[Path]] = asyncio.Queue()
    watching = asyncio.Barrier(3)

    async def follow(paths: set[Path], *, deep: bool) -> None:
        batches = awatch(*paths, recursive=deep, debounce=_DEBOUNCE_MS, rust_timeout=_LOOK_MS, yield_on_timeout=True)
        changes.put_nowait({Path(name) for _, name in await anext(batches)})  # it watches once it has yielded
        await watching.wait()
        async for batch in batches:
            if batch:
                changes.put_nowait({Path(name) for _, name in batch})

    async def act() -> None:
        await watching.wait()
        say(f"watching the files of {len(served)} servers for changes")
        while True:
            _act(await changes.get(), supervisor, load, say, cwd)

    async with asyncio.TaskGroup() as group:
        group.create_task(follow(folders, deep=True))
        group.create_task(follow(around, deep=False))
        group.create_task(act())


def _act(
    changed: set[Path], supervisor: Supervisor, load: Callable[[], Config], say: Callable[[str], None], cwd: Path
) -> None:
    running = supervisor.config.instances
    served = [running[name] for name in supervisor.servers if name in running]
    names = concerned((path for path in changed if path.suffix == ".py"), served, cwd)
    config = None
    if any(path.suffix in (".yaml", ".yml") for path in changed):
        try:
            config = load()
        except InputError as error:
            say(f"the configuration is left as it was: {error}")
            return
        names = sorted({*names, *differing(supervisor.config, config, [each.name for each in served])})
        if config.instances.keys() != running.keys():
            say("the configuration has other servers now: start velo run again to see them")
            return
    if names:
        say(f"changed: {', '.join(sorted(path.name for path in changed))}; restarting: {', '.join(names)}")
        supervisor.restart(names, config)
