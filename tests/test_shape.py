"""The shape of the package: one meaning per name, small folders, files and functions.

Names of verbs in `cli/` and the file names that every component's folder has may repeat.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from velodrome.cli.main import VERBS

PACKAGE = Path(__file__).parent.parent / "velodrome"
SOURCES = {path.relative_to(PACKAGE): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
COMPONENT_FILES = {"__init__.py", "app.py", "settings.py"}
MOST_MODULES = 17
MOST_LINES = 400
MOST_FUNCTION_LINES = 60


def repeated(names: Iterator[tuple[str, Path]]) -> dict[str, list[str]]:
    places = defaultdict(list)
    for name, path in names:
        places[name].append(str(path))
    return {name: paths for name, paths in places.items() if len(paths) > 1}


@cache
def definitions() -> list[tuple[ast.AST, Path]]:
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    trees = [(ast.parse(text), path) for path, text in SOURCES.items()]
    return [(node, path) for tree, path in trees for node in ast.walk(tree) if isinstance(node, kinds)]


def nodes(*kinds: type[ast.AST]) -> Iterator[tuple[ast.AST, Path]]:
    return (each for each in definitions() if isinstance(each[0], kinds))


def test_a_class_name_means_one_thing():
    assert repeated((node.name, path) for node, path in nodes(ast.ClassDef)) == {}  # type: ignore[attr-defined]


def test_a_module_name_means_one_thing():
    own = [path for path in SOURCES if path.name not in COMPONENT_FILES and path.parts[0] != "cli"]
    assert repeated((path.stem, path) for path in own) == {}


def test_folders_files_and_functions_are_small():
    folders = defaultdict(int)
    for path in SOURCES:
        is_verb = path.parent.name == "cli" and path.stem.rstrip("_") in VERBS
        folders[str(path.parent)] += path.name != "__init__.py" and not is_verb
    large = [f"{folder}: {count} modules" for folder, count in folders.items() if count > MOST_MODULES]
    large += [f"{path}: {count} lines" for path, text in SOURCES.items() if (count := text.count("\n")) > MOST_LINES]
    for node, path in nodes(ast.FunctionDef, ast.AsyncFunctionDef):
        length = node.end_lineno - node.lineno + 1  # type: ignore[attr-defined]
        if length > MOST_FUNCTION_LINES:
            large.append(f"{path}:{node.lineno}: {length} lines in one function")  # type: ignore[attr-defined]
    assert large == []
