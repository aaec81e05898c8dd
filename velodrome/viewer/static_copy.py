"""A static copy of a selection: HTML files that link to each other and need no server, no network and no other file.

The folder is new, empty, or an earlier copy; a folder with anything else in it is left alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from velodrome.errors import InputError, StorageError
from velodrome.index import Index, Query, Sort
from velodrome.viewer.pages.failures_page import failures_page
from velodrome.viewer.pages.frame import rendered
from velodrome.viewer.pages.links import DEFAULT_SORT, Links, short
from velodrome.viewer.pages.rollout_page import rollout_page
from velodrome.viewer.pages.rollouts_page import PAGE, ListRequest, rollouts_page
from velodrome.viewer.pages.run_page import run_page
from velodrome.viewer.pages.task_page import task_page
from velodrome.viewer.parts.render import content_policy, environment, many
from velodrome.viewer.viewed_file import ViewedFile

Json = dict[str, Any]

MARK = "<!-- a page of velo view -->"
DEFAULT_LIMIT = 1000
_PATIENT_S = 24 * 3600.0
_STATIC = Path(__file__).parent / "static"


@dataclass(frozen=True)
class Frame:
    """What each page carries: its style and its keys, and a policy that lets nothing else in."""

    mark: Markup
    style: Markup
    script: Markup
    policy: str


@dataclass(frozen=True)
class CopiedRollouts:
    """Where each page of the list begins, the rollouts, their tasks, and whether there are more than the limit."""

    cursors: list[str]
    numbers: list[int]
    tasks: list[str]
    more: bool


@dataclass(frozen=True)
class Copied:
    """What was written; `more`: whether the selection held more than the limit."""

    rollouts: int
    pages: int
    more: bool


class CopyLinks(Links):
    """Addresses within a copy."""

    def __init__(self, where: str, selection: CopiedRollouts, *, failures: bool) -> None:
        self._where = where
        self._numbers = set(selection.numbers)
        self._tasks = {task: f"task-{place}.html" for place, task in enumerate(selection.tasks, 1)}
        self._failures = failures
        self._lists = {cursor: f"rollouts-{place}.html" for place, cursor in enumerate(selection.cursors, 1)}
        self._lists[""] = "rollouts.html"

    def rollouts(self, *, q: str = "", sort: str = "", after: str = "", before: str = "") -> str | None:
        if q not in ("", self._where) or sort not in ("", DEFAULT_SORT) or before:
            return None
        return self._lists.get(after)

    def rollout(self, number: int, *, q: str = "", sort: str = "", show: str = "") -> str | None:
        return f"rollout-{short(number)}.html" if number in self._numbers and not show else None

    def task(self, task: str, *, since: int = 0) -> str | None:
        return self._tasks.get(task) if not since else None

    def failures(self) -> str | None:
        return "failures.html" if self._failures else None


def write_copy(source: ViewedFile, folder: Path, *, where: str = "", limit: int = DEFAULT_LIMIT) -> Copied:
    """Copy the run's page, the rollouts that match, their tasks, and the failures."""
    index = source.read_on()
    query = Query.parse(where, index.fields())
    _prepare(folder)
    selection = _selection(index, query, limit)
    numbers = selection.numbers
    links = CopyLinks(where, selection, failures=bool(index.state.failed))
    frame = make_frame()
    pages = 0

    def write(name: str | None, here: str, values: Json) -> None:
        nonlocal pages
        path = folder / (name or "")
        text = rendered(f"{here}.html", here, links, source=source, frame=frame, **values)
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise StorageError(f"{path}: cannot be written: {error.strerror or error}") from error
        pages += 1

    for kind in ("metrics", "profile", "checks"):
        source.measure(kind, patience_s=_PATIENT_S)
    write("index.html", "run", run_page(source, index, links))
    left = len(numbers)
    for cursor in selection.cursors:
        values = rollouts_page(source, index, links, ListRequest(where, after=cursor))
        values["entries"] = values["entries"][:left]
        left -= len(values["entries"])
        values["next"] = values["next"] if left else None
        values["tally"] = many(len(numbers), "rollout") + (", the first that match" if selection.more else "")
        write(links.rollouts(q=where, after=cursor), "rollouts", values)
    for number in numbers:
        values = rollout_page(index, links, number, ListRequest(where), "", whole=True)
        write(links.rollout(number), "rollout", values)
    for task in selection.tasks:
        write(links.task(task), "task", task_page(index, links, task))
    if links.failures():
        write("failures.html", "failures", failures_page(index, links))
    return Copied(len(numbers), pages, selection.more)


def _selection(index: Index, query: Query, limit: int) -> CopiedRollouts:
    cursors: list[str] = []
    numbers: list[int] = []
    tasks: dict[str, None] = {}
    cursor = ""
    while True:
        page = index.page(query, Sort(), after=cursor or None, limit=PAGE)
        cursors.append(cursor)
        room = limit - len(numbers)
        for entry in page.entries[:room]:
            numbers.append(entry.number)
            tasks[entry.task] = None
        if page.next is None or len(page.entries) > room or len(numbers) == limit:
            return CopiedRollouts(cursors, numbers, list(tasks), page.next is not None or len(page.entries) > room)
        cursor = page.next


def _prepare(folder: Path) -> None:
    """Make the folder, or empty it of an earlier copy. A folder with any other file in it is refused."""
    try:
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder}: not a folder; give --export another name")
        folder.mkdir(parents=True, exist_ok=True)
        there = sorted(folder.iterdir())
        strange = next((path for path in there if not _is_ours(path)), None)
        if strange is not None:
            raise InputError(
                f"{folder}: holds {strange.name}, which is not a page of velo view; give --export a new folder"
            )
        for path in there:
            path.unlink()
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from error


def _is_ours(path: Path) -> bool:
    if path.suffix != ".html" or not path.is_file():
        return False
    with path.open("rb") as stream:
        return MARK.encode() in stream.read(200)


def make_frame() -> Frame:
    """The frame of every page of a copy."""
    style = environment().get_template("viewer.css").render()
    script = "\n".join((_STATIC / name).read_text(encoding="utf-8") for name in ("viewer.js", "player.js"))
    return Frame(Markup(MARK), Markup(style), Markup(script), content_policy(style=style, script=script))
