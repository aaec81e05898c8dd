"""Find configuration files and those they include, and read each once into plain data, with text for every key.

An included file comes before the one that names it. A file is read at the first place that names it, so two files may
share a third. What is wrong with a file is one line.
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
# YAML 1.1 wants a dot and a sign in the exponent; OmegaConf, like everyone who writes 1e-5, does not.
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


class Refused(Exception):
    """A file that cannot be used; the text is the problem line."""


def read_document(file: Path, label: str, problems: list[str]) -> dict[str, Any]:
    """The mapping in a YAML file. Duplicate keys go to `problems`; anything worse raises `Refused`."""
    text = _read_text(file, label)
    loader = _Loader(text)
    try:
        _check_size(text, label)
        data = loader.get_single_data()
    except yaml.YAMLError as error:
        raise Refused(_syntax_problem(label, error)) from None
    except ValueError as error:
        raise Refused(f"{label}: a value cannot be read: {error}") from None
    finally:
        loader.dispose()
    problems += [f"{label}:{line}: the key {key!r} stands twice in one mapping; keep one" for line, key in loader.twice]
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise Refused(
            f"{label}: holds {'a list' if isinstance(data, list) else 'a single value'}, not a mapping of keys"
        )
    return data


def _read_text(file: Path, label: str) -> str:
    try:
        if not file.is_file():
            what = "a directory" if file.is_dir() else "not a regular file"
            raise Refused(f"{label}: is {what}; name a YAML file")
        raw = file.read_bytes()
    except OSError as error:
        raise Refused(f"{label}: cannot be read ({error.strerror or type(error).__name__})") from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise Refused(f"{label}:{line}: is not UTF-8 text; save it as UTF-8") from None


def _check_size(text: str, label: str) -> None:
    """Refuse a file whose aliases stand for more values, or whose brackets are deeper, than anybody writes."""
    sizes, named, names = [0], dict[str, int](), list[str | None]()  # values below each open collection, and of anchors
    for event in yaml.parse(text, Loader=_PARENT):
        if isinstance(event, yaml.AliasEvent):
            sizes[-1] += named.get(event.anchor or "", 0)
        elif isinstance(event, yaml.ScalarEvent):
            sizes[-1] += 1
        elif isinstance(event, yaml.CollectionStartEvent):
            sizes.append(1)
            names.append(event.anchor)
        elif isinstance(event, yaml.CollectionEndEvent):
            size, name = sizes.pop(), names.pop()
            sizes[-1] += size
            if name is not None:
                named[name] = size
        if sizes[-1] > _MOST_VALUES or len(sizes) > _DEEPEST:
            raise Refused(f"{label}: holds more than {_MOST_VALUES:,} values or {_DEEPEST} levels; that is no config")


class _Loader(_PARENT):  # type: ignore[misc]
    """PyYAML's safe loader for plain values: keys as text, a key once, numbers as OmegaConf's."""

    yaml_implicit_resolvers: dict[str, Any] = {  # noqa: RUF012 - the name and shape PyYAML reads
        first: [(tag, pattern) for tag, pattern in pairs if tag in _PLAIN - {_TAG + "float"} or tag == _TAG + "merge"]
        for first, pairs in _PARENT.yaml_implicit_resolvers.items()
    }
    yaml_constructors: dict[Any, Any] = {  # noqa: RUF012 - as above
        tag: make for tag, make in _PARENT.yaml_constructors.items() if tag is None or tag in _PLAIN
    }

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.twice: list[tuple[int, str]] = []

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[str, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or not key.value:
                raise yaml.constructor.ConstructorError(None, None, "a key must be text", key.start_mark)
            if key.value in seen and key.tag != _TAG + "merge":
                self.twice.append((key.start_mark.line + 1, key.value))
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
    """The values of one source, under the name that problems give it."""

    label: str
    data: dict[str, Any]


def find_file(path: str, cwd: Path) -> Path | None:
    """The file a path names: in the working directory, in the folder of an installed environment, in the package."""
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
    """Where in the package a path such as `resources_servers/NAME/app.py` may be: a wing's folder is not named so."""
    kind, *below = PurePath(path).parts or ("",)
    return [PACKAGE.joinpath(home, *below) for home in HOMES.get(kind, (kind,))]


