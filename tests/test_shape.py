"""The shape of the package: one meaning per class name, files and functions of a size that can be read."""

from __future__ import annotations

import ast
import re
import runpy
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "velodrome"
SOURCES = {path.relative_to(PACKAGE): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
MOST_LINES = 600
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


def test_files_and_functions_are_small():
    large = [f"{path}: {count} lines" for path, text in SOURCES.items() if (count := text.count("\n")) > MOST_LINES]
    for node, path in nodes(ast.FunctionDef, ast.AsyncFunctionDef):
        length = node.end_lineno - node.lineno + 1  # type: ignore[attr-defined]
        if length > MOST_FUNCTION_LINES:
            large.append(f"{path}:{node.lineno}: {length} lines in one function")  # type: ignore[attr-defined]
    assert large == []


def test_the_sizes_in_the_design_notes_are_right_within_a_tenth():
    script = runpy.run_path(str(PACKAGE.parent / "scripts" / "sizes.py"))
    shown = script["MARK"].search(script["PAGE"].read_text(encoding="utf-8"))[0]
    rows = re.findall(r"^\| ([^|]+) \| [\d,]+ \| ([\d,]+) \|$", shown, re.MULTILINE)
    written = {name: int(count.replace(",", "")) for name, count in rows}
    sizes = {name: count for name, (_, count) in script["sizes"]().items()}
    assert written.keys() == sizes.keys()
    assert {name: count for name, count in sizes.items() if abs(written[name] - count) > max(count / 10, 100)} == {}
