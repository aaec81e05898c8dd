"""Read one YAML file into plain data, or say on one line what is wrong with it.

Nothing in a file can cost more than the limits below. An alias is a copy of what it stands for, counted with the rest.
Every key is text, as written.
"""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path
from typing import Any

import yaml

MAX_BYTES = 4 * 1024 * 1024
MAX_VALUES = 100_000
MAX_DEPTH = 50

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
_PARENT: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Refused(Exception):
    """A file that cannot be used; the text is the problem line."""


def read_document(file: Path, label: str, problems: list[str]) -> dict[str, Any]:
    """The mapping in a YAML file. Duplicate keys go to `problems`; anything worse raises `Refused`."""
    text = _read_text(file, label)
    loader = _Loader(text)
    try:
        _check_depth(text, label)
        data = loader.get_single_data()
    except yaml.YAMLError as error:
        raise Refused(_syntax_problem(label, error)) from None
    finally:
        loader.dispose()
    problems += [f"{label}:{line}: the key {key!r} stands twice in one mapping; keep one" for line, key in loader.twice]
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise Refused(
            f"{label}: holds {'a list' if isinstance(data, list) else 'a single value'}, not a mapping of keys"
        )
    copied: dict[str, Any] = _copied(data, label, 0, count(1))
    return copied


def _read_text(file: Path, label: str) -> str:
    try:
        if not file.is_file():
            what = "a directory" if file.is_dir() else "not a regular file"
            raise Refused(f"{label}: is {what}; name a YAML file")
        with file.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise Refused(f"{label}: cannot be read ({error.strerror or type(error).__name__})") from None
    if len(raw) > MAX_BYTES:
        raise Refused(f"{label}: larger than {MAX_BYTES // 1024**2} MiB; a configuration file is small")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise Refused(f"{label}:{line}: is not UTF-8 text; save it as UTF-8") from None


def _check_depth(text: str, label: str) -> None:
    """Refuse what would harm the composer: it recurses in C, where too deep is a crash and not an exception."""
    depth = 0
    event: Any  # the types of PyYAML's marks differ between versions of its stubs
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise Refused(f"{label}:{event.start_mark.line + 1}: nested more than {MAX_DEPTH} levels deep; flatten it")


class _Loader(_PARENT):  # type: ignore[misc]
    """PyYAML's safe loader: keys as text, a key once, `<<` merged without expanding it, numbers as OmegaConf's."""

    yaml_implicit_resolvers: dict[str, Any] = {  # noqa: RUF012 - the name and shape PyYAML reads
        first: [(tag, pattern) for tag, pattern in pairs if tag not in (_TAG + "timestamp", _TAG + "float")]
        for first, pairs in _PARENT.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.twice: list[tuple[int, str]] = []

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[str, Any]:
        inherited: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key, value in node.value:
            if key.tag == _TAG + "merge":
                for parent in self._parents(value):
                    inherited = parent | inherited  # the first parent named wins
            elif not isinstance(key, yaml.ScalarNode) or not key.value:
                raise yaml.constructor.ConstructorError(None, None, "a key must be text", key.start_mark)
            else:
                if key.value in own:
                    self.twice.append((key.start_mark.line + 1, key.value))
                own[key.value] = self.construct_object(value, deep=True)
        return inherited | own

    def _parents(self, node: Any) -> list[dict[str, Any]]:
        value = self.construct_object(node, deep=True)
        parents = value if isinstance(value, list) else [value]
        if not all(isinstance(parent, dict) for parent in parents):
            what = '"<<" takes a mapping or a list of mappings'
            raise yaml.constructor.ConstructorError(None, None, what, node.start_mark)
        return parents

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        if node.tag in (_TAG + "merge", _TAG + "value"):
            return node.value
        if node.tag not in _KNOWN:
            what = f'the tag "{node.tag}" is not plain YAML'
            raise yaml.constructor.ConstructorError(None, None, what, node.start_mark)
        try:
            return super().construct_object(node, deep)
        except (ValueError, KeyError, IndexError):
            what = f"a value is not a readable {node.tag.removeprefix(_TAG)}; put it in quotes if it is text"
            raise yaml.constructor.ConstructorError(None, None, what, node.start_mark) from None


_KNOWN = frozenset(_TAG + name for name in ("str", "int", "float", "bool", "null", "map", "seq"))
_Loader.add_implicit_resolver(_TAG + "float", _FLOAT, list("-+0123456789."))


def _copied(value: Any, label: str, depth: int, counter: count[int]) -> Any:
    """A copy in which nothing is shared, within the limits."""
    if next(counter) > MAX_VALUES:
        raise Refused(f"{label}: stands for more than {MAX_VALUES:,} values; use fewer aliases, or move data out")
    if depth > MAX_DEPTH:
        raise Refused(f"{label}: nested more than {MAX_DEPTH} levels deep; flatten it")
    if isinstance(value, dict):
        return {key: _copied(item, label, depth + 1, counter) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item, label, depth + 1, counter) for item in value]
    return value


def _syntax_problem(label: str, error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    what = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be read"
    where = f"{label}:{mark.line + 1}" if mark is not None else label
    return f"{where}: not valid YAML: {what}"
