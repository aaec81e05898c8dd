"""Find files: configurations and what they include, and inputs. Read each configuration once into plain data.

An included file comes before the file that includes it. It is read only once, so two files may include the same third.
Each problem with a file is one line. Every key is text.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import yaml

from velodrome.errors import InputError
from velodrome.settings.installed import installed_place
from velodrome.settings.names import HOMES, KINDS, nearest

_TAG = "tag:yaml.org,2002:"
# YAML 1.1 requires a dot and a sign in the exponent; OmegaConf accepts 1e-5.
_FLOAT = re.compile(
    r"""^(?:[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+]?[0-9]+)?
        |[-+]?(?:[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)
        |[-+]?\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?
        |[-+]?\.(?:inf|Inf|INF)
        |\.(?:nan|NaN|NAN))$""",
    re.VERBOSE,
)
_PLAIN = {_TAG + name for name in ("str", "int", "float", "bool", "null", "map", "seq")}
_PARENT: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MOST_VALUES, _DEEPEST = 100_000, 50


class UnusableFileError(Exception):
    """A file cannot be used; the message is the problem line."""


def read_document(file: Path, label: str, problems: list[str]) -> dict[str, Any]:
    """The mapping in a YAML file. Duplicate keys go to `problems`; anything worse raises `UnusableFileError`."""
    text = _read_text(file, label)
    loader = _Loader(text)
    try:
        _check_size(text, label)
        data = loader.get_single_data()
    except yaml.YAMLError as error:
        raise UnusableFileError(_syntax_problem(label, error)) from None
    except ValueError as error:
        raise UnusableFileError(f"{label}: a value cannot be read: {error}") from None
    finally:
        loader.dispose()
    problems += [
        f"{label}:{line}: the key {key!r} is twice in one mapping; keep one" for line, key in loader.duplicates
    ]
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise UnusableFileError(
            f"{label}: holds {'a list' if isinstance(data, list) else 'a single value'}, not a mapping of keys"
        )
    return data


def _read_text(file: Path, label: str) -> str:
    try:
        if not file.is_file():
            what = "a directory" if file.is_dir() else "not a regular file"
            raise UnusableFileError(f"{label}: is {what}; name a YAML file")
        raw = file.read_bytes()
    except OSError as error:
        raise UnusableFileError(f"{label}: cannot be read ({error.strerror or type(error).__name__})") from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UnusableFileError(f"{label}:{line}: is not UTF-8 text; save it as UTF-8") from None


def _check_size(text: str, label: str) -> None:
    """Refuse a file with too many values, aliases expanded, or with too many levels."""
    sizes, anchors = [0], list[str | None]()  # of each open collection
    anchor_sizes: dict[str, int] = {}
    for event in yaml.parse(text, Loader=_PARENT):
        if isinstance(event, yaml.AliasEvent):
            sizes[-1] += anchor_sizes.get(event.anchor or "", 0)
        elif isinstance(event, yaml.ScalarEvent):
            sizes[-1] += 1
        elif isinstance(event, yaml.CollectionStartEvent):
            sizes.append(1)
            anchors.append(event.anchor)
        elif isinstance(event, yaml.CollectionEndEvent):
            size, anchor = sizes.pop(), anchors.pop()
            sizes[-1] += size
            if anchor is not None:
                anchor_sizes[anchor] = size
        if sizes[-1] > _MOST_VALUES or len(sizes) > _DEEPEST:
            raise UnusableFileError(
                f"{label}: holds more than {_MOST_VALUES:,} values or {_DEEPEST} levels; too large for a config"
            )


class _Loader(_PARENT):  # type: ignore[misc]
    """PyYAML's safe loader for plain values: keys as text, duplicates noted, numbers as in OmegaConf."""

    yaml_implicit_resolvers: dict[str, Any] = {  # noqa: RUF012 - the name and shape PyYAML reads
        first: [(tag, pattern) for tag, pattern in pairs if tag in _PLAIN - {_TAG + "float"} or tag == _TAG + "merge"]
        for first, pairs in _PARENT.yaml_implicit_resolvers.items()
    }
    yaml_constructors: dict[Any, Any] = {  # noqa: RUF012 - as above
        tag: make for tag, make in _PARENT.yaml_constructors.items() if tag is None or tag in _PLAIN
    }

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.duplicates: list[tuple[int, str]] = []

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[str, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or not key.value:
                raise yaml.constructor.ConstructorError(None, None, "a key must be text", key.start_mark)
            if key.value in seen and key.tag != _TAG + "merge":
                self.duplicates.append((key.start_mark.line + 1, key.value))
            seen.add(key.value)
        self.flatten_mapping(node)
        return {key.value: self.construct_object(value, deep=True) for key, value in node.value}


_Loader.add_implicit_resolver(_TAG + "float", _FLOAT, list("-+0123456789."))


def _syntax_problem(label: str, error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    what = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be read"
    where = f"{label}:{mark.line + 1}" if mark is not None else label
    return f"{where}: not valid YAML: {what}"


PACKAGE = Path(__file__).resolve().parent.parent
ENV_FILE = "env.yaml"


@dataclass(frozen=True)
class Layer:
    """The values of one source; `label` names it in problems."""

    label: str
    data: dict[str, Any]


def find_file(path: str, cwd: Path) -> Path | None:
    """Find a file in the working directory, in the folder of an installed environment, or in the package."""
    places = [place for place in _places(path, cwd) if _exists(place)]
    return next((place for place in places if place.is_file()), places[0] if places else None)


def _places(path: str, cwd: Path) -> Iterator[Path]:
    yield cwd / path
    if not _exists(cwd / path):
        installed = installed_place(path)
        if installed is not None:
            yield installed
    yield from in_package(path)


def in_package(path: str | PurePath) -> list[Path]:
    """Where in the package a path such as `resources_servers/NAME/app.py` may be: wings have folders of other names."""
    kind, *below = PurePath(path).parts or ("",)
    return [PACKAGE.joinpath(home, *below) for home in HOMES.get(kind, (kind,))]


def implementations(kind: str, root: Path) -> list[str]:
    """The names of the components of a kind in a working directory, or in the package."""
    folders = in_package(kind) if root == PACKAGE else [root / kind]
    return [app.parent.name for folder in folders for app in sorted(folder.glob("*/app.py"))]


def configs_of(kind: str, root: Path) -> Iterator[str]:
    """The configs of these components, as in a command: `resources_servers/NAME/configs/NAME.yaml`."""
    for folder in in_package(kind) if root == PACKAGE else [root / kind]:
        for file in folder.glob("*/configs/*.y*ml"):
            yield f"{kind}/{file.relative_to(folder).as_posix()}"


def find_input(path: Path) -> Path:
    """Find a file to read, in the working directory or in the package. Raises `InputError` if there is none."""
    place = find_file(str(path), Path.cwd())
    if place is None:
        way = way_to_file(path, path, *in_package(path))
        raise InputError(f"{path}: no such file (looked in this folder and in the package){way}")
    if not place.is_file():
        raise InputError(f"{path}: not a regular file; the input is read twice, so a pipe does not work")
    return path if _exists(path) else place


def find_inputs(path: Path) -> list[Path]:
    """Find the files to read of a path or a pattern (`shards/*.jsonl`), sorted by name."""
    if not is_pattern(path):
        return [find_input(path)]
    paths = sorted(Path(name) for name in glob.glob(str(path), recursive=True) if os.path.isfile(name))
    if not paths:
        raise InputError(f"{path}: no file matches")
    return paths


def is_pattern(path: Path) -> bool:
    """Whether a path is a glob pattern, and not the name of an existing file."""
    return glob.has_magic(str(path)) and find_file(str(path), Path.cwd()) is None


def file_problem(path: str | Path) -> str | None:
    """The problem if this is not a regular file, with the closest file name as a suggestion; or None."""
    if os.path.isfile(path):  # Path.is_file raises if the name is too long
        return None
    if os.path.exists(path):
        return f"{path}: not a regular file"
    return f"{path}: no such file{way_to_file(Path(path))}"


def way_to_file(path: Path, *places: Path) -> str:
    """The hint after "no such file": the command that fetches it, the nearest name in one of the places, or nothing."""
    kind, name, *below = (*path.parts, "", "")
    if not path.is_absolute() and below[:1] == ["data"]:
        for home in in_package(Path(kind, name)):
            if _exists(home / "prepare.py"):
                module = ".".join(home.relative_to(PACKAGE.parent).parts)
                return f"; to fetch it: python -m {module}.prepare --output {path}"
    guess = next(filter(None, (_nearest_file(path, place) for place in places or (path,))), None)
    return f'; did you mean "{guess}"?' if guess else ""


def _nearest_file(path: Path, place: Path) -> str | None:
    """The path with the nearest file name of the same type in the folder of `place`."""
    try:
        names = os.listdir(place.parent)
    except (OSError, ValueError):
        return None
    guess = nearest(path.name, (name for name in names if _file_type(name) == _file_type(path.name)), cutoff=0.75)
    return guess and str(path.parent / guess)


def _file_type(name: str) -> str:
    """The suffix of a name, the same for compressed files, and for `.yml` and `.yaml`."""
    return Path(name.removesuffix(".zst")).suffix.replace(".yml", ".yaml")


def _exists(place: Path) -> bool:
    try:
        return place.exists()
    except (OSError, ValueError):
        return False


class Reader:
    """Reads the layers of one load. `complete` is false after a file could not be read: its keys are unknown."""

    def __init__(self, cwd: Path, problems: list[str]) -> None:
        self.cwd = cwd
        self.problems = problems
        self.complete = True
        self._files_read: set[Path] = set()

    def read_env(self) -> Layer:
        file = self.cwd / ENV_FILE
        return Layer(ENV_FILE, self._read(file, ENV_FILE) if _exists(file) else {})

    def read_all(self, paths: Any, source: str) -> list[Layer]:
        """The layers of the `config_paths` in `source`, weakest first."""
        return list(self._include(paths, source, ()))

    def _include(self, paths: Any, source: str, chain: tuple[tuple[Path, str], ...]) -> Iterator[Layer]:
        for path in self._path_list(paths, source):
            file = find_file(path, self.cwd)
            if file is None:
                self._fail(self._missing_file(path, source))
                continue
            real = file.resolve()
            if real in (parent for parent, _ in chain):
                names = " -> ".join([*(name for _, name in chain), path])
                self._fail(f"{source}: config_paths form a cycle: {names}; remove one of them")
                continue
            if real in self._files_read:
                continue
            self._files_read.add(real)
            data = self._read(file, path)
            yield from self._include(data.pop("config_paths", None), path, (*chain, (real, path)))
            yield Layer(path, data)

    def _path_list(self, paths: Any, source: str) -> list[str]:
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
        except UnusableFileError as error:
            self._fail(str(error))
            return {}

    def _fail(self, problem: str) -> None:
        self.complete = False
        self.problems.append(problem)

    def _missing_file(self, path: str, source: str) -> str:
        guess = _nearest_file(Path(path), self.cwd / path) or nearest(path, _known_configs(self.cwd))
        way_out = f'did you mean "{guess}"?' if guess else "check the path"
        return f'{source}: config_paths: no file "{path}" in {self.cwd} or in the velodrome package; {way_out}'


def _known_configs(cwd: Path) -> Iterator[str]:
    """The configs of every implementation, and the YAML files of the working directory."""
    for root in (cwd, PACKAGE):
        yield from (file.name for file in root.glob("*.y*ml"))
        yield from (config for kind in KINDS for config in configs_of(kind, root))
