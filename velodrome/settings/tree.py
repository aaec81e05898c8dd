"""Merge the sources into one tree that records the source of each value.

Mappings merge key by key, other values replace earlier ones, and `???` never replaces a value.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from velodrome.settings.files import Layer
from velodrome.settings.names import KINDS, hint, nearest
from velodrome.settings.overrides import COMMAND_LINE, Change

Path = tuple[str, ...]
MISSING = "???"


class Tree:
    """The merged values, not yet resolved."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}
        self._sources: dict[Path, str] = {}

    def source(self, path: Path) -> str:
        """The file that the value at this path came from, or `command line`."""
        for end in range(len(path), 0, -1):
            if path[:end] in self._sources:
                return self._sources[path[:end]]
        return COMMAND_LINE

    def merge(self, layer: Layer) -> None:
        self._merge(self.data, layer.data, (), layer.label)

    def _merge(self, into: dict[str, Any], data: dict[str, Any], path: Path, label: str) -> None:
        for key, value in data.items():
            here = (*path, key)
            if isinstance(value, dict):
                if not isinstance(into.get(key), dict):
                    into[key] = {}
                    self._sources[here] = label
                self._merge(into[key], value, here, label)
            elif value != MISSING or key not in into:
                into[key] = deepcopy(value)  # a YAML alias is the same object in two places
                self._sources[here] = label

    def apply(self, change: Change) -> str | None:
        """Apply a change of the command line. Returns the problem, if there is one."""
        if change.remove:
            return self._remove(change)
        problem = self._wrong_block(change.path)
        if problem:
            return problem
        *parents, last = change.path
        node: Any = self.data
        for depth, key in enumerate(parents):
            if isinstance(node, dict):
                if key not in node or node[key] in (None, MISSING):
                    node[key] = {}
                    self._sources[change.path[: depth + 1]] = COMMAND_LINE
            elif not _in_list(node, key):
                return _no_place(change.path, depth)
            node = child(node, key)
        if isinstance(node, dict):
            # On the command line even `???` replaces a value.
            if change.value == MISSING:
                node.pop(last, None)
            self._merge(node, {last: change.value}, tuple(parents), COMMAND_LINE)
        elif _in_list(node, last):
            node[int(last)] = change.value
        else:
            return _no_place(change.path, len(parents))
        return None

    def _wrong_block(self, path: Path) -> str | None:
        """The problem, if a path names a kind or implementation that its instance does not have."""
        block = self.data.get(path[0])
        if block is None and len(path) > 3 and path[1] in KINDS:
            guess = nearest(path[0], instance_names(self.data), cutoff=0.8)
            missing = f'{COMMAND_LINE}: no instance "{path[0]}" to change; did you mean "{guess}"?'
            return missing if guess else None
        if not is_block(block):
            return None
        for depth in (1, 2):
            if len(path) <= depth:
                break
            here = child(block, path[1]) if depth == 2 else block
            if isinstance(here, dict) and here and path[depth] not in here:
                names = " or ".join(f'"{name}"' for name in here)
                where = ".".join(path[:depth])
                return f'{COMMAND_LINE}: "{where}" has no "{path[depth]}"; did you mean {names}? (~{where} removes it)'
        return None

    def _remove(self, change: Change) -> str | None:
        *parents, last = change.path
        node: Any = self.data
        for key in parents:
            node = child(node, key) if has(node, key) else None
        dotted = ".".join(change.path)
        if not isinstance(node, dict) or last not in node:
            siblings = [".".join((*parents, key)) for key in node] if isinstance(node, dict) else []
            return f'{COMMAND_LINE}: ~{dotted}: there is no "{dotted}" to remove{hint(dotted, siblings)}'
        if change.only_equal and node[last] != change.value:
            return f"{COMMAND_LINE}: ~{dotted}: it has another value; write ~{dotted} to remove any value"
        del node[last]
        return None


def child(node: Any, key: str) -> Any:
    return node[int(key)] if isinstance(node, list) else node[key]


def has(node: Any, key: str) -> bool:
    return key in node if isinstance(node, dict) else _in_list(node, key)


def walk(node: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value that is not a mapping or a list, with its path."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from walk(value, (*path, key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from walk(value, (*path, str(index)))
    else:
        yield path, node


def is_block(value: Any) -> bool:
    """Whether a top-level value declares an instance."""
    return isinstance(value, dict) and any(kind in value for kind in KINDS)


def instance_names(data: dict[str, Any]) -> list[str]:
    return [name for name, value in data.items() if is_block(value)]


def _in_list(node: Any, key: str) -> bool:
    return isinstance(node, list) and key.isascii() and key.isdecimal() and int(key) < len(node)


def _no_place(path: Path, depth: int) -> str:
    dotted, parent = ".".join(path), ".".join(path[:depth])
    return f'{COMMAND_LINE}: {dotted}: "{parent}" is not a mapping, so it has no "{path[depth]}"; give {parent} whole'
