"""Environments of other packages, found by entry points of the group `velodrome.environments`:

    [project.entry-points."velodrome.environments"]
    weather = "weather_env.app:Weather"      # or "weather_env", a package with an app.py

The folder of the module is the environment's folder, with its `configs/` and `data/`. Finding it runs no code of
the package.
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
    """An installed environment. `owner` is the class, or empty if the entry point does not name one."""

    name: str
    module: str
    file: Path
    owner: str
    package: str


@cache
def _entries() -> dict[str, EntryPoint]:
    return {each.name: each for each in entry_points(group=GROUP)}


def installed_names() -> list[str]:
    """The names of all installed environments."""
    return sorted(_entries())


@cache
def installed_environment(name: str) -> InstalledEnvironment | None:
    """The installed environment of this name. Raises `InputError` if its entry point names no module."""
    entry = _entries().get(name)
    if entry is None:
        return None
    module, _, owner = (part.strip() for part in entry.value.partition(":"))
    package = entry.dist.name if entry.dist is not None else module.partition(".")[0]
    for place in (module,) if owner else (f"{module}.app", module):
        for file in _files(place):
            if file.is_file():
                return InstalledEnvironment(name, place, file, owner, package)
    what = f"{module} with an app.py" if not owner else module
    raise InputError(f'{name}: the entry point of {package} is "{entry.value}", and there is no module {what}')


def _files(module: str) -> list[Path]:
    """The files that a module may be. `find_spec` imports the parents of a module, so it gets the top one alone."""
    top, *below = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):  # no name of a module
        return []
    if spec is None:
        return []
    if spec.submodule_search_locations is None:
        return [Path(spec.origin)] if spec.origin and not below else []
    places = [Path(place, *below) for place in spec.submodule_search_locations]
    return [file for path in places for file in (path / "__init__.py", *([path.with_suffix(".py")] if below else []))]


def installed_place(path: str) -> Path | None:
    """Where `resources_servers/NAME/…` is, if an installed environment has this name."""
    kind, name, *below = (*PurePath(path).parts, "", "")
    environment = installed_environment(name) if kind == RESOURCES and name in _entries() else None
    return None if environment is None else environment.file.parent.joinpath(*filter(None, below))
