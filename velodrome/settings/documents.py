"""Read one YAML file into plain data, or say on one line what is wrong with it.

Nothing in a file can cost more than the limits below: aliases are expanded one value at a time and counted, so a
few lines that stand for billions of values are refused, not built. Every key is text, as written.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import yaml

MAX_BYTES = 4 * 1024 * 1024
MAX_VALUES = 100_000
MAX_DEPTH = 50
MAX_ALIASES = 1_000

_TAG = "tag:yaml.org,2002:"
_SCALAR_TAGS = frozenset(_TAG + name for name in ("str", "int", "float", "bool", "null"))
# YAML 1.1 wants a dot and a sign in the exponent; OmegaConf, like everyone who writes 1e-5, does not.
_FLOAT = re.compile(
    r"""^(?:[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+]?[0-9]+)?
        |[-+]?(?:[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)
        |[-+]?\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?
        |[-+]?\.(?:inf|Inf|INF)
        |\.(?:nan|NaN|NAN))$""",
    re.VERBOSE,
)


class Refused(Exception):
    """A file that cannot be used; the text is the problem line."""


def read_document(file: Path, label: str, problems: list[str]) -> dict[str, Any]:
    """The mapping in a YAML file. Duplicate keys go to `problems`; anything worse raises `Refused`."""
    text = _read_text(file, label)
    loader = _loader_class()(text)
    try:
        _check_events(text, label)
        node = loader.get_single_node()
        if node is None:
            return {}
        if not isinstance(node, yaml.MappingNode):
            raise Refused(f"{label}: holds {_shape(node)}, not a mapping of keys to values")
        data: dict[str, Any] = _Builder(label, loader, problems).mapping(node, 0)
    except yaml.YAMLError as error:
        raise Refused(_syntax_problem(label, error)) from None
    finally:
        loader.dispose()
    return data


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
        raise Refused(
            f"{label}: larger than {MAX_BYTES // 1024**2} MiB; a configuration file is small, data goes elsewhere"
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise Refused(f"{label}:{line}: is not UTF-8 text; save it as UTF-8") from None


def _check_events(text: str, label: str) -> None:
    """Refuse what would harm the composer: it recurses in C, where too deep is a crash and not an exception."""
    depth = aliases = 0
    for event in yaml.parse(text, Loader=_loader_class()):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.AliasEvent):
            aliases += 1
        if depth > MAX_DEPTH:
            place = f"{label}:{event.start_mark.line + 1}" if event.start_mark else label
            raise Refused(f"{place}: nested more than {MAX_DEPTH} levels deep; flatten it")
        if aliases > MAX_ALIASES:
            raise Refused(f"{label}: has more than {MAX_ALIASES:,} aliases; write the values out")


@functools.cache
def _loader_class() -> Any:
    parent: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(parent):  # type: ignore[misc]
        yaml_implicit_resolvers: dict[str, Any] = {  # noqa: RUF012 - the name and shape PyYAML reads
            first: [(tag, pattern) for tag, pattern in pairs if tag not in (_TAG + "timestamp", _TAG + "float")]
            for first, pairs in parent.yaml_implicit_resolvers.items()
        }

    Loader.add_implicit_resolver(_TAG + "float", _FLOAT, list("-+0123456789."))
    return Loader


class _Builder:
    """Turns the node graph of one file into plain data, each alias into a copy of what it stands for."""

    def __init__(self, label: str, loader: Any, problems: list[str]) -> None:
        self.label = label
        self.loader = loader
        self.problems = problems
        self.count = 0
        self.open: set[int] = set()

    def at(self, node: yaml.Node) -> str:
        return f"{self.label}:{node.start_mark.line + 1}"

    def value(self, node: yaml.Node, depth: int) -> Any:
        self.count += 1
        if self.count > MAX_VALUES:
            raise Refused(
                f"{self.label}: stands for more than {MAX_VALUES:,} values; use fewer aliases, or move data out"
            )
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node)
        if id(node) in self.open:
            raise Refused(f"{self.at(node)}: an alias contains itself; write the values out")
        if depth > MAX_DEPTH:
            raise Refused(f"{self.at(node)}: nested more than {MAX_DEPTH} levels deep; flatten it")
        if node.tag not in (_TAG + "map", _TAG + "seq"):
            raise Refused(f'{self.at(node)}: the tag "{node.tag}" is not plain YAML; remove it')
        self.open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self.mapping(node, depth)
            return [self.value(child, depth + 1) for child in node.value]
        finally:
            self.open.discard(id(node))

    def mapping(self, node: yaml.MappingNode, depth: int) -> dict[str, Any]:
        inherited: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _TAG + "merge":
                for parent in self.parents(value_node, depth):
                    inherited = parent | inherited  # the first parent named wins
                continue
            if not isinstance(key_node, yaml.ScalarNode) or not key_node.value:
                raise Refused(f"{self.at(key_node)}: a key must be text")
            key = key_node.value
            if key in own:
                self.problems.append(f'{self.at(key_node)}: the key "{key}" stands twice in one mapping; keep one')
            own[key] = self.value(value_node, depth + 1)
        return inherited | own

    def parents(self, node: yaml.Node, depth: int) -> list[dict[str, Any]]:
        value = self.value(node, depth + 1)
        parents = value if isinstance(value, list) else [value]
        if not all(isinstance(parent, dict) for parent in parents):
            raise Refused(f'{self.at(node)}: "<<" takes a mapping or a list of mappings')
        return parents

    def scalar(self, node: yaml.ScalarNode) -> Any:
        if node.tag in (_TAG + "merge", _TAG + "value"):
            return node.value
        if node.tag not in _SCALAR_TAGS:
            raise Refused(f'{self.at(node)}: the tag "{node.tag}" is not plain YAML; remove it')
        try:
            return self.loader.construct_object(node)
        except (ValueError, KeyError, IndexError):
            kind = node.tag.removeprefix(_TAG)
            raise Refused(
                f"{self.at(node)}: a value is not a readable {kind}; put it in quotes if it is text"
            ) from None


def _shape(node: yaml.Node) -> str:
    return "a list" if isinstance(node, yaml.SequenceNode) else "a single value"


def _syntax_problem(label: str, error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    what = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be read"
    where = f"{label}:{mark.line + 1}" if mark is not None else label
    return f"{where}: not valid YAML: {what}; mend that line"
