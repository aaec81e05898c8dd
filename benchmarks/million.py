"""The viewer on a million rollouts: how fast its index is made, in how much memory, and how soon each page answers.

    python -m benchmarks.million [--rows N] [--quick] [--folder DIR] [--json FILE] [--check]

It is the real `velo view`, asked over HTTP. Files of about 2.5 GB each are made up (two, for the comparison) and
deleted again, unless a folder is given to keep them in. A page is asked for twenty times.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.million_pages import check_pages, during_pages, list_pages, other_pages, word_pages
from benchmarks.million_rows import failures, rows, write
from benchmarks.million_viewer import SLUG, TURNS, Page, Viewer
from benchmarks.run import machine, say
from benchmarks.summary import Check, Json, concluded, table

_MILLION, _QUICK = 1_000_000, 50_000
_SEEDS = (7, 8)
_LEAST_MB_S, _MOST_MEMORY_MB, _MOST_MS = 100.0, 300.0, 200.0
_BUILDS = 3
_LOOK_S = 0.1
_COMPUTING = "being computed, shown"


def made(folder: Path, count: int) -> list[Path]:
    """The files, unless they are there."""
    result = []
    for seed in _SEEDS:
        path = folder / str(seed) / "rollouts.jsonl"
        result.append(path)
        if not path.exists():
            path.parent.mkdir(parents=True)
            start = time.perf_counter()
            write(path.with_name("rollouts.failures.jsonl"), failures(max(3, count // 200), count))
            write(path, rows(count, seed))
            say(f"made {path.stat().st_size / 1e6:,.0f} MB in {time.perf_counter() - start:.0f} s")
    return result


def entries_of(count: int) -> int:
    """What the viewer shows of such a file."""
    return count + max(3, count // 200)


def forget(path: Path) -> None:
    """Throw the index of a file away."""
    for each in path.parent.glob(f"{path.name}.index.sqlite*"):
        each.unlink()


def build(path: Path, count: int) -> Json:
    """An index made from nothing by a viewer that is only asked how far it is."""
    forget(path)
    load = os.getloadavg()[0]
    with Viewer([path]) as viewer:
        rows_s = viewer.wait_for(lambda: viewer.entries() >= entries_of(count), _LOOK_S)
        cpu_s = viewer.cpu_s()
        memory = viewer.memory()
    size_mb = path.stat().st_size / 1e6
    index_mb = sum(each.stat().st_size for each in path.parent.glob(f"{path.name}.index.sqlite*")) / 1e6
    result = {"file_mb": size_mb, "rows_s": rows_s, "mb_s": size_mb / rows_s, "index_mb": index_mb}
    return result | {"ready_s": viewer.ready_s, "cpu_s": cpu_s, "load": load} | memory


def ask(path: Path, count: int, turns: int) -> Json:
    """Every page of a file whose index is there."""
    with Viewer([path]) as viewer:
        viewer.wait_for(lambda: viewer.entries() >= entries_of(count), 10 * _LOOK_S)
        pages = _timed(viewer, list_pages(count) | word_pages(count) | other_pages(count), turns)
        run: dict[str, Page] = {"run": lambda turn: f"/run/{SLUG}"}
        before = time.perf_counter()
        computing = _timed(viewer, run | dict(list(other_pages(count).items())[:4]) | _few(count), turns)
        viewer.wait_for(lambda: _COMPUTING not in viewer.text(f"/run/{SLUG}"), 10 * _LOOK_S)
        facts_s = time.perf_counter() - before
        pages |= _timed(viewer, run | check_pages(count), turns)
        return {"pages": pages, "computing": computing, "facts_s": facts_s} | viewer.memory()


def _few(count: int) -> dict[str, Page]:
    every = list_pages(count)
    wanted = ("rollouts by number, first page", "rollouts, reward<1 tools>3, by -total_s", "rollouts, 0<pass_rate<1, ")
    return {name: page for name, page in every.items() if name.startswith(wanted)}


def _timed(viewer: Viewer, pages: dict[str, Page], turns: int) -> Json:
    result = {}
    for name, page in pages.items():
        result[name] = viewer.timed(page, turns)
        worst = max(result[name]["ms"])
        if worst > _MOST_MS:
            say(f"{name}: {statistics.median(result[name]['ms']):.0f} ms, worst {worst:.0f}")
    return result


def during(path: Path, count: int) -> Json:
    """Pages, one after the other, while the index is made."""
    forget(path)
    result: Json = {"rows": {}}
    with Viewer([path]) as viewer:
        turn, pages = 0, during_pages(count)
        while viewer.entries() < entries_of(count):
            for name, page in pages.items():
                result["rows"].setdefault(name, {"ms": []})["ms"].append(viewer.ms(page(turn)))
                time.sleep(_LOOK_S / 2)
            turn += 1
        return (
            result | {"rows_s": time.perf_counter() - viewer.started} | viewer.memory() | {"load": os.getloadavg()[0]}
        )


def compare(paths: list[Path], count: int, turns: int) -> Json:
    """Two such files side by side, before and after their comparison is there."""
    with Viewer(paths) as viewer:
        viewer.wait_for(lambda: viewer.entries(f"{SLUG}-2") >= entries_of(count), _LOOK_S)
        start = time.perf_counter()
        page: dict[str, Page] = {"compare": lambda turn: f"/compare?a={SLUG}&b={SLUG}-2"}
        early = _timed(viewer, page, turns)["compare"]
        viewer.wait_for(lambda: _COMPUTING not in viewer.text(page["compare"](0)), 10 * _LOOK_S)
        took_s = time.perf_counter() - start
        pages = {"compare, being computed": early, "compare": _timed(viewer, page, turns)["compare"]}
        return {"pages": pages, "took_s": took_s} | viewer.memory()


def measured(folder: Path, given: argparse.Namespace) -> Json:
    """All of it."""
    count = _QUICK if given.quick else given.rows
    paths = made(folder, count)
    result: Json = {"machine": machine(), "rows": count, "builds": []}
    for _ in range(given.builds):
        result["builds"].append(build(paths[0], count))
        say(f"built: {_told(result['builds'][-1])}")
    result["asked"] = ask(paths[0], count, given.turns)
    result["during"] = during(paths[0], count)
    result["compare"] = compare(paths, count, given.turns)
    result["machine"]["load_after"] = os.getloadavg()[0]
    return result


def _told(each: Json) -> str:
    result = f"{each['mb_s']:.0f} MB/s, {each['cpu_s']:.0f} s of CPU"
    return f"{result}, all processes {each['all_mb']:.0f} MB, load {each['load']:.1f}"


def checks(found: Json) -> list[Check]:
    """The figures beside their budgets."""
    rate = statistics.median(each["mb_s"] for each in found["builds"])
    parts = [*found["builds"], found["asked"], found["during"]]
    made = [
        Check("index made, median", rate, _LEAST_MB_S, "MB/s", least=True),
        Check("memory of the viewer", max(part["own_mb"] for part in parts), _MOST_MEMORY_MB, "MB"),
        Check("memory of the viewer, two files", found["compare"]["own_mb"], _MOST_MEMORY_MB, "MB"),
    ]
    tables = {"": found["asked"]["pages"], ", metrics computed beside": found["asked"]["computing"]}
    tables |= {", two files": found["compare"]["pages"]}
    for what, pages in tables.items():
        for figure, tell in (("median", statistics.median), ("worst", max)):
            slowest = max(pages, key=lambda name: tell(pages[name]["ms"]))
            made.append(Check(f"{figure} of {slowest}{what}", tell(pages[slowest]["ms"]), _MOST_MS, "ms"))
    return made


def report(found: Json) -> None:
    """The figures as text."""
    print(f"\nThe index of {found['rows']:,} rollouts, {found['builds'][0]['file_mb']:,.0f} MB.\n")
    head = [
        "made",
        "rows s",
        "MB/s",
        "CPU s",
        "index MB",
        "viewer MB",
        "children MB",
        "all MB",
        "load",
    ]
    names = ("rows_s", "mb_s", "cpu_s", "index_mb", "own_mb", "children_mb", "all_mb", "load")
    cells = [
        [str(at + 1), *("" if each[name] is None else f"{each[name]:.1f}" for name in names)]
        for at, each in enumerate(found["builds"])
    ]
    print(table(head, cells))
    _pages("Pages, index complete.", found["asked"]["pages"])
    _pages(
        f"Pages, metrics and checks computed beside ({found['asked']['facts_s']:.0f} s).", found["asked"]["computing"]
    )
    _pages(f"Pages while rows are read ({found['during']['rows_s']:.0f} s).", found["during"]["rows"])
    _pages(f"Two files; the comparison takes {found['compare']['took_s']:.0f} s.", found["compare"]["pages"])
    print("\nMemory: the highest of the viewer, of its children at one time, of all at one time.\n")
    parts = {"pages": found["asked"], "while it is made": found["during"], "two files": found["compare"]}
    names = ("own_mb", "children_mb", "all_mb")
    cells = [[what, *(f"{part[name]:.0f}" for name in names)] for what, part in parts.items()]
    print(table(["", "viewer MB", "children MB", "all MB"], cells))
    print("\nBudgets.\n")
    print(table(["what", "measured", "budget", ""], [check.cells() for check in checks(found)]))
    load = found["machine"]
    print(f"\n{load['cores']} cores, load average {load['load_before']:.1f} before, {load['load_after']:.1f} after.")


def _pages(heading: str, pages: Json) -> None:
    print(f"\n{heading}\n")
    cells = [
        [name, f"{statistics.median(page['ms']):.0f}", f"{max(page['ms']):.0f}", f"{page['ms'][0]:.0f}", _cpu(page)]
        for name, page in pages.items()
    ]
    print(table(["page", "median ms", "worst ms", "first ms", "CPU ms"], cells))


def _cpu(page: Json) -> str:
    return f"{page['cpu_ms']:.0f}" if "cpu_ms" in page else ""


@contextmanager
def place(given: Path | None) -> Iterator[Path]:
    """Where the files are made."""
    folder = given or Path(tempfile.mkdtemp(prefix="million-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    finally:
        if given is None:
            shutil.rmtree(folder)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.million", description=__doc__)
    parser.add_argument("--rows", type=int, default=_MILLION, help="rollouts of each file [1,000,000]")
    parser.add_argument("--quick", action="store_true", help=f"{_QUICK:,} rollouts")
    parser.add_argument("--turns", type=int, default=TURNS, help=f"how often each page is asked for [{TURNS}]")
    parser.add_argument("--builds", type=int, default=_BUILDS, help=f"how often the index is made [{_BUILDS}]")
    parser.add_argument("--folder", type=Path, help="make the files here, keep them, and use them again")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--check", action="store_true", help="exit code 1 if a budget is missed")
    args = parser.parse_args()
    with place(args.folder) as folder:
        result = measured(folder, args)
    report(result)
    made = checks(result)
    return concluded(result, made, json=args.json, check=args.check)


if __name__ == "__main__":
    sys.exit(main())
