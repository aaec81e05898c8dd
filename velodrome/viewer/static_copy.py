"""A static copy of a selection: HTML files that link to each other and need no server, no network and no other file.

The folder is new, empty, or an earlier copy; anything else that is there already is left alone.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from markupsafe import Markup

from velodrome.errors import InputError, StorageError
from velodrome.index import Index, Query, Sort
from velodrome.viewer.pages.failures_page import failures_page
from velodrome.viewer.pages.frame import rendered
from velodrome.viewer.pages.links import short
from velodrome.viewer.pages.rollout_page import rollout_page
from velodrome.viewer.pages.rollouts_page import PAGE, ListRequest, rollouts_page
from velodrome.viewer.pages.run_page import run_page
from velodrome.viewer.pages.task_page import task_page
from velodrome.viewer.parts.render import environment, many
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
class Copied:
    """What was written; `more`: whether the selection held more than the limit."""

    rollouts: int
    pages: int
    more: bool


class Copies:
    """Addresses within a copy. What is not part of it has none."""

    static = True

    def __init__(self, where: str, numbers: list[int], tasks: list[str], *, failures: bool) -> None:
        self._where = where
        self._numbers = set(numbers)
        self._tasks = {task: f"task-{place}.html" for place, task in enumerate(tasks, 1)}
        self._failures = failures
        self._lists: dict[str, str] = {}

    def home(self) -> None:
        return None

    def asset(self, name: str) -> str:
        return name

    def run(self) -> str:
        return "index.html"

    def rollouts(
        self, *, q: str = "", sort: str = "", after: str | None = None, before: str | None = None
    ) -> str | None:
        if q not in ("", self._where) or sort not in ("", "number") or before is not None:
            return None
        return "rollouts.html" if after is None else self._lists.get(after)

    def follow(self, cursor: str) -> str:
        """The name of the list's page behind a cursor."""
        return self._lists.setdefault(cursor, f"rollouts-{len(self._lists) + 2}.html")

    def rollout(self, number: int, *, q: str = "", sort: str = "", show: str = "") -> str | None:
        return f"rollout-{short(number)}.html" if number in self._numbers and not show else None

    def raw(self, number: int) -> None:
        return None

    def key(self, key: str) -> None:
        return None

    def tasks(self, *, sort: str = "", after: str | None = None, before: str | None = None) -> None:
        return None

    def task(self, task: str, *, since: int = 0) -> str | None:
        return self._tasks.get(task) if not since else None

    def failures(self) -> str | None:
        return "failures.html" if self._failures else None

    def compare(self, *, a: str = "", b: str = "", only: str = "", since: int = 0) -> None:
        return None


def write_copy(source: ViewedFile, folder: Path, *, where: str = "", limit: int = DEFAULT_LIMIT) -> Copied:
    """Copy the run's page, the rollouts that match, their tasks, and the failures."""
    index = source.read_on()
    query = Query.parse(where, index.fields())
    _prepare(folder)
    cursors, numbers, tasks, more = _selected(index, query, limit)
    links = Copies(where, numbers, tasks, failures=bool(index.state.failed))
    for cursor in cursors[1:]:
        links.follow(cursor or "")
    writer = _Writer(source, links, folder)
    for kind in ("metrics", "profile", "checks"):
        source.measure(kind, patience_s=_PATIENT_S)
    writer.write("index.html", "run", run_page(source, index, links))
    left = len(numbers)
    for cursor in cursors:
        told = rollouts_page(source, index, links, ListRequest(where, after=cursor or ""))
        told["entries"] = told["entries"][:left]
        left -= len(told["entries"])
        told["next"] = told["next"] if left else None
        told["tally"] = many(len(numbers), "rollout") + (", the first that match" if more else "")
        writer.write(links.rollouts(q=where, after=cursor) or "", "rollouts", told)
    for number in numbers:
        writer.write(
            links.rollout(number) or "",
            "rollout",
            rollout_page(index, links, number, ListRequest(where), "", whole=True),
        )
    for task in tasks:
        writer.write(links.task(task) or "", "task", task_page(index, links, task))
    if links.failures():
        writer.write("failures.html", "failures", failures_page(index, links))
    return Copied(len(numbers), writer.pages, more)


def _selected(index: Index, query: Query, limit: int) -> tuple[list[str | None], list[int], list[str], bool]:
    """Where each page of the list begins, the rollouts, their tasks, and whether there are more."""
    cursors: list[str | None] = []
    numbers: list[int] = []
    tasks: dict[str, None] = {}
    cursor: str | None = None
    while True:
        page = index.page(query, Sort(), after=cursor, limit=PAGE)
        cursors.append(cursor)
        room = limit - len(numbers)
        for entry in page.entries[:room]:
            numbers.append(entry.number)
            tasks[entry.task] = None
        if page.next is None or len(page.entries) > room or len(numbers) == limit:
            return cursors, numbers, list(tasks), page.next is not None or len(page.entries) > room
        cursor = page.next


def _prepare(folder: Path) -> None:
    """An empty folder. The pages of an earlier copy make room; other files are nobody's to delete."""
    try:
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder}: not a folder; give --export another name")
        folder.mkdir(parents=True, exist_ok=True)
        there = sorted(folder.iterdir())
        strange = next((path for path in there if not _is_ours(path)), None)
        if strange is not None:
            raise InputError(
                f"{folder}: holds {strange.name}, which is no page of velo view; give --export a new folder"
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


class _Writer:
    def __init__(self, source: ViewedFile, links: Copies, folder: Path) -> None:
        self._source = source
        self._links = links
        self._folder = folder
        self._frame = make_frame()
        self.pages = 0

    def write(self, name: str, here: str, told: Json) -> None:
        text = rendered(f"{here}.html", here, self._links, source=self._source, frame=self._frame, **told)
        path = self._folder / name
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise StorageError(f"{path}: cannot be written: {error.strerror or error}") from error
        self.pages += 1


def make_frame() -> Frame:
    """The frame of every page of a copy."""
    style = environment().get_template("viewer.css").render()
    script = "\n".join((_STATIC / name).read_text(encoding="utf-8") for name in ("viewer.js", "player.js"))
    hashes = [b64encode(sha256(text.encode()).digest()).decode() for text in (style, script)]
    policy = (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return Frame(Markup(MARK), Markup(style), Markup(script), policy)