def implementations(kind: str, root: Path) -> list[str]:
    """The names of the components of a kind in a working directory, or in the package."""
    folders = in_package(kind) if root == PACKAGE else [root / kind]
    return [app.parent.name for folder in folders for app in sorted(folder.glob("*/app.py"))]


def configs_of(kind: str, root: Path) -> Iterator[str]:
    """The configs of those components, as a command names them: `resources_servers/NAME/configs/NAME.yaml`."""
    for folder in in_package(kind) if root == PACKAGE else [root / kind]:
        for file in folder.glob("*/configs/*.y*ml"):
            yield f"{kind}/{file.relative_to(folder).as_posix()}"


def find_input(path: Path) -> Path:
    """A file to read, in the working directory or in the package; or an `InputError`."""
    place = find_file(str(path), Path.cwd())
    if place is None:
        way = way_to_file(path, path, *in_package(path))
        raise InputError(f"{path}: no such file (looked in this folder and in the package){way}")
    if not place.is_file():
        raise InputError(f"{path}: not a regular file; the input is read twice, so a pipe will not do")
    return path if _exists(path) else place


def find_inputs(path: Path) -> list[Path]:
    """The files to read that a path or a pattern (`shards/*.jsonl`) names, in the order of their names."""
    if not is_pattern(path):
        return [find_input(path)]
    paths = sorted(Path(name) for name in glob.glob(str(path), recursive=True) if os.path.isfile(name))
    if not paths:
        raise InputError(f"{path}: no file matches")
    return paths


def is_pattern(path: Path) -> bool:
    """Whether a path stands for several files; a file of that very name is one."""
    return glob.has_magic(str(path)) and find_file(str(path), Path.cwd()) is None


def file_problem(path: str | Path) -> str | None:
    """What keeps a file from being read, with the nearest name beside it if there is no such file."""
    if os.path.isfile(path):  # Path.is_file raises if the name is too long
        return None
    return f"{path}: {'not a regular file' if os.path.exists(path) else f'no such file{way_to_file(Path(path))}'}"


def way_to_file(path: Path, *places: Path) -> str:
    """The end of "no such file": the command that fetches it, the nearest name in one of the places, or nothing."""
    kind, name, *below = (*path.parts, "", "")
    if not path.is_absolute() and below[:1] == ["data"]:
        for home in in_package(Path(kind, name)):
            if _exists(home / "prepare.py"):
                module = ".".join(home.relative_to(PACKAGE.parent).parts)
                return f"; to fetch it: python -m {module}.prepare --output {path}"
    guess = next(filter(None, (_nearest_beside(path, place) for place in places or (path,))), None)
    return f'; did you mean "{guess}"?' if guess else ""


def _nearest_beside(path: Path, place: Path) -> str | None:
    """The path with the nearest name of the same ending that is in the folder where it was looked for."""
    try:
        names = os.listdir(place.parent)
    except (OSError, ValueError):
        return None
    guess = nearest(path.name, (name for name in names if _ending(name) == _ending(path.name)), cutoff=0.75)
    return guess and str(path.parent / guess)


def _ending(name: str) -> str:
    """The kind of file that a name stands for: compressed or not, `.yml` or `.yaml`."""
    return Path(name.removesuffix(".zst")).suffix.replace(".yml", ".yaml")


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
        guess = _nearest_beside(Path(path), self.cwd / path) or nearest(path, _shipped_and_own(self.cwd))
        way_out = f'did you mean "{guess}"?' if guess else "check the path"
        return f'{source}: config_paths: no file "{path}" in {self.cwd} or in the velodrome package; {way_out}'


def _shipped_and_own(cwd: Path) -> Iterator[str]:
    """The configs of every implementation, and the YAML files of the working directory."""
    for root in (cwd, PACKAGE):
        yield from (file.name for file in root.glob("*.y*ml"))
        yield from (config for kind in KINDS for config in configs_of(kind, root))
