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
import numpy as np
import openai
import orjson
import pytest
from patience import DEADLINE_S
from streams import BEGUN, TURN, added, client, consistent, responses, scripted, without_ids

from velodrome.errors import CallError, ModelError
from velodrome.records.response_fields import complete
from velodrome.serving.apps.routes import RequestLimits

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
        assert events[-1]["response"] == whole == complete(REFUSED)


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
    ("last", "message"),
    [
        ({"type": "response.failed", "response": {"error": {"message": "it ran hot"}}}, "model: it ran hot"),
        ({"type": "response.completed"}, "model: the last event of the stream has no response"),
    ],
    ids=["failed", "without a response"],
)
def test_a_stream_that_fails_by_its_own_events_is_an_error_in_either_dialect(last: Json, message: str) -> None:
    with hosting.hosted(MODEL, lambda: Staged([*BEGUN, last])) as url, client(url) as asker:
        _, by_responses = until_broken(asker.responses.create(model="m", input="Go.", stream=True))
        messages = [{"role": "user", "content": "Go."}]
        _, by_chat = until_broken(asker.chat.completions.create(model="m", messages=messages, stream=True))
    assert message in str(by_responses)
    assert message in str(by_chat)


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


SECRET = "hunter2-hunter2"
MASKING = RequestLimits(secrets=frozenset((SECRET,)))
ROUTES: dict[str, Json] = {
    "responses": {"input": "Go."},
    "chat/completions": {"messages": [{"role": "user", "content": "Go."}]},
    "messages": {"messages": [{"role": "user", "content": "Go."}], "max_tokens": 9},
}


def last_event(url: str, route: str) -> Json:
    """The last event of a stream that came to its end."""
    with httpx2.Client(timeout=DEADLINE_S) as plain:
        reply = plain.post(f"{url}/v1/{route}", json={**ROUTES[route], "stream": True})
    assert reply.status_code == 200
    lines = [line for line in reply.text.splitlines() if line.startswith("data: {")]
    event: Json = orjson.loads(lines[-1][6:])
    return event


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("then", "message"),
    [
        (CallError(f"no route to {SECRET}"), "no route to ***"),
        (RuntimeError(f"the key is {SECRET}"), "model: RuntimeError: the key is ***"),
    ],
    ids=["another error of ours", "a fault"],
)
def test_an_error_in_the_middle_is_the_last_event_and_masked(route: str, then: Exception, message: str) -> None:
    with hosting.hosted(MODEL, lambda: Staged(BEGUN, then), limits=MASKING) as url:
        assert last_event(url, route)["error"]["message"] == message


def test_a_fault_in_the_middle_is_logged_and_masked(caplog: pytest.LogCaptureFixture) -> None:
    class Faulty(Staged):
        async def stream(self, request: Json) -> AsyncGenerator[Json, None]:
            async for event in super().stream(request):
                yield event
            raise RuntimeError(f"the key is {SECRET}")

    with hosting.hosted(MODEL, lambda: Faulty(BEGUN), limits=MASKING) as url:
        last_event(url, "responses")
    (line,) = caplog.messages
    assert line.startswith("model failed: model: RuntimeError: the key is *** (")
    assert "Faulty.stream" in line


@pytest.mark.parametrize("route", ROUTES)
def test_an_event_that_is_not_json_is_followed_by_the_error_of_the_whole_answer(route: str) -> None:
    delta = {**BEGUN[-1], "delta": "half a \ud83d"}
    with hosting.hosted(MODEL, lambda: Staged([*BEGUN, delta])) as url:
        error = last_event(url, route)["error"]
    assert "surrogates" in error["message"]
    assert error["boundary"] == "model"


@pytest.mark.parametrize("request_body", [{}, {"stream": True}], ids=["whole", "streamed"])
def test_an_error_with_half_a_character_is_an_answer_like_any_other(request_body: Json) -> None:
    class Halved:
        async def respond(self, request: Json) -> Json:
            raise ModelError("no", partial=[{"text": "half a \ud83d"}])

        async def aclose(self) -> None: ...

    with hosting.hosted(MODEL, Halved) as url:
        reply = httpx2.post(f"{url}/v1/responses", json={"input": "Go.", **request_body}, timeout=DEADLINE_S)
    assert reply.status_code == 502
    error = reply.json()["error"]
    assert (error["message"], error["partial"]) == ("no", [{"text": "half a ?"}])


@pytest.mark.parametrize("kind", [MODEL, "responses_api_agents"])
def test_a_bare_answer_is_filled_in_alike_whole_and_streamed(kind: str) -> None:
    class Bare:
        async def respond(self, request: Json) -> Json:
            return {"output": [{"type": "message", "content": "Hi."}]}

        async def run(self, task: Json, *, verify: bool = True) -> Json:
            raise AssertionError

        async def deferrable(self) -> bool:
            return False

        async def aclose(self) -> None: ...

    tool = {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": False}
    request: Any = {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False}
    messages: Any = [{"role": "user", "content": "Go."}]
    with hosting.hosted(kind, Bare) as url, client(url) as asker:
        whole = asker.responses.create(model="hosted", input="Go.", **request).to_dict()
        events = responses(url, **request)
        (chat, *_) = asker.chat.completions.create(model="hosted", messages=messages, stream=True)
        begin = httpx2.post(f"{url}/v1/messages", json={**ROUTES["messages"], "stream": True}, timeout=DEADLINE_S)
    assert without_ids(events[-1]["response"]) == without_ids(whole)
    assert (events[0]["response"]["model"], chat.model) == ("hosted", "hosted")
    assert orjson.loads(begin.text.splitlines()[1][6:])["message"]["model"] == "hosted"


def test_arrays_are_lists_in_whole_and_streamed_answers() -> None:
    class Arrays:
        async def respond(self, request: Json) -> Json:
            part = {"type": "output_text", "text": "ab", "annotations": []}
            probs = np.array([-0.5, -1.0])
            return {"output": [{"type": "message", "content": [part], "generation_log_probs": probs}]}

        async def aclose(self) -> None: ...

    with hosting.hosted(MODEL, Arrays) as url, client(url) as asker:
        whole = asker.responses.create(model="m", input="Go.").to_dict()
        streamed = responses(url)[-1]["response"]
    assert [each["output"][0]["generation_log_probs"] for each in (whole, streamed)] == [[-0.5, -1.0]] * 2  # type: ignore[index]


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
