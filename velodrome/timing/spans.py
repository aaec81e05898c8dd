"""A tree of named stretches of time. `with span("model"):` opens one.

The open span is a context variable, so a model client deep inside a rollout can charge its back-off to the right place
without a parameter. Tasks started inside a span inherit it. The root has the clock, which tests replace. Without an
open root a span is measured and dropped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any

Clock = Callable[[], float]
Node = list[Any]  # [name, start in µs, length in µs, counts, children]: a span as JSON

MOST_NODES = 200  # of one tree; more are folded by name
DEEPEST = 40
LONGEST_US = 1e14
_NUMBER = (int, float)  # not a union: making one takes longer than the check

_open: ContextVar[Span | None] = ContextVar("velodrome_span", default=None)


class Span:
    """One stretch of time, open while it is entered. `counts` holds what happened in it (retries, bytes), by name."""

    __slots__ = ("_token", "children", "clock", "counts", "end", "name", "start")

    def __init__(self, name: str, clock: Clock = time.perf_counter) -> None:
        self.name = name
        self.clock = clock
        self.children: list[Span] | tuple[()] = ()  # most have none
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
        del self._token  # it refers to the parent: without this, only the garbage collector would free the tree

    @property
    def seconds(self) -> float:
        """How long it lasted; up to now while it is open."""
        return (self.clock() if self.end is None else self.end) - self.start

    def adopt(self, child: Span) -> None:
        """Add a child span."""
        if self.children:
            self.children.append(child)
        else:
            self.children = [child]

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
        own = self.counts.get(name, 0.0) if self.counts else 0.0
        return own + sum([child.count(name) for child in self.children])


def span(name: str) -> Span:
    """A stretch of time below the one that is open now: `with span("model"):`."""
    parent = _open.get()
    if parent is None:
        return Span(name)
    child = Span(name, parent.clock)
    if parent.children:
        parent.children.append(child)
    else:
        parent.children = [child]
    return child


def root(name: str, clock: Clock = time.perf_counter) -> Span:
    """A new tree, independent of the span that is open now."""
    return Span(name, clock)


def current() -> Span | None:
    """The span that is open now."""
    return _open.get()


def record(name: str, start: float, end: float, counts: dict[str, float] | None = None) -> None:
    """A stretch that was measured elsewhere, below the open span; without one it is dropped."""
    parent = _open.get()
    if parent is not None:
        child = Span(name, parent.clock)
        child.start, child.end, child.counts = start, end, counts
        parent.adopt(child)


def tally(name: str, amount: float = 1) -> None:
    """Add to a count of the open span; without one it is dropped."""
    open_span = _open.get()
    if open_span is not None:
        if open_span.counts is None:
            open_span.counts = {}
        open_span.counts[name] = open_span.counts.get(name, 0) + amount


def put(name: str, amount: float) -> None:
    """Set a count of the open span: of a call that is tried again, the last try counts."""
    open_span = _open.get()
    if open_span is not None:
        if open_span.counts is None:
            open_span.counts = {}
        open_span.counts[name] = amount


def as_node(tree: Span, origin: float) -> Node:
    """A tree as JSON, its times from `origin` on."""
    start, end = tree.start, tree.end
    if end is None:
        end = tree.clock()
    return [
        tree.name,
        round((start - origin) * 1e6),
        round((end - start) * 1e6),
        tree.counts or {},
        [as_node(child, origin) for child in tree.children] if tree.children else [],
    ]


def bounded(trees: list[Node]) -> list[Node]:
    """The same trees, folded if they are too large."""
    size = len(trees)
    for each in trees:
        if each[4]:
            size += _size(each) - 1
    if size <= MOST_NODES:
        return trees
    smaller: list[Node] = folded(["", 0, 0, {}, trees])[4]
    return smaller


def _size(node: Node) -> int:
    return 1 + sum(map(_size, node[4])) if node[4] else 1


def folded(node: Node) -> Node:
    """The same times and counts in fewer nodes: children of one name become one, which counts them as `folded`."""
    name, start, length, counts, children = node
    by_name: dict[str, Node] = {}
    for child in children:
        group = by_name.setdefault(child[0], [child[0], child[1], 0, {"folded": 0}, []])
        group[2] += child[2]
        add_counts(group[3], {"folded": 1} | child[3])  # an already folded child has its own count
        group[4] += child[4]
    for group in by_name.values():
        if group[3]["folded"] == 1:
            del group[3]["folded"]
    groups = list(by_name.values())
    return [name, start, length, counts, [*map(folded, groups[:MOST_NODES]), *together(groups[MOST_NODES:])]]


def together(trees: list[Node]) -> list[Node]:
    """Trees folded into one node without children, with their total time and counts; no node for no trees."""
    if not trees:
        return []
    counts: dict[str, float] = {}
    for each in trees:
        add_counts(counts, all_counts(each))
    return [["other", trees[0][1], sum(each[2] for each in trees), counts, []]]


def all_counts(node: Node) -> dict[str, float]:
    """The counts of a node and of every one below it."""
    counts = dict(node[3])
    for child in node[4]:
        add_counts(counts, all_counts(child))
    return counts


def add_counts(counts: dict[str, float], added: dict[str, float]) -> None:
    """Add one set of counts to another."""
    for name, value in added.items():
        counts[name] = counts.get(name, 0) + value


def from_node(node: Node, origin: float, clock: Clock, deepest: int = DEEPEST) -> Span:
    """A span from its JSON, which may come from anywhere, with its times after `origin`.

    Invalid data raises ValueError, TypeError or AttributeError.
    """
    name, start, length, counts, children = node
    sane = isinstance(name, str) and name and 0 <= length < LONGEST_US and abs(start) < LONGEST_US
    if not sane or deepest <= 0 or len(children) > 10 * MOST_NODES:
        raise ValueError(name)
    span = Span.__new__(Span)  # `__init__` would read the clock
    span.name, span.clock, span.children = name, clock, ()
    span.start = begin = origin + start / 1e6
    span.end = begin + length / 1e6
    span.counts = {str(key): _finite(value) for key, value in counts.items()} if counts else None
    if children:
        span.children = [from_node(child, origin, clock, deepest - 1) for child in children]
    return span


def _finite(value: Any) -> float:
    if isinstance(value, _NUMBER) and abs(value) < 1e15:
        return value
    raise ValueError(value)
