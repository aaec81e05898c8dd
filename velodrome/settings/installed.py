"""Environments that other packages bring, by entry points of the group `velodrome.environments`:

    [project.entry-points."velodrome.environments"]
    weather = "weather_env.app:Weather"      # or "weather_env", a package with an app.py

The folder of the module is the environment's, with its `configs/` and `data/`. Nothing is imported to find it.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path, PurePath

from velodrome.errors import InputError
from velodrome.settings.names import RESOURCES

GROUP = "velodrome.environments"


@dataclass(frozen=True)
class InstalledEnvironment:
    """One of them: its module, the file that it is, the class in it if the entry point names one, and its package."""

    name: str
    module: str
    file: Path
    owner: str
    package: str


@cache
def _entries() -> dict[str, EntryPoint]:
    return {each.name: each for each in entry_points(group=GROUP)}


def installed_names() -> list[str]:
    """The names of all of them."""
    return sorted(_entries())


@cache
def installed_environment(name: str) -> InstalledEnvironment | None:
    """The one of this name; an `InputError` if its entry point leads nowhere."""
    entry = _entries().get(name)
    if entry is None:
        return None
    module, _, owner = entry.value.partition(":")
    package = entry.dist.name if entry.dist is not None else module.partition(".")[0]
    for there, file in _files(module.strip(), is_folder=not owner):
        if file.is_file():
            return InstalledEnvironment(name, there, file, owner.strip(), package)
    what = f"{module} with an app.py" if not owner else module
    raise InputError(f'{name}: the entry point of {package} is "{entry.value}", and there is no module {what}')


def installed_place(path: str) -> Path | None:
    """Where `resources_servers/NAME/…` is, if an installed environment has this name."""
    kind, name, *below = (*PurePath(path).parts, "", "")
    found = installed_environment(name) if kind == RESOURCES and name in _entries() else None
    return None if found is None else found.file.parent.joinpath(*filter(None, below))


def _files(module: str, *, is_folder: bool) -> list[tuple[str, Path]]:
    """The files that a module may be, as far as its top package is there."""
    top, *below = module.split(".")
    spec = importlib.util.find_spec(top) if top else None
    if spec is None:
        return []
    if spec.submodule_search_locations is None:
        return [(module, Path(spec.origin or ""))] if not below else []
    files = []
    for place in spec.submodule_search_locations:
        path = Path(place, *below)
        if is_folder:
            files.append((f"{module}.app", path / "app.py"))
        files += [(module, path.with_suffix(".py")), (module, path / "__init__.py")] if below or not is_folder else []
    return files
