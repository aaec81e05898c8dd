"""Folding a streamed answer: the work grows with its length. Counted, not timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from velodrome.errors import ModelError
from velodrome.responses_api_models.chunks import ChatStream, Fold

Json = dict[str, Any]


class Counted(str):
    """A text that counts what is done with it: characters copied by adding it to another, and comparisons."""

    __slots__ = ()
    work = 0

    def __add__(self, other: str) -> Counted:
        Counted.work += len(self) + len(other)
        return Counted(str.__add__(self, other))

    def __radd__(self, other: str) -> Counted:
        Counted.work += len(self) + len(other)
        return Counted(str.__add__(other, self))

    def __eq__(self, other: object) -> bool:
        Counted.work += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def chunk(**delta: Any) -> Json:
    return {"id": "c", "choices": [{"delta": delta, "finish_reason": None}]}


def call(index: int, name: str = "", **more: Any) -> Json:
    return {"index": index, "function": {"name": name, "arguments": Counted("x")}, **more}


STREAMS: dict[str, Callable[[int], Iterator[Json]]] = {
    "content": lambda size: (chunk(content=Counted("x")) for _ in range(size)),
    "arguments": lambda size: (chunk(tool_calls=[call(0, "" if number else "f", id="c0")]) for number in range(size)),
    "arguments before their name": lambda size: (
        chunk(tool_calls=[call(0, "f" if number == size - 1 else "", id="c0")]) for number in range(size)
    ),
    "a name in pieces": lambda size: (chunk(tool_calls=[call(0, Counted("f"), id="c0")]) for _ in range(size)),
    "many calls": lambda size: (chunk(tool_calls=[call(n, "f", id=Counted(f"c{n}"))]) for n in range(size)),
}


def stream(chunks: Iterator[Json]) -> list[Json]:
    """The events that the chunks become."""
    made = ChatStream({}, "here")
    events = [event for each in chunks for event in made.add(each)]
    events += made.add({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    return [*events, *made.end()]


@pytest.mark.parametrize("name", STREAMS)
def test_twice_as_many_chunks_are_at_most_twice_the_work(name: str):
    works = []
    for size in (200, 400):
        Counted.work = 0
        stream(STREAMS[name](size))
        works.append(Counted.work)
    assert works[1] <= 2 * works[0] + 100


def test_a_piece_that_is_not_text_is_the_models_error():
    named: list[Json] = [{"name": "f", "arguments": {"a": 1}}, {"name": 5}]
    deltas: list[Json] = [{"tool_calls": [{"index": 0, "function": function}]} for function in named]
    deltas += [{"content": 5}, {"reasoning_content": ["x"]}]
    deltas += [{"tool_calls": [{"index": "a", "function": {"name": "f"}}]}]
    for delta in deltas:
        with pytest.raises(ModelError, match=r"^here: .*must be"):
            Fold("here").add(chunk(**delta))
