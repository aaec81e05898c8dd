"""The viewer in a terminal: a list, a page at a time, and one rollout as text. Lines in, lines out; no cursor control.

Keys and texts come from untrusted files: characters that could affect the terminal are escaped.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from velodrome.errors import InputError
from velodrome.index import Entry, Index, Page, Query, Sort
from velodrome.index.query import typed
from velodrome.timing.report import clean, duration, padded
from velodrome.viewer.pages.failures_page import filter_of
from velodrome.viewer.pages.links import long, quoted, short
from velodrome.viewer.pages.run_page import account, read_runs
from velodrome.viewer.parts.render import number
from velodrome.viewer.transcript import plain, transcript
from velodrome.viewer.viewed_file import ViewedFile

Json = dict[str, Any]

HELP = """  Enter, n, p     next and previous page; of a rollout: next and previous within the filter
  o N, or N       open rollout N          t       the repeats of its task
  /FILTER         filter: /reward<1 tools>3 error:timeout "some text"     /  clears it
  s FIELD         sort: s reward, s -total_s; s alone: as in the file
  f               failures by kind        r       summary of the run
  u               back to the list        ?  help      q  quit"""
_WIDEST = 160


class TerminalViewer:
    """A conversation about one file. `ask` shows a prompt and returns a line, or None at the end of the input."""

    def __init__(
        self,
        source: ViewedFile,
        ask: Callable[[str], str | None],
        print_line: Callable[[str], None],
        *,
        width: int = 100,
        height: int = 30,
        where: str = "",
    ) -> None:
        self._source = source
        self._ask = ask
        self._print = print_line
        self._width = min(max(width, 40), _WIDEST)
        self._rows = max(height - 6, 5)
        self._query = Query.parse(where, self._index.fields()) if where else Query()
        self._sort = Sort()
        self._page: Page[Entry] = Page(())
        self._open: int | None = None

    @property
    def _index(self) -> Index:
        return self._source.index()

    def run(self) -> None:
        """Until `q` or the end of the input."""
        self._print(f"{clean(self._source.name, longest=80)}: ? for help, q to quit")
        self._list()
        while True:
            line = self._ask("> ")
            if line is None or line.strip() in ("q", "quit", "exit"):
                return
            try:
                self._do(line.strip())
            except InputError as error:
                for problem in error.problems:
                    self._print(plain(problem))

    def _do(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if line.startswith("/"):
            self._query = Query.parse(line[1:], self._index.fields())
            self._list()
        elif word == "s":
            before, self._sort = self._sort, Sort.parse(rest)
            try:
                self._list()
            except InputError:
                self._sort = before
                raise
        elif word == "o" or long(line) is not None:
            wanted = long(rest.strip() if word == "o" else line)
            if wanted is None:
                raise InputError("o takes the number of a rollout: o 17")
            self._show(wanted)
        elif line in self._words:
            self._words[line](self)
        else:
            raise InputError(f"{line!r:.60} is not understood; ? for help")

    def _next(self) -> None:
        if self._open is None and self._page.next is None:
            self._print("this is the last page")
        elif self._open is None:
            self._list(after=self._page.next)
        else:
            self._show_neighbour(1)

    def _previous(self) -> None:
        if self._open is None and self._page.previous is None:
            self._print("this is the first page")
        elif self._open is None:
            self._list(before=self._page.previous)
        else:
            self._show_neighbour(0)

    def _show_neighbour(self, side: int) -> None:
        number = self._index.neighbours(self._query, self._sort, self._open or 0)[side]
        if number is None:
            self._print("there are no more within the filter")
        else:
            self._show(number)

    def _list(self, *, after: str | None = None, before: str | None = None) -> None:
        index = self._index
        page = index.page(self._query, self._sort, after=after, before=before, limit=self._rows)
        self._page, self._open = page, None
        state = index.state
        if self._query.terms:
            summary = f"{index.count(self._query):,} of {state.entries:,} match {self._query.text}"
        else:
            summary = f"{state.rows:,} kept, {state.failed:,} failed"
        live = ", live" if state.live else ""
        self._print(f"{clean(summary, longest=self._width)}{live}; sorted by {clean(str(self._sort))}")
        for note in self._source.notes[:3]:
            self._print(f"  {plain(note)}")
        for entry in page.entries:
            self._print(self._line(entry))
        if not page.entries:
            self._print("  nothing here")

    def _line(self, entry: Entry) -> str:
        reward = "failed" if entry.state == "failed" else "-" if entry.reward is None else number(entry.reward)
        total_s = entry.numbers.get("total_s")
        took = "" if total_s is None else duration(total_s * 1000)
        head = f"{short(entry.number):>6}  {padded(reward, 7)}{padded(took, 9)}"
        key = clean(entry.key, longest=20)
        text = entry.error or entry.prompt
        return f"{head}{padded(key, 21)} {clean(text or '', longest=max(self._width - 46, 20))}".rstrip()

    def _show(self, wanted: int) -> None:
        row = self._index.row(wanted)
        self._open = wanted
        lines = transcript(row).splitlines()
        for at, line in enumerate(lines):
            self._print(line)
            if (at + 1) % self._rows == 0 and at + 1 < len(lines):
                reply = self._ask(f"-- {len(lines) - at - 1} more lines: Enter, or q to leave --")
                if reply is None or reply.strip().startswith("q"):
                    break

    def _task(self) -> None:
        if self._open is None:
            raise InputError("open a rollout first: o 17")
        task = self._index.entry(self._open).task
        repeats = self._index.repeats(task)
        for entry in repeats.entries if repeats else ():
            self._print(self._line(entry))
        more = repeats.task.n + repeats.task.failed - len(repeats.entries) if repeats else 0
        if more > 0:
            self._print(f"and {more:,} more; /task={clean(typed(quoted(task)), longest=_WIDEST)} lists them all")

    def _failures(self) -> None:
        groups = self._index.failures()
        if not groups:
            self._print("nothing failed")
        for group in groups[: self._rows]:
            self._print(f"{group.count:>7}  {clean(group.example, longest=self._width - 10)}")
            self._print(f"         /{clean(filter_of(group), longest=self._width)}")

    def _overview(self) -> None:
        state = self._index.state
        rewards = self._index.histogram("reward")
        self._print(_equation(account(state, read_runs(self._source), live=False)))
        self._print(f"mean reward {number(rewards.mean)} over {sum(rewards.counts):,}")
        for (low, high), count in zip(pairwise(rewards.edges), rewards.counts, strict=True):
            if count:
                self._print(f"  {number(low):>8} to {number(high):<8} {count:>8,}")

    def _help(self) -> None:
        self._print(HELP)

    _words: dict[str, Callable[[TerminalViewer], None]] = {  # noqa: RUF012 - never changed
        "": _next,
        "n": _next,
        "p": _previous,
        "u": _list,
        "l": _list,
        "t": _task,
        "f": _failures,
        "r": _overview,
        "?": _help,
        "h": _help,
        "help": _help,
    }


def _equation(account: Json) -> str:
    total = f"kept {account['kept']:,} + failed {account['failed']:,}"
    if account["left"]:
        total += f" + {account['left']:,} not run"
    if account["requested"] is not None:
        return f"requested {account['requested']:,} = {total}"
    return f"{total} of {account['of']:,} so far" if account["of"] is not None else f"{total} so far"
