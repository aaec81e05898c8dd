"""The viewer in a terminal: a list with a filter, and one rollout as text, on Textual.

Keys and texts come from untrusted files. They are escaped and drawn as plain text: no markup, no control characters.
"""

from __future__ import annotations

from typing import Any, ClassVar

from rich.text import Text
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import DataTable, Footer, Input, Static

from velodrome.errors import InputError
from velodrome.index import Entry, Page, Query, Sort
from velodrome.index.query import typed
from velodrome.timing.report import clean, duration
from velodrome.viewer.pages.failures_page import filter_of
from velodrome.viewer.pages.links import long, quoted, short
from velodrome.viewer.pages.run_page import account, read_runs
from velodrome.viewer.parts.render import number, reward_kind
from velodrome.viewer.transcript import TranscriptBlock, blocks, one_line, plain, shown, title
from velodrome.viewer.viewed_file import ViewedFile

Json = dict[str, Any]

_AT_ONCE = 200  # rows of the list that are read at a time
_LOOK_S = 1.0  # how often a growing file is looked at
_FOLD_OVER = 1200  # characters of a block
_WHOLE = 200_000
_STYLES = {"good": "bold green", "bad": "bold red", "partly": "bold yellow", "unknown": "dim"}
_MARKS = {"good": "✓", "bad": "✗", "partly": "~", "unknown": " "}  # colours alone do not reach everyone


class TerminalViewer(App[None]):
    """One file. `where` is the filter it begins with."""

    CSS_PATH = "terminal.tcss"
    ENABLE_COMMAND_PALETTE = False
    TITLE = "velo view"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("q", "quit", "quit"), Binding("question_mark", "help", "help")]

    def __init__(self, source: ViewedFile, *, where: str = "") -> None:
        super().__init__()
        self.source = source
        self.where = Query.parse(where, source.index().names()) if where else Query()
        self.order = Sort()

    def on_mount(self) -> None:
        self.push_screen(RolloutList())

    def action_help(self) -> None:
        self.push_screen(ShortText("Keys", HELP))


HELP = """\
j, k, arrows    move            Enter   open
/               filter, as in: reward<1 tools>3 error:timeout "some text"
s               sort by a field, as in: -total_s
o               open a rollout by its number (f3: a failed attempt)
n, p            next and previous rollout within the filter
[, ]            previous and next tool call
a               all of every text, or only its beginning
t               the repeats of this task
f               failures by kind
r               the totals of the run
u, Escape       back
q               quit"""


