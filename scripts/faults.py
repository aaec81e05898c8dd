"""Plant faults in the package and count how many of them the tests find.

    python scripts/faults.py list                      # the faults that the seed chooses
    python scripts/faults.py watch COPY                # mark them in a copy of this checkout; then run its tests there
    python scripts/faults.py count COPY REACHED [ARG…] # plant each one in COPY and run the tests that reached it

A fault is one small change: a swapped comparison, a dropped `await`, `and` for `or`, a statement left out. They are
drawn from all folders of the package in proportion to the root of their size. `watch` makes each place write down
which test comes by, in this process and in those that it starts; so one run of the suite says which tests `count` has
to run. REACHED is the folder that `watch` named; ARG are pytest's, such as `-m "not browser"`.
"""

from __future__ import annotations

import ast
import json
import os
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SEED, COUNT = 27, 40
MOST_TESTS = 40  # that one fault is tried on, those of its own folder first
LIMIT_S = 600
# Compiled, or inside a sandbox: it cannot write down who comes by, so the tests of its folder are tried.
SILENT = {
    "velodrome/environments/sandbox/inside.py": "tests/environments/sandbox",
    "velodrome/training/envs/extractor_hub/teacher.py": "tests/training/envs",
}
SWAPS = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.Add: "-",
    ast.Sub: "+",
}
PROBE = '''
"""Write down which test comes by a place; see scripts/faults.py."""

import os

_reached: set[tuple[int, str]] = set()


def here(place: int) -> None:
    test = os.environ.get("PYTEST_CURRENT_TEST", "")
    if (place, test) in _reached:
        return
    _reached.add((place, test))
    try:
        with open(os.path.join({folder!r}, str(os.getpid())), "a") as file:
            file.write(f"{{place}}\\t{{test}}\\n")
    except OSError:
        pass
'''


@dataclass(frozen=True)
class Fault:
    """A change of one piece of a file, in a statement that begins at `statement`."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    statement: int
    text: str

    def planted(self, source: str) -> str:
        lines = source.splitlines(keepends=True)
        start, end = self.line - 1, self.end_line - 1
        changed = (
            lines[start].encode()[: self.column].decode() + self.text + lines[end].encode()[self.end_column :].decode()
        )
        return "".join([*lines[:start], changed, *lines[end + 1 :]])


def changes(node: ast.AST, source: str) -> Iterator[tuple[ast.AST, str]]:
    """Pieces below a node and what to write in their place."""

    def text(part: ast.AST) -> str:
        return ast.get_source_segment(source, part) or ""

    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in SWAPS:
            yield node, f"({text(left)} {SWAPS[type(op)]} {text(right)})"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in SWAPS and not isinstance(left, ast.Constant):
            yield node, f"({text(left)} {SWAPS[type(op)]} {text(right)})"
        case ast.BoolOp(op=op, values=values):
            yield node, "(" + (" or " if isinstance(op, ast.And) else " and ").join(map(text, values)) + ")"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, f"bool({text(operand)})"
        case ast.Expr(value=ast.Await(value=value)):
            yield node, f"{text(value)}.close()" if "(" not in text(value) else "None"
        case ast.Expr(value=ast.Call()):
            yield node, "None"
        case ast.Constant(value=int(value)) if type(value) is int and 0 < value < 1000:
            yield node, str(value + 1)
        case ast.Return(value=ast.Constant(value=bool(value))):
            yield node, f"return {not value}"


def places(path: Path) -> Iterator[Fault]:
    """Every fault that could be planted in the functions of a file."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for statement in function.body:
            yield from _in_statement(statement, source, path)


def _in_statement(statement: ast.stmt, source: str, path: Path) -> Iterator[Fault]:
    inner = [child for child in ast.walk(statement) if isinstance(child, ast.stmt) and child is not statement]
    skipped = {id(below) for child in inner for below in ast.walk(child)}
    if isinstance(
        statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Match | ast.Raise | ast.Assert
    ):
        return
    for node in ast.walk(statement):
        if id(node) in skipped or isinstance(node, ast.JoinedStr):
            continue
        for piece, text in changes(node, source):
            yield Fault(
                str(path.relative_to(ROOT)),
                piece.lineno,  # type: ignore[attr-defined]
                piece.col_offset,  # type: ignore[attr-defined]
                piece.end_lineno,  # type: ignore[attr-defined]
                piece.end_col_offset,  # type: ignore[attr-defined]
                statement.lineno,
                text,
            )
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.stmt):
            yield from _in_statement(child, source, path)


