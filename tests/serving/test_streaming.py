"""Streaming, over real sockets: every event consistent, nothing lost, and an end that equals the whole answer.

A model server is driven by the real `openai` client; the upstream of `openai_model` is a server that sends exactly the
bytes a test says, when it says so.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import httpx2
import openai
import pytest

from tests.support import hosted as hosting
from tests.support.patience import DEADLINE_S
from tests.support.staged import Staged, ask_and_leave
from tests.support.streams import BEGUN, TURN, added, client, consistent, responses, scripted, without_ids
from velodrome.errors import CallError, ModelError
from velodrome.records.response_fields import complete
from velodrome.serving.apps.routes import RequestLimits

Json = dict[str, Any]
MODEL = "responses_api_models"
PROBS = [{"token": "W", "logprob": -1}]
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
                {"type": "output_text", "text": "Well, ", "annotations": [], "logprobs": PROBS},
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


CHAT: Any = {"model": "m", "messages": [{"role": "user", "content": "Go."}]}


def test_chat_chunks_add_up_to_the_completion_with_its_calls_and_usage() -> None:
    with hosting.hosted(MODEL, scripted(TURN)) as url, client(url) as asker:
        whole = asker.chat.completions.create(**CHAT)
        chunks = list(asker.chat.completions.create(**CHAT, stream=True, stream_options={"include_usage": True}))
        bare = list(asker.chat.completions.create(**CHAT, stream=True))
    calls = [
        {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
        for call in TURN["tool_calls"]
    ]
    said = {"role": "assistant", "content": "Let me see.", "reasoning_content": "Two calls.", "tool_calls": calls}
    assert added(chunks) == added(bare) == whole.choices[0].message.to_dict() == said
    assert chunks[-2].choices[0].finish_reason == "tool_calls"
    assert (chunks[-1].choices, chunks[-1].usage) == ([], whole.usage)
    assert {chunk.id for chunk in chunks} == {chunks[0].id}
    assert all(chunk.choices for chunk in bare)


def test_chat_tells_a_refusal_a_summary_and_the_reason_for_the_end() -> None:
    with hosting.hosted(MODEL, scripted(REFUSED)) as url, client(url) as asker:
        chunks = list(asker.chat.completions.create(**CHAT, stream=True))
        whole = asker.chat.completions.create(**CHAT)
    assert added(chunks) == whole.choices[0].message.to_dict()
    assert added(chunks)["reasoning_content"] == "One.\n\nTwo."
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason == "content_filter"
    probs = [chunk.choices[0].logprobs.content[0].token for chunk in chunks if chunk.choices[0].logprobs]
    assert probs == ["W"]


# A model that streams as a test says


FAILED = {"type": "response.failed", "response": {"error": {"message": "it ran hot"}}}
BROKEN: list[tuple[list[Json], Exception | None, str]] = [
    (BEGUN, ModelError("the model broke", status=503), "the model broke"),
    (BEGUN, RuntimeError("a fault of its own"), "model: RuntimeError: a fault of its own"),
    (BEGUN, None, "model: the stream has no end"),
    ([*BEGUN, FAILED], None, "model: it ran hot"),
    ([*BEGUN, {"type": "response.completed"}], None, "model: the last event of the stream has no response"),
]


@pytest.mark.parametrize(("begun", "then", "message"), BROKEN, ids=["its", "stranger", "no end", "failed", "no answer"])
def test_an_error_in_the_middle_is_raised_by_the_client_with_its_boundary(
    begun: list[Json], then: Exception | None, message: str
) -> None:
    with hosting.hosted(MODEL, lambda: Staged(begun, then)) as url, client(url) as asker:
        with pytest.raises(openai.APIError) as caught:
            list(asker.responses.create(model="m", input="Go.", stream=True))
        *events, last = responses(url)
    assert [event["type"] for event in events] == [event["type"] for event in BEGUN]
    assert (last["type"], last["message"], last["sequence_number"]) == ("error", message, len(BEGUN))
    error: Any = caught.value
    assert (error.message, error.body["boundary"], error.body["type"]) == (message, "model", "ModelError")


SECRET = "hunter2-hunter2"
MASKING = RequestLimits(secrets=frozenset((SECRET,)))
ROUTES: dict[str, Json] = {
    "responses": {"input": "Go."},
    "chat/completions": {"messages": [{"role": "user", "content": "Go."}]},
}


def test_an_error_in_the_middle_is_the_last_event_and_masked(caplog: pytest.LogCaptureFixture) -> None:
    class Faulty(Staged):
        async def stream(self, request: Json) -> AsyncGenerator[Json, None]:
            async for event in super().stream(request):
                yield event
            raise RuntimeError(f"the key is {SECRET}")

    no_json = {**BEGUN[-1], "delta": "half a \ud83d"}
    cases = (
        (Staged(BEGUN, CallError(f"no route to {SECRET}")), "no route to ***"),
        (Faulty(BEGUN), "model: RuntimeError: the key is ***"),
        (Staged([*BEGUN, no_json]), "surrogates"),
    )
    for model, message in cases:
        with hosting.hosted(MODEL, lambda model=model: model, limits=MASKING) as url:
            error = responses(url)[-1]["error"]
        assert (message in error["message"], SECRET in str(error)) == (True, False)
    line = next(line for line in caplog.messages if "Faulty.stream" in line)
    assert line.startswith("model failed: model: RuntimeError: the key is *** (")
    assert SECRET not in caplog.text


def test_an_error_with_half_a_character_is_an_answer_like_any_other() -> None:
    class Halved:
        async def respond(self, request: Json) -> Json:
            raise ModelError("no", partial=[{"text": "half a \ud83d"}])

        async def aclose(self) -> None: ...

    with hosting.hosted(MODEL, Halved) as url:
        for body in (ROUTES["responses"], {**ROUTES["responses"], "stream": True}):
            reply = httpx2.post(f"{url}/v1/responses", json=body, timeout=DEADLINE_S)
            error = reply.json()["error"]
            assert (reply.status_code, error["message"], error["partial"]) == (502, "no", [{"text": "half a ?"}])


def test_a_bare_answer_is_filled_in_alike_whole_and_streamed() -> None:
    class Bare:
        async def respond(self, request: Json) -> Json:
            return {"output": [{"type": "message", "content": "Hi."}]}

        async def aclose(self) -> None: ...

    tool = {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": False}
    request: Any = {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False}
    with hosting.hosted(MODEL, Bare) as url, client(url) as asker:
        whole = asker.responses.create(model="hosted", input="Go.", **request).to_dict()
        events = responses(url, **request)
        (chat, *_) = asker.chat.completions.create(**{**CHAT, "model": "hosted"}, stream=True)
    assert without_ids(events[-1]["response"]) == without_ids(whole)
    assert (events[0]["response"]["model"], chat.model) == ("hosted", "hosted")


@pytest.mark.parametrize(
    ("route", "stream", "events"),
    [("responses", True, BEGUN), ("chat/completions", True, []), ("responses", False, [])],
    ids=["in the middle", "before the first event", "of a whole answer"],
)
def test_a_caller_that_goes_away_stops_the_model(route: str, stream: bool, events: list[Json]) -> None:
    model = Staged(events, "hang")
    with hosting.hosted(MODEL, lambda: model) as url:
        body = {**ROUTES[route], "stream": stream}
        ask_and_leave(f"{url}/v1/{route}", body, model, after="Half an" if events else None)
        assert model.ended.wait(DEADLINE_S)
