"""Fill in `${…}` with OmegaConf, and report each value that cannot be filled in once, in the file that has it."""

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
_MISSING = re.compile(r"[Mm]issing")  # of a value that is `???`, which has its own line


class Unresolved:
    """The value of an expression that could not be filled in; later checks skip it."""


def referenced(data: Any) -> set[str]:
    """The first key of every `${key…}` in the tree."""
    texts = (value for _, value in walk(data) if isinstance(value, str) and "${" in value)
    return {re.split(r"[.\[]", key)[0] for text in texts for dots, key in _REFERENCE.findall(text) if not dots}


def resolve(tree: Tree, problems: list[str], *, excused: Collection[str], whole: bool) -> dict[str, Any]:
    """The tree with every value filled in.

    Keys in `excused`, and every key unless all files were read (`whole`), may be absent without a line here: the
    mistake that keeps them away has been reported.
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
        values |= _Expressions(tree, texts, excused, whole).values(problems)
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


class _Expressions:
    """The texts of a tree that have `${…}` in them."""

    def __init__(self, tree: Tree, texts: dict[Path, str], excused: Collection[str], whole: bool) -> None:
        self.tree = tree
        self.texts = texts
        self.excused = excused
        self.whole = whole

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
        root = OmegaConf.create(_filled(self.tree.data, dict.fromkeys(values), ()))
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
        problems += self._explained({path: errors[path] for path in self.texts if path in errors})
        return values

    def _explained(self, errors: dict[Path, str]) -> list[str]:
        """A line for each cause, at the values that name it; not at those that only refer to such a value."""
        lines: list[str] = []
        circle = [path for path, error in errors.items() if "Recursi" in error]
        if circle:
            names = ", ".join(".".join(path) for path in circle)
            lines.append(f"{self.tree.source(circle[0])}: {names}: refer to each other in a circle; give one a value")
        by_cause: dict[str, list[Path]] = {}
        for path, error in errors.items():
            if path not in circle and not _MISSING.search(error):
                named = _NO_KEY.search(error) or _NO_VARIABLE.search(error)
                by_cause.setdefault(named[1] if named else error, []).append(path)
        for cause, paths in by_cause.items():
            for path in [path for path in paths if cause in self.texts[path]] or paths[:1]:
                lines += self._line(path, errors[path])
        return lines

    def _line(self, path: Path, error: str) -> list[str]:
        dotted = ".".join(path)
        if no_key := _NO_KEY.search(error):
            key = self._absolute(path, no_key[1])
            if not self.whole or re.split(r"[.\[]", key)[0] in self.excused:
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
        """The whole key: OmegaConf names a relative one without the way to it."""
        for dots, name in _REFERENCE.findall(self.texts[path]):
            if dots and name == key:
                return ".".join((*path[: -len(dots)], key))
        return key
