"""Imports point down only, as drawn in docs/design.md; heavy packages stay behind their fences; no cycles.

Every import counts, those inside functions and under TYPE_CHECKING too. There is no ignore list.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from velodrome.wings import WINGS

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "velodrome"
PUBLIC = "velodrome"  # the names in __init__.py, for users and for components of their own

FENCES = {  # who may import a package: layers, or modules
    "starlette": ("serving", "viewer", "connect"),
    "uvicorn": ("serving", "viewer"),
    "aiohttp.web": ("serving", "viewer"),
    "fastapi": ("connect.nemo_gym",),
    "yappi": ("timing",),
    "torch": ("training",),
    "opentelemetry": ("telemetry",),
    "ray": ("ray_executor",),
}


def drawn(part: str = "") -> list[set[str]]:
    """The layers of the drawing from the top down: all of them, or those of the wings or of the core."""
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    drawing = text.split("## The house", 1)[1].split("```", 2)[1]
    wings, core = (block.split() for block in drawing.replace(" | ", "|").split("core\n"))
    lines = {"wings": wings[1:], "core": core}.get(part, [*wings[1:], *core])
    return [set(line.split("|")) for line in lines]


def modules() -> dict[str, Path]:
    result = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        result[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return result


MODULES = modules()


@cache
def imported(name: str, path: Path) -> list[tuple[str, int]]:
    """Everything a module imports, as full names; `from a import b` is a.b, which may be a module or a name in one."""
    return list(_imports(name, path))


def _imports(name: str, path: Path) -> Iterator[tuple[str, int]]:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                yield f"{base}.{alias.name}", node.lineno


def module_of(name: str) -> str:
    """The module of ours that a full name stands in."""
    while name not in MODULES:
        name = name.rpartition(".")[0]
    return name


def layer(module: str) -> str:
    """The name in the drawing that a module belongs to."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else PUBLIC


def ours(name: str) -> bool:
    return name == PUBLIC or name.startswith(f"{PUBLIC}.")


@cache
def edges() -> list[tuple[str, str, int]]:
    return [
        (module, module_of(name), line)
        for module, path in MODULES.items()
        for name, line in imported(module, path)
        if ours(name) and module_of(name) != module
    ]


def test_every_module_has_its_place_in_the_drawing_and_every_place_its_module():
    placed = set().union(*drawn())
    there = {layer(module) for module in MODULES} - {PUBLIC}
    assert there - placed == set()
    assert placed - there == set()


def test_imports_point_down_only_and_names_on_one_line_do_not_import_each_other():
    level = {name: depth for depth, names in enumerate(drawn()) for name in names}
    wrong = [
        f"{module}:{line} imports {target}"
        for module, target, line in edges()
        if PUBLIC not in (layer(module), layer(target))
        and layer(module) != layer(target)
        and level[layer(module)] >= level[layer(target)]
    ]
    assert wrong == []


def test_the_core_imports_no_wing():
    core, wings = (set().union(*drawn(part)) for part in ("core", "wings"))
    assert not core & wings
    wrong = [f"{a}:{line} imports {b}" for a, b, line in edges() if layer(a) in core and layer(b) in wings]
    assert wrong == []
    assert WINGS.keys() == wings


def test_the_package_hands_on_names_and_nobody_inside_asks_it_for_them():
    assert [f"{module}:{line}" for module, target, line in edges() if target == PUBLIC] == []


@pytest.mark.parametrize("package", sorted(FENCES))
def test_a_heavy_package_stays_behind_its_fence(package: str):
    outside = [
        f"{module}:{line}"
        for module, path in MODULES.items()
        if not f"{module}.".startswith(tuple(f"{PUBLIC}.{place}." for place in FENCES[package]))
        for name, line in imported(module, path)
        if name == package or name.startswith(f"{package}.")
    ]
    assert outside == []


def test_no_module_imports_itself_by_way_of_others():
    graph: dict[str, set[str]] = {module: set() for module in MODULES}
    for module, target, _ in edges():
        graph[module].add(target)
    done: set[str] = set()

    def cycle(module: str, way: list[str]) -> list[str]:
        if module in way:
            return [*way[way.index(module) :], module]
        if module in done:
            return []
        for target in sorted(graph[module]):
            result = cycle(target, [*way, module])
            if result:
                return result
        done.add(module)
        return []

    for module in MODULES:
        assert cycle(module, []) == []
