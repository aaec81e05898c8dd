"""The available environments: in the working directory, in installed packages, and built in.

If several have the same name, a config or `velo test` uses the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from velodrome.errors import InputError
from velodrome.settings.files import in_package
from velodrome.settings.installed import installed_environment, installed_names
from velodrome.settings.names import RESOURCES

Json = dict[str, Any]

_SHOWN = ("*.y*ml", "configs/*.y*ml", "data/example.jsonl")


@dataclass(frozen=True)
class CatalogueEntry:
    """One environment: its name, a one-line description, its origin, and its folder."""

    name: str
    about: str
    origin: str
    folder: Path

    @property
    def files(self) -> list[str]:
        """Its configs and example tasks, in the form used in configs and on the command line."""
        paths = sorted(path for pattern in _SHOWN for path in self.folder.glob(pattern))
        return [f"{RESOURCES}/{self.name}/{path.relative_to(self.folder).as_posix()}" for path in paths]

    def as_json(self) -> Json:
        return {"name": self.name, "about": self.about, "origin": self.origin, "files": self.files}


def catalogue(cwd: Path) -> list[CatalogueEntry]:
    """All environments, one per name; the working directory comes before packages, and those before built-ins."""
    entries: dict[str, CatalogueEntry] = {}
    local, built_in = _folders([cwd / RESOURCES], "this folder"), _folders(in_package(RESOURCES), "built in")
    for entry in (*local, *_installed(), *built_in):
        entries.setdefault(entry.name, entry)
    return list(entries.values())


def _folders(homes: list[Path], origin: str) -> Iterator[CatalogueEntry]:
    for app in sorted((app for home in homes for app in home.glob("*/app.py")), key=lambda app: app.parent.name):
        yield CatalogueEntry(app.parent.name, summary(app.parent), origin, app.parent)


def _installed() -> Iterator[CatalogueEntry]:
    for name in installed_names():
        try:
            environment = installed_environment(name)
        except InputError as error:
            yield CatalogueEntry(name, str(error), "installed", Path("/nonexistent"))
            continue
        assert environment is not None
        yield CatalogueEntry(
            name, summary(environment.file.parent), f"package {environment.package}", environment.file.parent
        )


def summary(folder: Path) -> str:
    """The first paragraph of the folder's README."""
    readme = folder / "README.md"
    if not readme.is_file():
        return "(no README.md)"
    text = readme.read_text(encoding="utf-8", errors="replace")
    words = [part.strip() for part in text.split("\n\n") if part.strip() and not part.startswith("#")]
    return " ".join(words[0].split()) if words else "(README.md is empty)"
