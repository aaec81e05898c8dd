"""Spans at times that a test gives them, and a clock that only a test turns."""

from __future__ import annotations

from velodrome.timing.spans import Span


class Clock:
    """Time that passes only when told to."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def node(name: str, start: float, end: float | None, *children: Span, **counts: float) -> Span:
    result = Span(name, clock=lambda: start)
    result.end = end
    result.children = list(children)
    result.counts = counts or None
    return result
