"""Streaming, over real sockets: every event consistent, nothing lost, and an end that equals the whole answer.

A model server is driven by the real `openai` client; the upstream of `openai_model` is a server that sends exactly the
bytes a test says, when it says so.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterable
from typing import Any

import hosted as hosting
import httpx2
import openai
import pytest
from patience import DEADLINE_S
from streams import BEGUN, TURN, added, client, consistent, responses, scripted, without_ids

from velodrome.errors import ModelError

Json = dict[str, Any]
MODEL = "responses_api_models"
REFUSED = {
    "id": "resp_refused",
    "object": "response",
    "created_at": 7,
    "model": "m",
    "status": "incomplete",
    "incomplete_details": {"reason": "content_filter"},
    "usage": {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7},
    "output": [
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "One."}, {"text": "Two."}]},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "incomplete",
            "content": [
                {
                    "type": "output_text",
                    "text": "Well, ",
                    "annotations": [],
                    "logprobs": [{"token": "W", "logprob": -1}],
                },
                {"type": "refusal", "refusal": "no."},
            ],
        },
    ],
}


# A model that does not stream


@pytest.mark.parametrize("answer", ["Hello there.", "", TURN, REFUSED], ids=["text", "empty", "calls", "refusal"])
def test_a_whole_answer_is_told_in_consistent_events_and_its_end_is_the_answer(answer: Any) -> None:
    with hosting.hosted(MODEL, scripted(answer)) as url, client(url) as asker:
        events = responses(url)
        whole = asker.responses.create(model="m", input="Go.").to_dict()
    assert without_ids(consistent(events)) == without_ids(whole)
    if answer is REFUSED:
        assert events[-1]["response"] == whole == REFUSED


def test_chat_chunks_add_up_to_the_completion_with_its_calls_and_usage() -> None:
    with hosting.hosted(MODEL, scripted(TURN)) as url, client(url) as asker:
        messages: Any = [{"role": "user", "content": "Go."}]
        whole = asker.chat.completions.create(model="m", messages=messages)
        chunks = list(
            asker.chat.completions.create(
                model="m", messages=messages, stream=True, stream_options={"include_usage": True}
            )
        )
        bare = list(asker.chat.completions.create(model="m", messages=messages, stream=True))
        with asker.chat.completions.stream(model="m", messages=messages) as stream:
            final = stream.get_final_completion()
    assert added(chunks) == whole.choices[0].message.to_dict()
    assert final.choices[0].message.to_dict(exclude_unset=True)["tool_calls"] is not None
    assert [call.id for call in final.choices[0].message.tool_calls or ()] == ["c0", "c1"]
    assert chunks[-2].choices[0].finish_reason == "tool_calls"
    assert (chunks[-1].choices, chunks[-1].usage) == ([], whole.usage)
    assert {chunk.id for chunk in chunks} == {chunks[0].id}
    assert all(chunk.choices for chunk in bare)
    assert added(bare) == added(chunks)


def test_chat_tells_a_refusal_a_summary_and_the_reason_for_the_end() -> None:
    with hosting.hosted(MODEL, scripted(REFUSED)) as url, client(url) as asker:
        messages: Any = [{"role": "user", "content": "Go."}]
        chunks = list(asker.chat.completions.create(model="m", messages=messages, stream=True))
        whole = asker.chat.completions.create(model="m", messages=messages)
    assert added(chunks) == whole.choices[0].message.to_dict()
    assert added(chunks)["reasoning_content"] == "One.\n\nTwo."
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason == "content_filter"
    probs = [chunk.choices[0].logprobs.content[0].token for chunk in chunks if chunk.choices[0].logprobs]
    assert probs == ["W"]


# A model that streams as a test says


class Staged:
    """Streams its events; then it raises, waits for ever, or just stops. `ended` is set when it is closed."""

    def __init__(self, events: list[Json], then: Exception | str | None = None) -> None:
        self.events = events
        self.then = then
        self.started = threading.Event()
        self.ended = threading.Event()

    async def respond(self, request: Json) -> Json:
        try:
            self.started.set()
            await asyncio.Event().wait()
            raise AssertionError
        finally:
            self.ended.set()

    async def stream(self, request: Json) -> AsyncGenerator[Json, None]:
        try:
            self.started.set()
            for event in self.events:
                yield event
            if isinstance(self.then, Exception):
                raise self.then
            if self.then == "hang":
                await asyncio.Event().wait()
        finally:
            self.ended.set()

    async def aclose(self) -> None: ...


def until_broken(stream: Iterable[Any]) -> tuple[list[Any], openai.APIError]:
    """What came, and the error it ended with."""
    seen: list[Any] = []
    try:
        seen.extend(stream)
    except openai.APIError as error:
        return seen, error
    raise AssertionError(f"the stream ended well: {seen}")


@pytest.mark.parametrize(
    ("then", "message"),
    [
        (ModelError("the model broke", status=503), "the model broke"),
        (RuntimeError("a fault of its own"), "model: RuntimeError: a fault of its own"),
        (None, "model: the stream has no end"),
    ],
    ids=["its error", "a stranger's", "no end"],
)
def test_an_error_in_the_middle_is_raised_by_the_client_with_its_boundary(then: Exception | None, message: str) -> None:
    with hosting.hosted(MODEL, lambda: Staged(BEGUN, then)) as url, client(url) as asker:
        events, error = until_broken(asker.responses.create(model="m", input="Go.", stream=True))
        messages: Any = [{"role": "user", "content": "?"}]
        chunks, report = until_broken(asker.chat.completions.create(model="m", messages=messages, stream=True))
        last = responses(url)[-1]
    assert [event.type for event in events] == [event["type"] for event in BEGUN]
    assert [chunk.choices[0].delta.content for chunk in chunks] == ["", "Half an"]
    for each in (error, report):
        assert isinstance(each.body, dict)
        assert (each.message, each.body["boundary"], each.body["type"]) == (message, "model", "ModelError")
    assert (last["type"], last["message"], last["sequence_number"]) == ("error", message, len(BEGUN))


@pytest.mark.parametrize(
    ("body", "events"),
    [({"stream": True}, BEGUN), ({"stream": True}, []), ({}, [])],
    ids=["in the middle", "before the first event", "of a whole answer"],
)
@pytest.mark.parametrize("route", ["responses", "chat/completions"])
def test_a_caller_that_goes_away_stops_the_model(route: str, body: Json, events: list[Json]) -> None:
    model = Staged(events, "hang")
    args = {"input": "Go.", "messages": [{"role": "user", "content": "Go."}], **body}

    async def leave(url: str) -> None:
        async with httpx2.AsyncClient(timeout=DEADLINE_S) as plain:

            async def read() -> None:
                async with plain.stream("POST", f"{url}/v1/{route}", json=args) as reply:
                    async for line in reply.aiter_lines():
                        if "Half an" in line:
                            half.set()

            half = asyncio.Event()
            call = asyncio.create_task(read())
            await (half.wait() if events else asyncio.to_thread(model.started.wait, 20))
            assert not model.ended.is_set()
            call.cancel()
            await asyncio.wait([call])

    with hosting.hosted(MODEL, lambda: model) as url:
        asyncio.run(leave(url))
        assert model.ended.wait(DEADLINE_S)
