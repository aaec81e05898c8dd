"""Folding a streamed answer: the work grows with its length. Counted, not timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from velodrome.errors import ModelError
from velodrome.records.conversation import messages
from velodrome.responses_api_models.chunks import ChatStream, Fold
from velodrome.responses_api_models.conversion import chat_from_response
from velodrome.responses_api_models.local_model.constrained import Reading
from velodrome.responses_api_models.turns import chat_messages

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
    "reasoning": lambda size: (chunk(reasoning=Counted("x")) for _ in range(size)),
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


def work(act: Callable[[], Any]) -> int:
    Counted.work = 0
    act()
    return Counted.work


@pytest.mark.parametrize("name", STREAMS)
def test_twice_as_many_chunks_are_at_most_twice_the_work(name: str):
    small, large = (work(lambda size=size: stream(STREAMS[name](size))) for size in (500, 1000))
    assert large <= 2 * small + 100


def test_many_items_of_one_turn_become_its_message_in_as_much_work_as_they_are_long():
    def said(size: int) -> list[Json]:
        parts = [{"type": "output_text", "text": Counted("x")}, {"type": "refusal", "refusal": Counted("n")}]
        reasoning = {"type": "reasoning", "summary": [{"type": "summary_text", "text": Counted("r")}]}
        return [reasoning] * size + [{"type": "message", "role": "assistant", "content": parts}] * size

    def folded(items: list[Json]) -> Json:
        return chat_from_response({"output": items})["choices"][0]["message"]

    for convert in (messages, chat_messages, folded):
        small, large = (work(partial(convert, said(size))) for size in (500, 1000))
        assert large <= 2 * small + 100
    assert messages(said(3)) == [
        {"role": "assistant", "reasoning_content": "rrr", "content": "xxx", "refusal": "nnn"},
    ]
    message = folded(said(3))
    assert (message["reasoning_content"], message["content"], message["refusal"]) == ("rrr", "xxx", "nnn")


def test_a_constrained_call_is_not_kept_while_it_is_read():
    def read(size: int) -> str:
        reading = Reading()
        return "".join(reading.feed(Counted(text)) for text in ['{"tool": "', *"f" * size])

    small, large = (work(lambda size=size: read(size)) for size in (500, 1000))
    assert large <= 2 * small + 100
    assert read(5) == ""


@pytest.mark.parametrize(
    "delta",
    [
        {"content": 5},
        {"reasoning_content": ["x"]},
        {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": {"a": 1}}}]},
        {"tool_calls": [{"index": 0, "function": {"name": 5}}]},
        {"tool_calls": [{"index": "a", "function": {"name": "f"}}]},
    ],
)
def test_a_piece_that_is_not_text_is_the_models_error(delta: Json):
    with pytest.raises(ModelError, match=r"^here: .*must be"):
        Fold("here").add(chunk(**delta))
