"""A static copy of a selection: HTML files that link to each other, their style and scripts beside them; no server.

The folder is new, empty, or an earlier copy; a folder with any other file is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from markupsafe import Markup

from velodrome.errors import InputError, StorageError
from velodrome.index import Entry, Query
from velodrome.viewer.pages.failures_page import failures_page
from velodrome.viewer.pages.frame import render_page
from velodrome.viewer.pages.links import Address, Links, long
from velodrome.viewer.pages.rollout_page import rollout_page
from velodrome.viewer.pages.rollouts_page import rollouts_page
from velodrome.viewer.pages.run_page import run_page
from velodrome.viewer.pages.task_page import task_page
from velodrome.viewer.pages.tasks_page import tasks_page
from velodrome.viewer.parts.render import environment, many
from velodrome.viewer.viewed_file import ViewedFile

Json = dict[str, Any]

_OURS = "of velo view"
MARK = f"<!-- a page {_OURS} -->"
POLICY = "default-src 'none'; style-src 'self'; script-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
DEFAULT_LIMIT = 1000
_PATIENT_S = 24 * 3600.0
_STATIC = Path(__file__).parent / "static"


@dataclass(frozen=True)
class Copied:
    """The counts of a copy. `more`: the selection had more rollouts than the limit."""

    rollouts: int
    pages: int
    more: bool


class CopyLinks(Links):
    """Addresses within a copy. A page of the list gets its name when the first link to it is made."""

    static = True

    def __init__(self, slug: str, where: str, entries: Sequence[Entry], *, failures: bool) -> None:
        super().__init__(slug)
        self._where = where
        self._numbers = {entry.number for entry in entries}
        self._failures = failures
        self.tasks_copied = {task: f"task-{place}.html" for place, task in enumerate({e.task: 0 for e in entries}, 1)}
        self.lists = {"": "rollouts.html"}  # by their offset

    def with_columns(self, cols: str) -> Links:
        return self

    def to(self, path: str, **query: str | int | Sequence[str]) -> str | None:
        if path.startswith("/static/"):
            return path.removeprefix("/static/")
        query_texts = {name: str(value) for name, value in query.items() if value}
        page, _, name = path.removeprefix(self.root).removeprefix("/").partition("/")
        if path == self.root:
            return "index.html"
        if page == "rollout" and not query_texts.keys() & {"show", "at", "raw", "find"}:
            return f"rollout-{name}.html" if long(name) in self._numbers else None
        if page == "rollouts" and "sort" not in query_texts and query_texts.get("q", "") in ("", self._where):
            return self.lists.setdefault(query_texts.get("since", ""), f"rollouts-{len(self.lists) + 1}.html")
        if page == "tasks" and not query_texts.keys() & {"sort", "since"}:
            return "tasks.html"
        if page == "task" and "since" not in query_texts:
            return self.tasks_copied.get(query_texts["id"])
        return "failures.html" if page == "failures" and self._failures else None


def write_copy(source: ViewedFile, folder: Path, *, where: str = "", limit: int = DEFAULT_LIMIT) -> Copied:
    """Copy the run's page, the rollouts that match, their tasks and a list of them, and the failures."""
    index = source.read_on()
    query = Query.parse(where, index.names())
    source.measure("checks", patience_s=_PATIENT_S)  # waits for the whole scan, because a filter may name checks
    _prepare(folder)
    entries = list(islice(index.select(query), limit + 1))
    more, entries = len(entries) > limit, entries[:limit]
    links = CopyLinks(source.slug, where, entries, failures=bool(index.state.failed))
    for name, text in _beside().items():
        _write(folder / name, text)
    frame = {"mark": Markup(MARK), "policy": POLICY}
    pages = 0

    def write(name: str | None, here: str, values: Json) -> None:
        nonlocal pages
        text = render_page(f"{here}.html", here, links, source=source, frame=frame, **values)
        # A browser does not load modules from a file.
        _write(folder / (name or ""), text.replace('<script type="module" ', "<script defer "))
        pages += 1

    write("index.html", "run", run_page(source, links, Address()))
    remaining, since = len(entries), ""
    while True:
        values = rollouts_page(source, links, Address(where, since=int(since or 0)))
        values["entries"] = values["entries"][:remaining]
        remaining -= len(values["entries"])
        values["next"] = values["next"] if remaining else None
        values["tally"] = many(len(entries), "rollout") + (", the first that match" if more else "")
        write(links.lists[since], "rollouts", values)
        if values["next"] is None:
            break
        since = next(reversed(links.lists))
    for entry in entries:
        values = rollout_page(source, links, Address(where, number=entry.number))
        write(links.rollout(entry.number), "rollout", values)
    write("tasks.html", "tasks", _tasks(source, links))
    for task, name in links.tasks_copied.items():
        write(name, "task", task_page(source, links, Address(id=task)))
    if links.failures():
        write("failures.html", "failures", failures_page(source, links, Address()))
    return Copied(len(entries), pages, more)


def _tasks(source: ViewedFile, links: CopyLinks) -> Json:
    """The list of the copied tasks, the hardest first."""
    families = [source.index().repeats(task, limit=1) for task in links.tasks_copied]
    rows = sorted(
        (family.task for family in families if family), key=lambda row: (row.pass_rate is None, row.pass_rate)
    )
    list_values = {"rows": rows, "tally": many(len(rows), "task"), "note": "", "previous": None, "next": None}
    return {**tasks_page(source, links, Address()), **list_values}


def _prepare(folder: Path) -> None:
    """Make the folder, or empty it of an earlier copy. A folder with any other file in it is refused."""
    try:
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder}: not a folder; give --export another name")
        folder.mkdir(parents=True, exist_ok=True)
        files = sorted(folder.iterdir())
        foreign = next((path for path in files if not _is_ours(path)), None)
        if foreign is not None:
            raise InputError(
                f"{folder}: holds {foreign.name}, which is not a page of velo view; give --export a new folder"
            )
        for path in files:
            path.unlink()
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from error


def _is_ours(path: Path) -> bool:
    if path.suffix not in (".html", ".css", ".js") or not path.is_file():
        return False
    with path.open("rb") as stream:
        return _OURS.encode() in stream.read(200)


@cache
def _beside() -> dict[str, str]:
    """The files beside the pages: the style, and the scripts, each in its own scope."""
    texts = {path.name: f'"use strict";\n{{\n{path.read_text(encoding="utf-8")}}}\n' for path in _STATIC.glob("*.js")}
    texts["viewer.css"] = environment().get_template("viewer.css").render()
    return {name: f"/* a file {_OURS} */\n{text}" for name, text in texts.items()}


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror or error}") from error