def chosen() -> list[Fault]:
    """The faults: a folder by the root of its size, then a place in it; only those that still compile."""
    draw = random.Random(SEED)
    folders = defaultdict(list)
    for path in sorted((ROOT / "velodrome").rglob("*.py")):
        if "numba" not in path.read_text(encoding="utf-8"):  # compiled code cannot write down who comes by
            folders[path.relative_to(ROOT / "velodrome").parts[0]] += sorted(set(places(path)), key=str)
    names = sorted(name for name in folders if folders[name])
    faults: list[Fault] = []
    while len(faults) < COUNT:
        folder = draw.choices(names, [len(folders[name]) ** 0.5 for name in names])[0]
        fault = draw.choice(folders[folder])
        source = (ROOT / fault.path).read_text(encoding="utf-8")
        try:
            ast.parse(fault.planted(source))
            ast.parse(_watched(source, fault.statement, 0))
        except SyntaxError:
            continue
        if (fault not in faults and fault.text != "None") or len(faults) % 3 == 0:
            faults.append(fault)
    return faults


def _watched(source: str, statement: int, place: int) -> str:
    lines = source.splitlines(keepends=True)
    line = lines[statement - 1]
    indent = line[: len(line) - len(line.lstrip())]
    probe = f"{indent}__import__('velodrome._faults', fromlist=['here']).here({place})\n"
    return "".join([*lines[: statement - 1], probe, *lines[statement - 1 :]])


def watch(copy: Path) -> None:
    folder = copy / ".reached"
    folder.mkdir(exist_ok=True)
    (copy / "velodrome" / "_faults.py").write_text(PROBE.format(folder=str(folder)).lstrip())
    faults = chosen()
    for path in {fault.path for fault in faults} - set(SILENT):
        mine = sorted((fault.statement, place) for place, fault in enumerate(faults) if fault.path == path)
        source = (ROOT / path).read_text(encoding="utf-8")
        for statement, place in reversed(mine):
            source = _watched(source, statement, place)
        (copy / path).write_text(source, encoding="utf-8")
    print(folder)


def reached(folder: Path) -> dict[int, list[str]]:
    """The tests that came by each place, without the phase that pytest appends."""
    tests: dict[int, dict[str, None]] = defaultdict(dict)
    for path in sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime):
        for line in path.read_text().splitlines():
            place, _, test = line.partition("\t")
            if test:
                tests[int(place)][test.rsplit(" (", 1)[0]] = None
    return {place: list(names) for place, names in tests.items()}


def count(copy: Path, folder: Path, arguments: list[str]) -> list[dict[str, object]]:
    """What the tests that reached a place say when its fault is planted in the copy, in place of what marked it."""
    tests, results = reached(folder), []
    for place, fault in enumerate(chosen()):
        path, source = copy / fault.path, (ROOT / fault.path).read_text(encoding="utf-8")
        names = [SILENT[fault.path]] if fault.path in SILENT else tests.get(place, [])
        names = [name for name in names if (copy / name.partition("::")[0]).exists()]
        names.sort(key=lambda name: not name.startswith(f"tests/{Path(fault.path).parts[1]}"))
        result = "not reached"
        if names:
            path.write_text(fault.planted(source), encoding="utf-8")
            try:
                result = _tried(copy, names[:MOST_TESTS], arguments)
            finally:
                path.write_text(source, encoding="utf-8")
        results.append({**asdict(fault), "place": place, "reached_by": len(names), "result": result})
        print(f"{place:3} {fault.path}:{fault.line} {fault.text!r}: {result} ({len(names)} tests)", flush=True)
    return results


def _tried(copy: Path, names: list[str], arguments: list[str]) -> str:
    python = str(copy / ".venv" / "bin" / "python")
    command = [python, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *arguments, *names]
    try:
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=LIMIT_S, env={**os.environ})
    except subprocess.TimeoutExpired:
        return "found: hangs"
    failed = next((line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))), "")
    return {0: "missed", 1: f"found: {failed[:150]}", 5: "not reached"}.get(
        done.returncode, f"found: exit {done.returncode}"
    )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["list"]:
            print(json.dumps([asdict(fault) for fault in chosen()], indent=1))
        case ["watch", copy]:
            watch(Path(copy).resolve())
        case ["count", copy, folder, *arguments]:
            results = count(Path(copy).resolve(), Path(folder).resolve(), arguments)
            found = sum(str(each["result"]).startswith("found") for each in results)
            print(f"{found} of {len(results)} found")
        case _:
            sys.exit(__doc__)
