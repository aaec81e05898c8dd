"""Every address of the viewer, in one place. The address is the state: every view can be linked.

A static copy has the same pages as files; a page that was not copied has the address None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from velodrome.index import FAILED

DEFAULT_SORT = "number"


@dataclass(frozen=True)
class Address:
    """The parts of an address: filter and offset of a list, a rollout (`number`), a task (`id`), what to show in full.

    Of a rollout: the message it is `at`, whether texts are `raw`, and the text to `find`. Of a list: its columns.
    Of a run: the field that rewards are shown `by`.
    """

    q: str = ""
    sort: str = ""
    show: str = ""
    id: str = ""
    only: str = ""
    at: str = ""
    raw: str = ""
    find: str = ""
    cols: str = ""
    by: str = ""
    since: int = 0
    number: int = 0


class Links:
    """Addresses of the running viewer, from one of its runs (or from none: `slug` is empty).

    Chosen columns of the list stay in the addresses of rollouts, and so on the way back.
    """

    static = False

    def __init__(self, slug: str, *, cols: str = "") -> None:
        self.slug = slug
        self._cols = cols
        self.root = f"/run/{quote(slug, safe='')}"

    def to(self, path: str, **query: str | int | Sequence[str]) -> Any:
        """The address of a page, without empty parts of the query. A static copy has other addresses."""
        return _address(path, **query)

    def with_columns(self, cols: str) -> Links:
        """The same links, with these columns in lists."""
        return Links(self.slug, cols=cols)

    def home(self) -> Any:
        return self.to("/")

    def asset(self, name: str) -> Any:
        return self.to(f"/static/{name}")

    def pulse(self, runs: Sequence[str] = ()) -> Any:
        return self.to(f"{self.root}/pulse") if self.slug else self.to("/pulse", run=runs)

    def runs(self, *, run: Sequence[str] = (), q: str = "", sort: str = "") -> Any:
        """The list of runs, some of them picked."""
        return self.to("/", q=q, sort=sort, run=run)

    def training(self) -> Any:
        return self.to(f"/training/{quote(self.slug, safe='')}")

    def run(self, *, by: str = "") -> Any:
        return self.to(self.root, by=by)

    def rollouts(self, *, q: str = "", sort: str = "", since: int = 0) -> Any:
        return self.to(f"{self.root}/rollouts", q=q, sort=_sort(sort), cols=self._cols, since=since)

    def rollout(
        self, number: int, *, q: str = "", sort: str = "", show: str = "", at: str = "", raw: str = "", find: str = ""
    ) -> Any:
        view = {"q": q, "sort": _sort(sort), "cols": self._cols, "show": show, "at": at, "raw": raw, "find": find}
        address = self.to(f"{self.root}/rollout/{short(number)}", **view)
        place = show.partition(".")[0] or (f"m{at}" if at else "")
        return f"{address}#{quote(place)}" if place and address else address

    def rollout_file(self, number: int, form: str) -> Any:
        """The rollout as a download."""
        return self.to(f"{self.root}/rollout/{short(number)}.{form}")

    def judgement(self, number: int) -> Any:
        return self.to(f"{self.root}/rollout/{short(number)}/judgement")

    def key(self, key: str) -> Any:
        return self.to(f"{self.root}/key/{quote(key)}")

    def tasks(self, *, q: str = "", sort: str = "", since: int = 0) -> Any:
        return self.to(f"{self.root}/tasks", q=q, sort=sort, since=since)

    def task(self, task: str, *, since: int = 0) -> Any:
        return self.to(f"{self.root}/task", id=task, since=since)

    def failures(self) -> Any:
        return self.to(f"{self.root}/failures")

    def compare(self, *, a: str = "", b: str = "", only: str = "", since: int = 0) -> Any:
        return self.to("/compare", a=a, b=b, only=only, since=since)

    def compare_with(self) -> Any:
        """The page to choose another run for a comparison."""
        return self.to("/compare", run=[self.slug])

    def compare_several(self, runs: Sequence[str], *, since: int = 0) -> Any:
        return self.to("/compare", run=runs, since=since)

    def pair(self, number: int, other: int) -> Any:
        """Two rollouts of this run side by side."""
        return self.to("/pair", a=f"{self.slug}:{short(number)}", b=f"{self.slug}:{short(other)}")


def pair_address(a: str, number: int, b: str, other: int) -> str:
    """Two rollouts side by side, each by its run and its number."""
    return _address("/pair", a=f"{a}:{short(number)}", b=f"{b}:{short(other)}")


def task_pair_address(a: str, b: str, task: str) -> str:
    """Two rollouts of a task, chosen from two runs."""
    return _address("/pair", a=a, b=b, task=task)


def short(number: int) -> str:
    """A rollout's number as a person sees it: its line, with an f before it for a failed attempt."""
    return f"f{number - FAILED}" if number > FAILED else str(number)


def long(name: str) -> int | None:
    """The number of a rollout from its short name, or None."""
    digits = name.removeprefix("f")
    if not (digits.isascii() and digits.isdecimal() and 0 < len(digits) < 10):
        return None
    return int(digits) + (FAILED if name.startswith("f") else 0)


def _sort(sort: str) -> str:
    return "" if sort == DEFAULT_SORT else sort


def _address(path: str, **query: str | int | Sequence[str]) -> str:
    query = {name: value for name, value in query.items() if value}
    return f"{path}?{urlencode(query, doseq=True)}" if query else path
