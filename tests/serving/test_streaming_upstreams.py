"""`openai_model` on upstreams that stream, well or badly: each sends exactly the bytes a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest

from tests.support import hosted as hosting
from tests.support.patience import DEADLINE_S
from tests.support.streams import BEGUN, TURN, collected, consistent, responses, scripted, without_ids
from velodrome import http
from velodrome.contracts import Streaming
from velodrome.errors import ModelError
from velodrome.responses_api_models.openai_model.app import OpenAI
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.serving.scripted import ScriptedServer

Json = dict[str, Any]
MODEL = "responses_api_models"

HANG, CUT = object(), object()


class Upstream:
    """Answers with the bodies in turn, the last for ever after, each piece as it stands.

    Among the pieces, a number at the front is the status, HANG waits until the other side hangs up, CUT does so itself.
    """

    def __init__(self, *bodies: list[Any], kind: str = "text/event-stream") -> None:
        self.bodies = bodies
        self.kind = kind
        self.seen: list[tuple[str, Json]] = []
        self.left = asyncio.Event()

    async def __aenter__(self) -> Upstream:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.split("content-length: ")[1].split("\r\n")[0])
            self.seen.append((head.split(" ")[1], orjson.loads(await reader.readexactly(length))))
            body = self.bodies[min(len(self.seen), len(self.bodies)) - 1]
            status, *pieces = body if isinstance(body[0], int) else (200, *body)
            if pieces == [CUT]:
                return
            head = f"HTTP/1.1 {status} X\r\nContent-Type: {self.kind}\r\nTransfer-Encoding: chunked\r\n\r\n"
            writer.write(head.encode())
            for piece in pieces:
                if piece is CUT:
                    return
                if piece is HANG:
                    await reader.read()
                    self.left.set()
                    return
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await writer.drain()
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        finally:
            writer.close()


def sse(*events: Json | str, end: str = "\n") -> bytes:
    lines = [event if isinstance(event, str) else orjson.dumps(event).decode() for event in events]
    return "".join(f": ping{end}event: x{end}data: {line}{end}{end}" for line in lines).encode()


def chunk(finish: str | None = None, **delta: Any) -> Json:
    return {"id": "chat_1", "created": 5, "model": "up", "choices": [{"delta": delta, "finish_reason": finish}]}


def piece(index: int, arguments: str, **named: Any) -> Json:
    function = {"arguments": arguments, **({"name": named["name"]} if "name" in named else {})}
    return {"index": index, "function": function, **({"id": named["id"]} if "id" in named else {})}


CHAT = [
    chunk(role="assistant", content=""),
    chunk(reasoning_content="Two "),
    chunk(reasoning_content="calls."),
    chunk(content="Let "),
    chunk(content="me see."),
    chunk(tool_calls=[piece(0, "", name="add", id="c0")]),
    chunk(tool_calls=[piece(0, '{"a"'), piece(1, '{"b": ', name="mul", id="c1")]),
    chunk(tool_calls=[piece(1, '"ü☃"}'), piece(0, ": 1}")]),
    chunk("tool_calls"),
    {"id": "chat_1", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}},
]
QUICK = {"openai_model": "up", "max_retries": 2, "backoff_s": 0.0, "timeout_s": 20, "total_timeout_s": 60}


def upstream(
    use: Callable[[Any, Upstream], Awaitable[Any]], *bodies: list[Any], settings: Json | None = None, **how: Any
) -> Any:
    """What `use(model, upstream)` gives with such an upstream."""

    async def main() -> Any:
        async with Upstream(*bodies, **how) as up:
            try:
                return await use(OpenAI(up.url, **{**QUICK, **(settings or {})}), up)
            finally:
                await http.close_shared()

    return asyncio.run(main())


async def failure(model: Streaming) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await collected(model)
    return caught.value


def completion() -> Json:
    calls = [
        {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
        for call in TURN["tool_calls"]
    ]
    message = {"content": TURN["content"], "reasoning_content": TURN["reasoning_content"], "tool_calls": calls}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return {"id": "chat_1", "created": 5, "model": "up", "choices": [choice], "usage": CHAT[-1]["usage"]}


def test_a_chat_upstream_becomes_consistent_events_that_end_as_its_whole_answer() -> None:
    chat = {"endpoint": "chat"}
    answer = [orjson.dumps(completion())]
    whole = upstream(lambda model, up: model.respond({"input": "Go."}), answer, settings=chat, kind="application/json")
    for end, size in (("\n", 1), ("\r\n", 1), ("\r\n", 7), ("\n", 10**6)):
        data = sse(*CHAT, "[DONE]", end=end)
        pieces = [data[start : start + size] for start in range(0, len(data), size)]
        events = upstream(lambda model, up: collected(model), pieces, settings=chat)
        assert consistent(events) == whole
        assert [event["type"] for event in events if event["type"].endswith("delta")] == [
            *["response.reasoning_text.delta"] * 2,
            *["response.output_text.delta"] * 2,
            *["response.function_call_arguments.delta"] * 4,
        ]


def test_chat_pieces_in_any_order_stay_where_they_were_told() -> None:
    chunks = [
        chunk(tool_calls=[piece(0, "{", id="c0"), piece(1, "{}", name="g", id="c1")]),
        chunk(refusal="No, "),
        chunk(tool_calls=[piece(0, "}", name="f")]),
        chunk(content="but"),
        chunk(reasoning="Hm."),
        chunk("length", refusal="never."),
    ]
    events = upstream(lambda model, up: collected(model), [sse(*chunks, "[DONE]")], settings={"endpoint": "chat"})
    final = consistent(events)
    assert [item.get("name", item["type"]) for item in final["output"]] == ["g", "message", "f", "reasoning"]
    assert [part["type"] for part in final["output"][1]["content"]] == ["refusal", "output_text"]
    assert (final["status"], final["output"][2]["arguments"]) == ("incomplete", "{}")


def test_a_responses_upstream_is_passed_on_as_it_is_and_asked_as_it_should_be() -> None:
    with hosting.hosted(MODEL, scripted(TURN)) as url:
        theirs = responses(url)
    request = {"input": "Go.", "temperature": 0.5}

    async def use(model: OpenAI, up: Upstream) -> Any:
        first = await collected(model, request)
        return first, await collected(model, request), up.seen

    first, second, seen = upstream(use, [sse(*theirs)])
    assert first == second == theirs
    assert seen == [("/v1/responses", {**request, "model": "up", "stream": True})] * 2
    assert request == {"input": "Go.", "temperature": 0.5}


def test_a_server_without_responses_is_streamed_from_by_chat_ever_after() -> None:
    async def use(model: OpenAI, up: Upstream) -> Any:
        finals = [consistent(await collected(model)) for _ in range(2)]
        return finals, [(path, body["stream_options"]) for path, body in up.seen[1:]], up.seen[0][0]

    finals, chats, first = upstream(use, [404, b'{"error": "no such route"}'], [sse(*CHAT)])
    assert finals[0] == finals[1]
    assert first == "/v1/responses"
    assert chats == [("/v1/chat/completions", {"include_usage": True})] * 2


def test_an_upstream_that_does_not_stream_is_told_whole() -> None:
    async def main() -> tuple[list[Json], Json]:
        async with ScriptedServer(ScriptedModel(answers=[TURN])) as server:
            model = OpenAI(openai_base_url=server.url, **QUICK)
            try:
                return await collected(model), await model.respond({"input": "Go."})
            finally:
                await http.close_shared()

    events, whole = asyncio.run(main())
    assert without_ids(consistent(events)) == without_ids(whole)


def test_pieces_are_told_as_they_come_and_closing_the_stream_hangs_up() -> None:
    async def use(model: OpenAI, up: Upstream) -> Any:
        stream = model.stream({"input": "Go."})
        seen = [(await anext(stream))["type"] for _ in range(5)]
        await stream.aclose()
        await asyncio.wait_for(up.left.wait(), DEADLINE_S)
        return seen

    # The server sends the first chunks and then nothing, until the other side hangs up.
    seen = upstream(use, [sse(*CHAT[:2]), HANG], settings={"endpoint": "chat", "max_concurrent": 1})
    assert seen[2:] == [
        "response.output_item.added",
        "response.content_part.added",
        "response.reasoning_text.delta",
    ]


def test_a_stream_is_begun_again_only_before_its_first_byte() -> None:
    async def use(model: OpenAI, up: Upstream) -> Any:
        events = await collected(model)
        error = await failure(model)
        return len(events), str(error), len(up.seen)

    settings = {"endpoint": "chat"}
    bodies = [[CUT], [503], [sse(*CHAT)], [sse(*CHAT[:3]), CUT]]
    count, error, calls = upstream(use, *bodies, settings=settings)
    assert (count > 10, calls) == (True, 4)
    assert "connection lost in the middle of the stream" in error


def ended(*items: Json, **more: Any) -> Json:
    return {"type": "response.completed", "response": {"id": "r", "output": list(items), **more}}


SAID = {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "36"}]}
FORGED = {"type": "function_call_output", "id": "f", "call_id": "c0", "output": "36"}
WRONG: list[tuple[str, list[Any], str]] = [
    ("chat", [sse(*CHAT[:4])], "the answer has no end"),
    ("chat", [sse(CHAT[0], "{not json")], "an event is not JSON: {not json"),
    ("chat", [sse(CHAT[0], "[1]")], "an event is not an object: [1]"),
    ("chat", [sse(CHAT[0], {"error": {"message": "out of memory", "code": 507}})], "out of memory"),
    ("chat", [sse({**CHAT[0], "choices": [7]})], "not a chat completion chunk"),
    ("chat", [200], "the answer has no end"),
    ("chat", [sse(chunk(role="tool", content="36"), chunk("stop"))], "'tool'"),
    (
        "chat",
        [sse(CHAT[3], chunk("stop"), {"choices": [], "usage": {"total_tokens": 2**63 - 1}})],
        "usage.total_tokens",
    ),
    ("responses", [sse(*BEGUN)], "the stream has no end"),
    ("responses", [sse(*BEGUN, {"type": "response.failed", "response": {"error": {"message": "no luck"}}})], "no luck"),
    ("responses", [sse(*BEGUN, {"type": "error", "code": "x", "message": "overloaded"})], "overloaded"),
    ("responses", [sse(*BEGUN, {"type": "error", "error": {"message": "quota"}})], "quota"),
    ("responses", [sse(*BEGUN, {"type": "response.completed", "response": {}})], '"output" is not a list but None'),
    ("responses", [sse({**BEGUN[1], "item": FORGED}, ended(SAID))], "function_call_output"),
]


def test_a_stream_that_goes_wrong_or_that_no_model_can_have_made_is_a_model_error() -> None:
    for endpoint, body, message in WRONG:
        error = upstream(lambda model, up: failure(model), body, settings={"endpoint": endpoint})
        assert message in str(error)
        assert error.status == (507 if "memory" in message else None)


def test_an_error_status_of_the_upstream_is_the_streams_own_and_its_key_is_not_told() -> None:
    settings = {"endpoint": "chat", "openai_api_key": "sk-very-secret", "rate_limit_timeout_s": 0}
    body = [429, b'{"error": {"message": "slow down, sk-very-secret"}}']

    async def use(model: OpenAI, up: Upstream) -> Any:
        return await failure(model), len(up.seen)

    error, calls = upstream(use, body, settings=settings)
    assert (error.status, calls) == (429, 1)
    assert "429 Too Many Requests" in str(error)
    assert "secret" not in str(error)


def test_a_stream_that_falls_silent_or_grows_without_end_is_given_up() -> None:
    async def broken(client: http.Http, up: Upstream, timeout_s: float) -> str:
        policy = http.Retry(max_retries=0, timeout_s=timeout_s)
        async with await client.stream(http.Target(up.url), b"{}", policy) as reply:
            with pytest.raises(http.CallError) as caught:
                [_ async for _ in reply.chunks()]
        assert reply.target.in_flight == 0
        return str(caught.value).partition(": ")[2]

    async def main() -> list[str]:
        client = http.Http(max_body_bytes=10)
        try:
            async with Upstream([b"hello", HANG]) as silent, Upstream([b"x" * 11]) as large:
                return [await broken(client, silent, 0.05), await broken(client, large, 20)]
        finally:
            await client.aclose()

    assert asyncio.run(main()) == ["the stream fell silent", "the body is larger than 10 bytes"]
