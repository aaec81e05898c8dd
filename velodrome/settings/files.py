"""Find configuration files and the files they include. An included file comes before the one that names it.

A file is read once, at the first place that names it, so two files may share a third.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from velodrome.settings.documents import Refused, read_document
from velodrome.settings.names import KINDS, nearest

PACKAGE = Path(__file__).resolve().parent.parent
ENV_FILE = "env.yaml"


@dataclass(frozen=True)
class Layer:
    """The values of one source, under the name that problems give it."""

    label: str
    data: dict[str, Any]


def find_file(path: str, cwd: Path) -> Path | None:
    """The file a path names: in the working directory, else in the package."""
    places = [place for place in (cwd / path, PACKAGE / path) if _exists(place)]
    return next((place for place in places if place.is_file()), places[0] if places else None)


def way_to_data(path: Path) -> str:
    """`; to fetch it: COMMAND` if a component of the package can prepare this file of its data, else nothing."""
    kind, name, *below = (*path.parts, "", "")
    if path.is_absolute() or below[:1] != ["data"] or not _exists(PACKAGE / kind / name / "prepare.py"):
        return ""
    return f"; to fetch it: python -m velodrome.{kind}.{name}.prepare --output {path}"


def _exists(place: Path) -> bool:
    try:
        return place.exists()
    except (OSError, ValueError):
        return False


class Reader:
    """Reads the layers of one load. `whole` turns false when a file could not be read, so its keys are unknown."""

    def __init__(self, cwd: Path, problems: list[str]) -> None:
        self.cwd = cwd
        self.problems = problems
        self.whole = True
        self._seen: set[Path] = set()

    def read_env(self) -> Layer:
        file = self.cwd / ENV_FILE
        return Layer(ENV_FILE, self._read(file, ENV_FILE) if _exists(file) else {})

    def read_all(self, paths: Any, source: str) -> list[Layer]:
        """The layers of a `config_paths` value that stands in `source`, weakest first."""
        return list(self._include(paths, source, ()))

    def _include(self, paths: Any, source: str, chain: tuple[tuple[Path, str], ...]) -> Iterator[Layer]:
        for path in self._listed(paths, source):
            file = find_file(path, self.cwd)
            if file is None:
                self._fail(self._absent(path, source))
                continue
            real = file.resolve()
            if real in (parent for parent, _ in chain):
                names = " -> ".join([*(name for _, name in chain), path])
                self._fail(f"{source}: config_paths go round in a circle: {names}; remove one of them")
                continue
            if real in self._seen:
                continue
            self._seen.add(real)
            data = self._read(file, path)
            yield from self._include(data.pop("config_paths", None), path, (*chain, (real, path)))
            yield Layer(path, data)

    def _listed(self, paths: Any, source: str) -> list[str]:
        if paths is None:
            return []
        listed = [paths] if isinstance(paths, str) else paths
        if isinstance(listed, list) and all(isinstance(path, str) and path for path in listed):
            return listed
        self._fail(f"{source}: config_paths must be a list of files, as in +config_paths=[a.yaml,b.yaml]")
        return []

    def _read(self, file: Path, label: str) -> dict[str, Any]:
        try:
            return read_document(file, label, self.problems)
        except Refused as refused:
            self._fail(str(refused))
            return {}

    def _fail(self, problem: str) -> None:
        self.whole = False
        self.problems.append(problem)

    def _absent(self, path: str, source: str) -> str:
        guess = nearest(path, _yaml_files(path, self.cwd))
        way_out = f'did you mean "{guess}"?' if guess else "check the path"
        return f'{source}: config_paths: no file "{path}" in {self.cwd} or in the velodrome package; {way_out}'


def _yaml_files(path: str, cwd: Path) -> Iterator[str]:
    """Files that could have been meant: beside the one named, and the configs of every implementation."""
    folder = "" if Path(path).is_absolute() or ".." in Path(path).parts else str(Path(path).parent)
    patterns = ["*.y*ml", *(f"{kind}/*/configs/*.y*ml" for kind in KINDS)]
    for base in (cwd, PACKAGE):
        try:
            beside = (base / folder).glob("*.y*ml") if folder else iter(())
            for file in (*beside, *(file for pattern in patterns for file in base.glob(pattern))):
                yield file.relative_to(base).as_posix()
        except (OSError, ValueError):
            continue
