"""Streaming, over real sockets: every event consistent, nothing lost, and an end that equals the whole answer.

A model server is driven by the real `openai` client; the upstream of `openai_model` is a server that sends exactly the
bytes a test says, when it says so.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Iterable, Iterator
from typing import Any

import hosted as hosting
import httpx2
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from patience import DEADLINE_S
from streams import BEGUN, TURN, added, client, consistent, responses, scripted, without_ids

from velodrome.errors import ModelError
from velodrome.responses_api_models.local_model import constrained, weights
from velodrome.responses_api_models.local_model.app import LocalModel

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
    given = {"input": "Go.", "messages": [{"role": "user", "content": "Go."}], **body}

    async def leave(url: str) -> None:
        async with httpx2.AsyncClient(timeout=DEADLINE_S) as plain:

            async def read() -> None:
                async with plain.stream("POST", f"{url}/v1/{route}", json=given) as reply:
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


# The local model


@given(st.text(), st.booleans(), st.data())
def test_a_constrained_answer_is_read_the_same_however_it_is_cut(text: str, escaped: bool, data: st.DataObject) -> None:
    written = '{"answer": ' + json.dumps(text, ensure_ascii=escaped) + "}"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(written)))))
    reading = constrained.Reading()
    ends = [*cuts, len(written)]
    assert "".join(reading.feed(written[start:end]) for start, end in zip([0, *cuts], ends, strict=True)) == text


def test_an_answer_cut_off_by_the_token_limit_is_told_as_far_as_it_goes() -> None:
    message = {"role": "assistant", "content": '{"answer": "It is \\u00fc and \\ud83d\\ude'}
    choice = {"finish_reason": "length", "message": message}
    report = constrained.interpret({"id": "1", "choices": [choice]})["choices"]
    assert report == [{"finish_reason": "length", "message": {"role": "assistant", "content": "It is ü and "}}]


@pytest.fixture(scope="module")
def local() -> Iterator[tuple[str, LocalModel]]:
    weights.pull()
    model = LocalModel(parallel=2, n_ctx=2048)
    with hosting.hosted(MODEL, lambda: model) as url:
        yield url, model


GREEDY = {"temperature": 0, "max_output_tokens": 24}
TOOL = {
    "type": "function",
    "name": "calculator",
    "description": "Evaluate an arithmetic expression.",
    "parameters": {
        "type": "object",
        "properties": {"expression": {"type": "string"}},
        "required": ["expression"],
        "additionalProperties": False,
    },
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("request_", "kind", "least"),
    [
        ({"input": "What is 7 + 5?"}, "message", 4),
        ({"input": "Write a long story.", "max_output_tokens": 6}, "message", 6),
        ({"input": "Say hello.", "tools": [TOOL], "tool_choice": "none"}, "message", 4),
        (
            {"input": "What is 7 + 5?", "tools": [TOOL], "tool_choice": "required", "max_output_tokens": 60},
            "function_call",
            1,
        ),
        ({"input": "Write a story.", "tools": [TOOL], "max_output_tokens": 9}, "message", 1),
    ],
    ids=["text", "cut off", "no tools", "a call", "a constrained answer cut off"],
)
def test_the_local_model_streams_what_it_answers_whole(
    local: tuple[str, LocalModel], request_: Json, kind: str, least: int
) -> None:
    url, _ = local
    events = responses(url, **{**GREEDY, **request_})
    with client(url) as asker:
        whole = asker.responses.create(model="m", **{**GREEDY, **request_}).to_dict()
    final = consistent(events)
    assert len([event for event in events if event["type"].endswith(".delta")]) >= least
    assert [item["type"] for item in final["output"]] == [kind]
    for response in (final, whole):
        response["usage"].pop("input_tokens_details")  # the second time the prompt is known
        for item in response["output"]:
            item.pop("call_id", None)
    assert without_ids(final) == without_ids(whole)


@pytest.mark.slow
def test_a_client_that_leaves_the_local_model_frees_its_slot(local: tuple[str, LocalModel]) -> None:
    url, model = local
    request: Any = {"input": "Count to a thousand.", "extra_body": {"ignore_eos": True}, "temperature": 0}
    for _ in range(3):  # more than there are slots
        with client(url) as asker, asker.responses.create(model="m", stream=True, **request) as stream:
            assert next(event for event in stream if event.type == "response.output_text.delta").delta
    while model.metrics()["requests_processing"]:
        pass
    assert model.metrics()["n_decode_total"] < 2000  # one of them alone would have filled its 2,048 tokens


@pytest.mark.slow
def test_what_the_local_model_refuses_is_refused_before_the_stream(local: tuple[str, LocalModel]) -> None:
    url, _ = local
    with client(url) as asker, pytest.raises(openai.BadRequestError, match="exceeds the available context size"):
        asker.responses.create(model="m", input="again and " * 3000, stream=True)
