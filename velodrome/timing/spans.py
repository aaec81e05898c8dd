"""A tree of named stretches of time, and the one way to open a stretch: `with span("model"):`.

The open span is ambient (a context variable), so a model client deep inside a rollout can charge its back-off to the
right place without being handed anything. Tasks started inside a span inherit it. The root carries the clock, so
tests inject their own. With no open root a span is measured and dropped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar, Token
from types import TracebackType

Clock = Callable[[], float]

_open: ContextVar[Span | None] = ContextVar("velodrome_span", default=None)


class Span:
    """One stretch of time, open while it is entered. `counts` holds what happened in it (retries, bytes), by name."""

    __slots__ = ("_token", "children", "clock", "counts", "end", "name", "start")

    def __init__(self, name: str, clock: Clock = time.perf_counter) -> None:
        self.name = name
        self.clock = clock
        self.children: list[Span] = []
        self.counts: dict[str, float] | None = None
        self.start = clock()
        self.end: float | None = None

    def __enter__(self) -> Span:
        self._token: Token[Span | None] = _open.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end = self.clock()
        _open.reset(self._token)

    @property
    def seconds(self) -> float:
        """How long it lasted; up to now while it is open."""
        return (self.clock() if self.end is None else self.end) - self.start

    def walk(self) -> Iterator[Span]:
        """This span and every one below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()

    def total(self, name: str) -> float:
        """Seconds spent in spans of this name; a nested one of the same name is not counted twice."""
        if self.name == name:
            return self.seconds
        return sum(child.total(name) for child in self.children)

    def count(self, name: str) -> float:
        """The sum of one count over this span and every one below it."""
        found = self.counts.get(name, 0.0) if self.counts else 0.0
        for child in self.children:
            found += child.count(name)
        return found


def span(name: str) -> Span:
    """A stretch of time below the one that is open now: `with span("model"):`."""
    parent = _open.get()
    if parent is None:
        return Span(name)
    child = Span(name, parent.clock)
    parent.children.append(child)
    return child


def root(name: str, clock: Clock = time.perf_counter) -> Span:
    """A tree of its own, apart from whatever is open now."""
    return Span(name, clock)


def current() -> Span | None:
    """The span that is open now."""
    return _open.get()


def tally(name: str, amount: float = 1.0) -> None:
    """Add to a count of the open span; without one there is nobody to tell."""
    here = _open.get()
    if here is not None:
        if here.counts is None:
            here.counts = {}
        here.counts[name] = here.counts.get(name, 0.0) + amount