class RolloutList(Screen[None]):
    """The list: one line per rollout, read as far as somebody scrolls."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "ask('filter')", "filter"),
        Binding("s", "ask('sort')", "sort"),
        Binding("o", "ask('open')", "open by number", show=False),
        Binding("j", "move(1)", "down", show=False),
        Binding("k", "move(-1)", "up", show=False),
        Binding("f", "failures", "failures"),
        Binding("r", "totals", "totals"),
        Binding("u,escape", "leave", "back", show=False),
    ]
    app: TerminalViewer

    def compose(self) -> ComposeResult:
        yield Static(id="summary")
        yield Static(id="problem")
        yield Input(id="line", disabled=True)
        yield DataTable(cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        self._page: Page[Entry] = Page(())
        self._asked = ""
        self._version = self.app.source.version
        self.set_interval(_LOOK_S, self._look)

    def on_resize(self) -> None:
        self.fill()

    @property
    def _table(self) -> DataTable[Text]:
        return self.query_one(DataTable)

    def fill(self) -> None:
        """The list from its start, with the row that was chosen still chosen if it is there."""
        table = self._table
        chosen = table.cursor_row
        table.clear(columns=True)
        for label, width in zip(("#", "reward", "time", "key", "task → answer"), _widths(self.size.width), strict=True):
            table.add_column(label, width=width)
        self._page = Page(())
        self._more()
        while chosen >= table.row_count and self._page.next:
            self._more()
        table.move_cursor(row=min(chosen, max(table.row_count - 1, 0)))
        self._summarise()
        table.focus()

    def _more(self) -> None:
        app, index = self.app, self.app.source.index()
        self._page = index.page(app.where, app.order, after=self._page.next, limit=_AT_ONCE)
        for entry in self._page.entries:
            self._table.add_row(*_cells(entry, self.size.width), key=str(entry.number))

    def _summarise(self) -> None:
        app = self.app
        index = app.source.index()
        state, query = index.state, app.where
        counted = f"{state.rows:,} kept, {state.failed:,} failed"
        if query.terms:
            counted = f"{index.count(query):,} of {state.entries:,} match {query.text}"
        live = " · live" if state.live else ""
        text = (
            f"{clean(app.source.name, longest=60)} · {clean(counted, longest=200)} · by {clean(str(app.order))}{live}"
        )
        self.query_one("#summary", Static).update(Text("\n".join([text, *map(plain, app.source.notes[:2])])))

    def _look(self) -> None:
        """New rollouts are counted, and appended where the end of the list is shown."""
        if (version := self.app.source.version) == self._version:
            return
        self._version = version
        self._summarise()
        if self._page.next is None and not self._table.row_count:
            self.fill()
        elif self._page.next is None and str(self.app.order) == str(Sort()) and not self.app.where.terms:
            last = self._table.row_count
            chosen = self._table.cursor_row
            self.fill()
            self._table.move_cursor(row=chosen if chosen < last - 1 else self._table.row_count - 1)

    @on(DataTable.RowHighlighted)
    def _scrolled(self, event: DataTable.RowHighlighted) -> None:
        if self._page.next and event.cursor_row >= self._table.row_count - 20:
            self._more()

    @on(DataTable.RowSelected)
    def _chosen(self, event: DataTable.RowSelected) -> None:
        self.app.push_screen(OneRollout(int(event.row_key.value or 0)))

    def action_move(self, step: int) -> None:
        self._table.move_cursor(row=self._table.cursor_row + step)

    def action_ask(self, what: str) -> None:
        """A line to type into: a filter, a sort, a number."""
        line = self.query_one("#line", Input)
        self._asked = what
        line.disabled = False
        line.placeholder = {
            "filter": 'reward<1 tools>3 error:timeout "some text"',
            "sort": "reward, -total_s; empty: as in the file",
            "open": "the number of a rollout; f3: a failed attempt",
        }[what]
        line.value = {"filter": self.app.where.text, "sort": str(self.app.order), "open": ""}[what]
        line.add_class("asked")
        line.focus()

    def action_leave(self) -> None:
        """Leave the line as it was."""
        line = self.query_one("#line", Input)
        line.remove_class("asked")
        line.disabled = True
        self._complain("")
        self._table.focus()

    def _complain(self, text: str) -> None:
        problem = self.query_one("#problem", Static)
        problem.update(Text(text))
        problem.display = bool(text)

    @on(Input.Submitted)
    def _typed(self, event: Input.Submitted) -> None:
        try:
            self._do(event.value.strip())
        except InputError as error:
            self._complain("\n".join(map(plain, error.problems)))
            return
        self.action_leave()

    def _do(self, value: str) -> None:
        app, index = self.app, self.app.source.index()
        if self._asked == "open":
            if (wanted := long(value)) is None:
                raise InputError(f"{value!r:.60} is not the number of a rollout")
            index.entry(wanted)
            app.push_screen(OneRollout(wanted))
            return
        query, sort = app.where, app.order
        if self._asked == "filter":
            query = Query.parse(value, index.names())
        else:
            sort = Sort.parse(value)
        index.page(query, sort, limit=1)  # a field that is not there is found here
        app.where, app.order = query, sort
        self.fill()

    def show_only(self, where: str) -> None:
        """The list under another filter."""
        self.app.where = Query.parse(where, self.app.source.index().names())
        self._table.move_cursor(row=0)
        self.fill()

    def action_failures(self) -> None:
        groups = self.app.source.index().failures()
        lines = [
            f"{group.count:>7,}  {clean(group.example, longest=300)}\n         /{clean(filter_of(group), longest=300)}"
            for group in groups[:100]
        ]
        self.app.push_screen(ShortText("Failures", "\n".join(lines) or "nothing failed"))

    def action_totals(self) -> None:
        index = self.app.source.index()
        rewards = index.histogram("reward")
        lines = [equation(account(index.state, read_runs(self.app.source), live=False))]
        lines.append(f"mean reward {number(rewards.mean)} over {sum(rewards.counts):,}")
        most = max(rewards.counts, default=0)
        for place, count in enumerate(rewards.counts):
            low, high = rewards.edges[place], rewards.edges[place + 1]
            bar = "█" * round(30 * count / most)
            lines += [f"{number(low):>8} to {number(high):<8} {count:>9,} {bar}"] if count else []
        self.app.push_screen(ShortText("Totals", "\n".join(lines)))


class OneRollout(Screen[None]):
    """A rollout as text, one block below the other."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("u,escape", "back", "list"),
        Binding("n", "go(1)", "next"),
        Binding("p", "go(0)", "previous"),
        Binding("j", "step(1)", "next message", show=False),
        Binding("k", "step(-1)", "previous message", show=False),
        Binding("right_square_bracket", "step(1, 'call')", "next call"),
        Binding("left_square_bracket", "step(-1, 'call')", "previous call", show=False),
        Binding("a", "whole", "all text"),
        Binding("t", "task", "repeats"),
    ]
    app: TerminalViewer

    def __init__(self, number_: int) -> None:
        super().__init__()
        self._number = number_
        self._whole = False
        self._here = -1

    def compose(self) -> ComposeResult:
        yield Static(id="summary")
        yield VerticalScroll(id="talk", can_focus=True)
        yield Footer()

    async def on_mount(self) -> None:
        await self._show()
        self.query_one("#talk").focus()

    async def _show(self) -> None:
        index = self.app.source.index()
        talk = self.query_one("#talk", VerticalScroll)
        await talk.remove_children()
        try:
            entry, row = index.entry(self._number), index.row(self._number)
        except InputError as error:  # the file is being changed
            await talk.mount(Static(Text(plain(error.problems[0]))))
            return
        head = Text.assemble(_reward(entry), " ", title(row))
        self.query_one("#summary", Static).update(head)
        longest = _WHOLE if self._whole else _FOLD_OVER
        await talk.mount(*(_drawn(block, longest) for block in blocks(row)))
        talk.scroll_home(animate=False)
        self._here = -1

    async def action_go(self, side: int) -> None:
        before_after = self.app.source.index().neighbours(self.app.where, self.app.order, self._number)
        if (wanted := before_after[side]) is None:
            self.app.notify("no more within the filter", timeout=2)
            return
        self._number = wanted
        await self._show()

    async def action_whole(self) -> None:
        self._whole = not self._whole
        await self._show()

    def action_step(self, step: int, kind: str = "") -> None:
        every = list(self.query_one("#talk").children)
        place = self._here + step
        while 0 <= place < len(every) and kind and not every[place].has_class(kind):
            place += step
        if 0 <= place < len(every):
            self._here = place
            for at, each in enumerate(every):
                each.set_class(at == place, "here")
            every[place].scroll_visible(top=True, animate=False)

    def action_task(self) -> None:
        task = self.app.source.index().entry(self._number).task
        self.app.pop_screen()
        screen = self.app.screen
        if isinstance(screen, RolloutList):
            screen.show_only(f"task={typed(quoted(task))}")

    def action_back(self) -> None:
        self.app.pop_screen()


