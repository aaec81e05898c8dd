"""Resolve `${…}` with OmegaConf. Report each value that cannot be resolved once, with the file it is in."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from velodrome.settings.masking import is_secret_key
from velodrome.settings.names import hint
from velodrome.settings.tree import MISSING, Path, Tree, is_block, walk

_REFERENCE = re.compile(r"\$\{\s*(\.*)([^${}:,'\"\s]+)\s*\}")
_NO_KEY = re.compile(r"Interpolation key '(.+?)' not found")
_NO_VARIABLE = re.compile(r"Environment variable '(.+?)' not found")
_RAISED = re.compile(r"^\w+ raised while resolving interpolation: ")
_MISSING = re.compile(r"[Mm]issing")  # a value is `???`: reported already


class Unresolved:
    """The value of an expression that could not be filled in; later checks skip it."""


def referenced(data: Any) -> set[str]:
    """The first key of every `${key…}` in the tree."""
    texts = (value for _, value in walk(data) if isinstance(value, str) and "${" in value)
    return {re.split(r"[.\[]", key)[0] for text in texts for dots, key in _REFERENCE.findall(text) if not dots}


def resolve(tree: Tree, problems: list[str], *, excused: Collection[str], complete: bool) -> dict[str, Any]:
    """The tree with every value resolved.

    A missing key is not reported if it is in `excused`, or if not all files were read (`complete` is false): the cause
    has been reported.
    """
    values: dict[Path, Any] = {}
    texts: dict[Path, str] = {}
    for path, value in walk(tree.data):
        if value == MISSING:
            values[path] = Unresolved()
            dotted = ".".join(path)
            problems.append(f"{tree.source(path)}: {dotted} is mandatory; put it in env.yaml or give +{dotted}=…")
        elif isinstance(value, str) and "${" in value:
            texts[path] = value
    if texts:
        values |= _Expressions(tree, texts, excused, complete).values(problems)
    resolved: dict[str, Any] = _resolved(tree.data, values, ())
    return resolved


def _resolved(node: Any, values: dict[Path, Any], path: Path) -> Any:
    if path in values:
        return values[path]
    if isinstance(node, dict):
        return {key: _resolved(value, values, (*path, key)) for key, value in node.items()}
    if isinstance(node, list):
        return [_resolved(value, values, (*path, str(index))) for index, value in enumerate(node)]
    return node


class _Expressions:
    """The texts of a tree that have `${…}` in them."""

    def __init__(self, tree: Tree, texts: dict[Path, str], excused: Collection[str], complete: bool) -> None:
        self.tree = tree
        self.texts = texts
        self.excused = excused
        self.complete = complete

    def values(self, problems: list[str]) -> dict[Path, Any]:
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException

        values: dict[Path, Any] = {}
        errors: dict[Path, str] = {}
        for path, text in self.texts.items():
            try:
                OmegaConf.create({"text": text})
            except (OmegaConfBaseException, RecursionError):
                values[path] = Unresolved()
                what = r"has a ${…} that cannot be read; write ${key} or ${oc.env:NAME}, and \${ for a plain ${"
                problems.append(f"{self.tree.source(path)}: {'.'.join(path)} {what}")
        root = OmegaConf.create(_resolved(self.tree.data, dict.fromkeys(values), ()))
        for path in self.texts.keys() - values.keys():
            try:
                node: Any = root
                for key in path:
                    node = node[int(key)] if OmegaConf.is_list(node) else node[key]
                plain = OmegaConf.is_config(node)
                values[path] = OmegaConf.to_container(node, resolve=True, throw_on_missing=True) if plain else node
            except (OmegaConfBaseException, RecursionError) as error:
                values[path] = Unresolved()
                errors[path] = f"{type(error).__name__}: {error}"
        problems += self._problem_lines({path: errors[path] for path in self.texts if path in errors})
        return values

    def _problem_lines(self, errors: dict[Path, str]) -> list[str]:
        """A line for each cause, at the values that contain it, not at values that only refer to such a value."""
        lines: list[str] = []
        cycle = [path for path, error in errors.items() if "Recursi" in error]
        if cycle:
            names = ", ".join(".".join(path) for path in cycle)
            lines.append(f"{self.tree.source(cycle[0])}: {names}: refer to each other in a circle; give one a value")
        by_cause: dict[str, list[Path]] = {}
        for path, error in errors.items():
            if path not in cycle and not _MISSING.search(error):
                missing = _NO_KEY.search(error) or _NO_VARIABLE.search(error)
                by_cause.setdefault(missing[1] if missing else error, []).append(path)
        for cause, paths in by_cause.items():
            for path in [path for path in paths if cause in self.texts[path]] or paths[:1]:
                lines += self._problem_of(path, errors[path])
        return lines

    def _problem_of(self, path: Path, error: str) -> list[str]:
        dotted = ".".join(path)
        if no_key := _NO_KEY.search(error):
            key = self._absolute(path, no_key[1])
            if not self.complete or re.split(r"[.\[]", key)[0] in self.excused:
                return []
            names = [".".join(each) for each, _ in walk(self.tree.data)]
            if "." not in key:
                names = [name for name, value in self.tree.data.items() if not is_block(value)]
            what = f"needs {key}; put it in env.yaml or give +{key}=…{hint(key, names, cutoff=0.8)}"
        elif no_variable := _NO_VARIABLE.search(error):
            what = f"needs the environment variable {no_variable[1]}, which is not set; set it or give +{dotted}=…"
        else:
            message = _RAISED.sub("", error.partition(": ")[2]).partition("\n")[0]
            why = "" if is_secret_key(path[-1]) else f" ({message})"
            what = f"cannot be filled in{why}; correct it or give +{dotted}=…"
        return [f"{self.tree.source(path)}: {dotted} {what}"]

    def _absolute(self, path: Path, key: str) -> str:
        """The full path of a key. OmegaConf reports a relative key without its path."""
        for dots, name in _REFERENCE.findall(self.texts[path]):
            if dots and name == key:
                return ".".join((*path[: -len(dots)], key))
        return key
