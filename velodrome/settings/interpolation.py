"""Fill in `${…}` and report, once and where it stands, every value that cannot be filled in.

OmegaConf gives each expression its meaning. What is here decides the order, so that a circle is named and a value
that would grow without bound is refused before it is built.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from velodrome.settings.masking import is_secret_key
from velodrome.settings.names import hint
from velodrome.settings.tree import MISSING, Path, Tree, child, has, is_block, walk

MAX_CHARS = 1024 * 1024
MAX_CHAIN = 50
_COST = 1024  # characters charged for each reference, so that the work is bounded and not only the text

_REFERENCE = re.compile(r"\$\{\s*(\.*)([^${}:,'\"\s]+)\s*\}")
_NO_KEY = re.compile(r"Interpolation key '(.+?)' not found")
_RAISED = re.compile(r"^\w+ raised while resolving interpolation: ")
_NO_VARIABLE = re.compile(r"Environment variable '(.+?)' not found")


class Unresolved:
    """Stands where a value could not be made, so that later checks stay quiet about it."""


def referenced(data: Any) -> set[str]:
    """The first key of every `${key…}` in the tree."""
    texts = (value for _, value in walk(data) if isinstance(value, str) and "${" in value)
    return {re.split(r"[.\[]", key)[0] for text in texts for dots, key in _REFERENCE.findall(text) if not dots}


def resolve(tree: Tree, problems: list[str], *, excused: Collection[str], whole: bool) -> dict[str, Any]:
    """The tree with every value filled in.

    Keys in `excused`, and every key unless all files were read (`whole`), may be absent without a word: the
    problem that keeps them away has been reported.
    """
    resolver = _Resolver(tree, problems, excused, whole)
    values = resolver.values()
    resolved: dict[str, Any] = _filled(tree.data, values, ())
    return resolved


def _filled(node: Any, values: dict[Path, Any], path: Path) -> Any:
    if path in values:
        return values[path]
    if isinstance(node, dict):
        return {key: _filled(value, values, (*path, key)) for key, value in node.items()}
    if isinstance(node, list):
        return [_filled(value, values, (*path, str(index))) for index, value in enumerate(node)]
    return node


class _Resolver:
    def __init__(self, tree: Tree, problems: list[str], excused: Collection[str], whole: bool) -> None:
        self.tree = tree
        self.problems = problems
        self.excused = excused
        self.whole = whole
        self.texts: dict[Path, str] = {}
        self.done: dict[Path, Any] = {}
        self.sizes: dict[Path, int] = {}
        self.root: Any = None

    def values(self) -> dict[Path, Any]:
        """The value of every leaf that was missing or an expression."""
        for path, value in walk(self.tree.data):
            if value == MISSING:
                self._fail(path, f"is mandatory; put it in env.yaml or give +{'.'.join(path)}=…")
            elif isinstance(value, str) and "${" in value:
                self.texts[path] = value
        if self.texts:
            self._check_grammar()
            from omegaconf import OmegaConf

            self.root = OmegaConf.create(_filled(self.tree.data, dict.fromkeys(self.done), ()))
        for path in self.texts:
            self._visit(path, ())
        return self.done

    def _fail(self, path: Path, what: str | None) -> None:
        self.done[path] = Unresolved()
        if what is not None:
            self.problems.append(f"{self.tree.source(path)}: {'.'.join(path)} {what}")

    def _check_grammar(self) -> None:
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException

        for path, text in self.texts.items():
            try:
                OmegaConf.create({"text": text})
            except (OmegaConfBaseException, RecursionError):
                self._fail(
                    path, r"has a ${…} that cannot be read; write ${key} or ${oc.env:NAME}, and \${ for a plain ${"
                )

    def _visit(self, path: Path, chain: tuple[Path, ...]) -> None:
        if path in self.done:
            return
        if path in chain:
            circle = [".".join(step) for step in (*chain[chain.index(path) :], path)]
            self._fail(path, f"refers to itself: {' -> '.join(circle)}; give one of them a value")
            return
        if len(chain) >= MAX_CHAIN:
            self._fail(path, f"is reached through more than {MAX_CHAIN} references; give it a value")
            return
        targets, size = self._targets(path)
        for target in targets:
            self._visit(target, (*chain, path))
        if path in self.done:  # found to be part of a circle on the way
            return
        if any(isinstance(self.done[target], Unresolved) for target in targets):
            self._fail(path, None)
            return
        self.sizes[path] = size + sum(self.sizes[target] for target in targets)
        if self.sizes[path] > MAX_CHARS:
            self._fail(path, "grows too large once its references are filled in; shorten it")
            return
        self._evaluate(path)

    def _targets(self, path: Path) -> tuple[list[Path], int]:
        """The expressions and missing values this one is made of, and the size of the rest."""
        targets: list[Path] = []
        size = len(self.texts[path])
        for dots, key in _REFERENCE.findall(self.texts[path]):
            names = tuple(part for part in re.split(r"[.\[\]]+", key) if part)
            inside, node = self._reached((*path[: -len(dots)], *names) if dots else names)
            size += _COST
            for leaf, value in walk(node, inside):
                if leaf in self.texts or leaf in self.done:
                    targets.append(leaf)
                else:
                    size += len(value) + 1 if isinstance(value, str) else 1
        return targets, size

    def _reached(self, path: Path) -> tuple[Path, Any]:
        """The value a path leads to, or the expression that stands in its way; an absent one is `None`."""
        node: Any = self.tree.data
        for depth, key in enumerate(path):
            if path[:depth] in self.texts:
                return path[:depth], node
            if not has(node, key):
                return path, None
            node = child(node, key)
        return path, node

    def _evaluate(self, path: Path) -> None:
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException

        node = self.root
        try:
            for key in path:
                node = node[int(key)] if OmegaConf.is_list(node) else node[key]
            plain = OmegaConf.is_config(node)
            self.done[path] = OmegaConf.to_container(node, resolve=True, throw_on_missing=True) if plain else node
        except (OmegaConfBaseException, RecursionError) as error:
            self._fail(path, self._explained(path, error))

    def _explained(self, path: Path, error: Exception) -> str | None:
        dotted = ".".join(path)
        if no_key := _NO_KEY.search(str(error)):
            key = self._absolute(path, no_key[1])
            head = re.split(r"[.\[]", key)[0]
            if not self.whole or head in self.excused:
                return None
            return f"needs {key}; put it in env.yaml or give +{key}=…{hint(key, self._dotted_keys(key), cutoff=0.8)}"
        if no_variable := _NO_VARIABLE.search(str(error)):
            name = no_variable[1]
            return f"needs the environment variable {name}, which is not set; set it or give +{dotted}=…"
        if isinstance(error, RecursionError) or "RecursionError" in str(error):
            return f"refers to itself; give +{dotted}=…"
        why = "" if is_secret_key(path[-1]) else f" ({_RAISED.sub('', str(error)).splitlines()[0]})"
        return f"cannot be filled in{why}; correct it or give +{dotted}=…"

    def _absolute(self, path: Path, key: str) -> str:
        """The whole key: OmegaConf names a relative one without the way to it."""
        for dots, name in _REFERENCE.findall(self.texts[path]):
            if dots and name == key:
                return ".".join((*path[: -len(dots)], key))
        return key

    def _dotted_keys(self, key: str) -> list[str]:
        if "." not in key:
            return [name for name, value in self.tree.data.items() if not is_block(value)]
        return [".".join(path) for path, _ in walk(self.tree.data)]