class ShortText(ModalScreen[None]):
    """A short text above the list; any of its keys closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,u,enter,question_mark", "app.pop_screen", "close")]

    def __init__(self, heading: str, text: str) -> None:
        super().__init__()
        self._heading, self._text = heading, text

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="box"):
            yield Static(Text(f"{self._heading}\n", "bold"))
            yield Static(Text(self._text))


def _widths(width: int) -> list[int]:
    """Of the columns; a cell has a space on both sides."""
    fixed = [7, 8, 8, 20 if width >= 80 else 12]
    return [*fixed, max(width - sum(fixed) - 12, 20)]


def _cells(entry: Entry, width: int) -> list[Text]:
    total_s = entry.numbers.get("total_s")
    took = "" if total_s is None else duration(total_s * 1000)
    words = entry.error if entry.state == "failed" else f"{entry.prompt or ''}  → {entry.answer or ''}"
    *_, key, room = _widths(width)
    return [
        Text(short(entry.number), "dim"),
        _reward(entry),
        Text(took),
        Text(clean(entry.key, longest=key)),
        Text(clean(one_line(words or ""), longest=room), no_wrap=True, style="red" if entry.state == "failed" else ""),
    ]


def _reward(entry: Entry) -> Text:
    if entry.state == "failed":
        return Text("! failed", "bold red")
    kind = reward_kind(entry.reward)
    return Text(f"{_MARKS[kind]} {'–' if entry.reward is None else number(entry.reward)}", _STYLES[kind])


def _drawn(block: TranscriptBlock, longest: int) -> Static:
    text = Text.assemble((f"{one_line(block.title)}\n", "bold")) if block.title else Text()
    text.append(shown(block, longest), "" if block.title else "dim")
    return Static(text, classes=f"block {block.kind}")


def equation(values: Json) -> str:
    """Requested = kept + failed, or how far it is."""
    total = f"kept {values['kept']:,} + failed {values['failed']:,}"
    if values["left"]:
        total += f" + {values['left']:,} not run"
    if values["requested"] is not None:
        return f"requested {values['requested']:,} = {total}"
    return f"{total} of {values['of']:,} so far" if values["of"] is not None else f"{total} so far"
