"""Every address of the viewer, in one place. The address is the state: a view that can be seen can be linked.

A static copy has the same pages under the names of files; what was not copied has no address there (None).
"""

from __future__ import annotations

from typing import Protocol
from urllib.parse import quote, urlencode

from velodrome.index import FAILED

DEFAULT_SORT = "number"


class Links(Protocol):
    """Where things are."""

    static: bool

    def home(self) -> str | None: ...
    def asset(self, name: str) -> str: ...
    def run(self) -> str: ...
    def rollouts(
        self, *, q: str = "", sort: str = "", after: str | None = None, before: str | None = None
    ) -> str | None: ...
    def rollout(self, number: int, *, q: str = "", sort: str = "", show: str = "") -> str | None: ...
    def raw(self, number: int) -> str | None: ...
    def key(self, key: str) -> str | None: ...
    def tasks(self, *, sort: str = "", after: str | None = None, before: str | None = None) -> str | None: ...
    def task(self, task: str, *, since: int = 0) -> str | None: ...
    def failures(self) -> str | None: ...
    def compare(self, *, a: str = "", b: str = "", only: str = "", since: int = 0) -> str | None: ...


class Served:
    """Addresses of the running viewer, seen from one of its runs (or from none: `slug` is empty)."""

    static = False

    def __init__(self, slug: str) -> None:
        self.slug = slug
        self._root = f"/run/{quote(slug, safe='')}"

    def home(self) -> str:
        return "/"

    def asset(self, name: str) -> str:
        return f"/static/{name}"

    def pulse(self) -> str:
        return f"{self._root}/pulse" if self.slug else "/pulse"

    def run(self) -> str:
        return self._root

    def rollouts(self, *, q: str = "", sort: str = "", after: str | None = None, before: str | None = None) -> str:
        return _with(f"{self._root}/rollouts", q=q, sort=_sort(sort), after=after, before=before)

    def rollout(self, number: int, *, q: str = "", sort: str = "", show: str = "") -> str:
        found = _with(f"{self._root}/rollout/{short(number)}", q=q, sort=_sort(sort), show=show)
        return f"{found}#{quote(show.partition('.')[0])}" if show else found

    def raw(self, number: int) -> str:
        return f"{self._root}/rollout/{short(number)}.json"

    def key(self, key: str) -> str:
        return f"{self._root}/key/{quote(key)}"

    def tasks(self, *, sort: str = "", after: str | None = None, before: str | None = None) -> str:
        return _with(f"{self._root}/tasks", sort=sort, after=after, before=before)

    def task(self, task: str, *, since: int = 0) -> str:
        return _with(f"{self._root}/task", id=task, since=str(since) if since else "")

    def failures(self) -> str:
        return f"{self._root}/failures"

    def compare(self, *, a: str = "", b: str = "", only: str = "", since: int = 0) -> str:
        return _with("/compare", a=a, b=b, only=only, since=str(since) if since else "")


def short(number: int) -> str:
    """A rollout's number as a person meets it: its line, and for a failed attempt an f before it."""
    return f"f{number - FAILED}" if number > FAILED else str(number)


def long(name: str) -> int | None:
    """The number behind such a name; None if it is none."""
    digits = name.removeprefix("f")
    if not (digits.isascii() and digits.isdecimal() and 0 < len(digits) < 10):
        return None
    return int(digits) + (FAILED if name.startswith("f") else 0)


def quoted(text: str) -> str:
    """A text as it stands in a filter."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _sort(sort: str) -> str:
    return "" if sort == DEFAULT_SORT else sort


def _with(path: str, **given: str | None) -> str:
    asked = {name: value for name, value in given.items() if value}
    return f"{path}?{urlencode(asked)}" if asked else path
