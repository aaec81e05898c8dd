"""Token ids and log-probabilities: found wherever a server puts them, and never lost without a word."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

import velodrome as velo
from tests.support.patience import DEADLINE_S
from velodrome import http
from velodrome.resources_servers.calculator.app import Calculator
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.openai_model.app import OpenAI
from velodrome.responses_api_models.tokens import LOGPROBS, mark_missing, token_fields
from velodrome.serving.remote import HttpAgent

Json = dict[str, Any]

TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [7, 8], "generation_log_probs": [-0.5, -1.5]}
PROBS = [{"token": "H", "logprob": -0.5}, {"token": "i", "logprob": -1.5}]
NUMBERED = [{**PROBS[0], "id": 7}, {**PROBS[1], "id": 8}]
NAMED = [
    {"token": f"token_id:{number}", "logprob": entry["logprob"]} for number, entry in zip((7, 8), PROBS, strict=True)
]
HI = {"role": "assistant", "content": "Hi"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
RAW = {"input_messages": [{"tokens": [1, 2]}], "output_messages": [{"tokens": [7, 8]}]}


def choice(message: Json = HI, *, probs: Any = PROBS, **fields: Any) -> Json:
    return {"message": message, "finish_reason": "stop", "logprobs": probs and {"content": probs}, **fields}


def spoken(probs: Any = PROBS) -> Json:
    part = {"type": "output_text", "text": "Hi", "logprobs": probs}
    return {"type": "message", "role": "assistant", "content": [part]}


PLACES = {
    "vLLM": {"prompt_token_ids": [1, 2], "choices": [choice(token_ids=[7, 8])]},
    "SGLang": {"choices": [choice(prompt_token_ids=[1, 2], token_ids=[7, 8])]},
    "litellm": {"prompt_token_ids": [1, 2], "choices": [choice(provider_specific_fields={"token_ids": [7, 8]})]},
    "the message": {"choices": [choice({**HI, **TOKENS}, probs=None)]},
    "llama.cpp": {"prompt_token_ids": [1, 2], "choices": [choice(probs=NUMBERED)]},
    "vLLM's names": {"prompt_token_ids": [1, 2], "choices": [choice(probs=NAMED)]},
    "vLLM's Responses": {"output": [spoken()], **RAW},
}


def test_ids_and_log_probabilities_are_found_in_each_place_a_server_puts_them() -> None:
    assert {place: token_fields(answer) for place, answer in PLACES.items()} == dict.fromkeys(PLACES, TOKENS)


PROMPT, IDS, LOG_PROBS = ({name: value} for name, value in TOKENS.items())
CALLED = choice({"content": None, "tool_calls": [CALL]})
PARTS: dict[str, tuple[Json, Json]] = {
    "log-probabilities of some tokens": ({"choices": [choice(probs=PROBS[:1], token_ids=[7, 8])]}, IDS),
    "raw messages of several turns": (
        {"output": [spoken()], **RAW, "output_messages": [{"tokens": [7]}, {"tokens": [8]}]},
        PROMPT,
    ),
    "a call without ids": ({"choices": [CALLED]}, LOG_PROBS),
    "a text without ids has them itself": ({"choices": [choice()]}, {}),
    "a call, all tokens": ({"choices": [{**CALLED, "logprobs": {"content": NUMBERED}}]}, {**IDS, **LOG_PROBS}),
    "fewer than were generated": ({"choices": [choice(probs=NUMBERED)], "usage": {"completion_tokens": 3}}, {}),
    "as many": ({"choices": [choice(probs=NUMBERED)], "usage": {"completion_tokens": 2}}, {**IDS, **LOG_PROBS}),
    "a call, fewer than were generated": ({"choices": [CALLED], "usage": {"output_tokens": 3}}, {}),
}


def test_fields_of_some_tokens_or_of_several_turns_are_not_those_of_the_answer() -> None:
    for case, (answer, fields) in PARTS.items():
        assert token_fields(answer) == fields, case


def test_what_did_not_come_is_null_on_the_last_item() -> None:
    output = [{"type": "reasoning"}, spoken(), {"type": "function_call", "name": "f", "generation_token_ids": [7]}]
    assert mark_missing(output, TOKENS) == ["prompt_token_ids", "generation_log_probs"]
    assert output[-1] == {
        "type": "function_call",
        "name": "f",
        "prompt_token_ids": None,
        "generation_token_ids": [7],
        "generation_log_probs": None,
    }
    assert mark_missing([spoken()], ["generation_log_probs"]) == []  # asked for alone, they are on the text


def answering(wire: Any, answer: Callable[[str, Json], Json], *requests: Json, **config: Any) -> tuple[list[Any], Any]:
    """What a model says whose server answers a path and a body so, and which paths were called."""

    def reply(seen: Any) -> bytes:
        made = answer(seen.path.rpartition("/v1/")[2], seen.json)
        status = 404 if "error" in made else 200
        return wire.reply(status, orjson.dumps(made), Content_Type="application/json")

    async def whole() -> tuple[list[Any], Any]:
        async with wire(reply) as server:
            model = OpenAI(f"{server.url}/v1", "m", backoff_s=0.0, **config)
            try:
                answers = [await asyncio.wait_for(model.respond(request), DEADLINE_S) for request in requests]
                return answers, server
            finally:
                await http.close_shared()

    return asyncio.run(whole())


CHAT_WITH, CHAT_WITHOUT = PLACES["vLLM"], {"choices": [choice(probs=None)]}
RESPONSE_WITH = {"output": [spoken()], **RAW}
RESPONSE_WITHOUT = {"output": [spoken(None)]}
ASKED = {"input": "Hi", "return_token_ids": True, "include": [LOGPROBS]}


def vllm(path: str, body: Json) -> Json:
    """Ids and log-probabilities where vLLM's endpoints have them, if they are asked for in its words."""
    if path == "responses":
        raw = RAW if body.get("enable_response_messages") else {}
        return {"output": [spoken(PROBS if LOGPROBS in (body.get("include") or ()) else None)], **raw}
    whole = choice(probs=PROBS if body.get("logprobs") else None)
    return {
        "choices": [whole | ({"token_ids": [7, 8]} if body.get("return_token_ids") else {})],
        "prompt_token_ids": [1, 2],
    }


@pytest.mark.parametrize("endpoint", ["auto", "chat", "responses"])
def test_ids_come_from_either_endpoint_in_whose_words_ever_they_are_asked_for(
    wire: Any, endpoint: str, caplog: Any
) -> None:
    caplog.set_level("INFO")
    for probs in ({"logprobs": True}, {"top_logprobs": 1}):
        extra = {"return_token_ids": True, **probs}
        [answer], server = answering(wire, vllm, {"input": "Hi"}, endpoint=endpoint, extra_body=extra)
        assert {name: answer["output"][-1].get(name) for name in TOKENS} == TOKENS
        assert answer.keys().isdisjoint(RAW)
        assert len(server.seen) == 1
    assert not caplog.records
    if endpoint == "responses":  # a caller that asks for the raw messages gets them
        [answer], _ = answering(wire, vllm, {"input": "Hi", "enable_response_messages": True}, endpoint=endpoint)
        assert {name: answer[name] for name in RAW} == RAW


@pytest.mark.parametrize("endpoint", ["responses", "chat", "auto"])
def test_ids_that_do_not_come_are_null_and_logged_once(wire: Any, caplog: Any, endpoint: str) -> None:
    caplog.set_level("INFO")

    def answer(path: str, body: Json) -> Json:
        return CHAT_WITHOUT if path == "chat/completions" else RESPONSE_WITHOUT

    answers, server = answering(wire, answer, ASKED, ASKED, ASKED, endpoint=endpoint)
    assert all({name: each["output"][-1][name] for name in TOKENS} == dict.fromkeys(TOKENS) for each in answers)
    [line] = caplog.records
    assert f"{server.url}/v1/{'responses' if endpoint == 'responses' else 'chat'}" in line.getMessage()
    assert ("try endpoint: chat" in line.getMessage()) == (endpoint == "responses")


AUTO = {
    "chat has ids": (ASKED, CHAT_WITH, RESPONSE_WITHOUT, ["chat", "chat"]),
    "only responses has ids": (ASKED, CHAT_WITHOUT, RESPONSE_WITH, ["chat", "chat"]),
    "there is no chat": (ASKED, {"error": "no such route"}, RESPONSE_WITH, ["chat", "responses", "responses"]),
    "nothing is asked for": ({"input": "Hi"}, CHAT_WITH, RESPONSE_WITH, ["responses", "responses"]),
    "only responses keeps conversations": (
        {**ASKED, "previous_response_id": "r"}, CHAT_WITH, RESPONSE_WITH, ["responses", "responses"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", AUTO)
def test_auto_calls_chat_first_where_ids_are_asked_for(wire: Any, case: str) -> None:
    request, chat, responses, called = AUTO[case]

    def answer(path: str, body: Json) -> Json:
        return chat if path == "chat/completions" else responses

    _, server = answering(wire, answer, request, request)
    assert ["chat" if "chat" in seen.path else "responses" for seen in server.seen] == called
    if case == "chat has ids":  # a request that asks for nothing does not choose for those that ask
        answers, _ = answering(wire, answer, {"input": "Hi"}, request)
        assert answers[1]["output"][-1]["generation_token_ids"]


def streamed(wire: Any, *events: Json, **config: Any) -> Json:
    """The last event's Response of a stream."""
    body = b"".join(b"data: " + orjson.dumps(event) + b"\n\n" for event in events)

    async def whole() -> Json:
        async with wire(wire.reply(200, body, Content_Type="text/event-stream")) as server:
            model = OpenAI(f"{server.url}/v1", "m", backoff_s=0.0, **config)
            try:
                return [event async for event in model.stream(ASKED)][-1]["response"]
            finally:
                await http.close_shared()

    return asyncio.run(whole())


def chunk(text: str | None, at: int, **fields: Any) -> Json:
    delta = {} if text is None else {"content": text}
    return {"id": "c", "choices": [{"delta": delta, "logprobs": {"content": [PROBS[at]]}, **fields}]}


USAGE = {"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 2}}


def test_the_last_event_of_a_stream_has_the_ids_if_all_tokens_have_them(wire: Any, caplog: Any) -> None:
    caplog.set_level("INFO")
    ended = {"type": "response.completed", "response": RESPONSE_WITH}
    first = {**chunk("H", 0, token_ids=[7]), "prompt_token_ids": [1, 2]}
    last = chunk("i", 1, provider_specific_fields={"token_ids": [8]}, finish_reason="stop")
    by_responses = streamed(wire, ended, endpoint="responses")
    by_chat = streamed(wire, first, last, USAGE, endpoint="chat")
    for response in (by_responses, by_chat):
        assert {name: response["output"][-1].get(name) for name in TOKENS} == TOKENS
    assert not caplog.records
    response = streamed(wire, first, chunk(None, 1, finish_reason="stop"), USAGE, endpoint="chat")
    assert response["output"][-1]["generation_token_ids"] is None
    assert len(caplog.records) == 1


def test_each_run_reports_what_did_not_come_once_and_counts_what_earlier_runs_lacked(
    wire: Any, tmp_path: Path, caplog: Any
) -> None:
    reply = wire.reply(200, orjson.dumps(CHAT_WITHOUT), Content_Type="application/json")

    async def collected(limit: int) -> list[str]:
        async with wire(reply) as server:
            model = OpenAI(f"{server.url}/v1", "m", endpoint="chat", extra_body={"return_token_ids": True})
            agent = SimpleAgent(model=model, environment=Calculator(), offer_tools=False)
            asked = {"expected_answer": "36", "responses_create_params": {"input": "?"}}
            tasks = [{"id": f"t{number}", **asked} for number in range(limit)]
            settings = {"out": tmp_path / "out.jsonl", "allow_mixed": True, "progress": False}  # the address changes
            try:
                return (await velo.collect(tasks, agent, **settings)).findings
            finally:
                await http.close_shared()

    for runs, rollouts in ((1, 2), (2, 3)):
        findings = asyncio.run(collected(rollouts))
        told = f"{rollouts} of {rollouts} rollouts"
        assert [finding for finding in findings if "no-token-ids" in finding and told in finding]
        assert ["no generation_token_ids" in record.getMessage() for record in caplog.records] == [True] * runs


@pytest.mark.parametrize("endpoint", ["chat", "responses"])
def test_ids_come_through_a_served_model_and_a_served_agent(wire: Any, endpoint: str) -> None:
    """The collector calls an agent server, which calls a model server, which calls the upstream."""
    reply = wire.reply(200, orjson.dumps(PLACES["vLLM"]), Content_Type="application/json")

    async def whole() -> Json:
        async with wire(reply) as server:
            asked = {"return_token_ids": True, "logprobs": True}
            upstream = OpenAI(f"{server.url}/v1", "m", endpoint="chat", extra_body=asked)
            async with velo.serve(model=upstream) as models:
                model = OpenAI(f"{models}/v1", "m", endpoint=endpoint, extra_body=asked)
                agent = SimpleAgent(model=model, environment=Calculator(), offer_tools=False)
                async with velo.serve(agent=agent) as agents:
                    row = await velo.rollout("?", HttpAgent(agents), verify=False)
                    await http.close_shared()
                    return row["output"][-1]

    turn = asyncio.run(whole())
    assert {name: turn.get(name) for name in TOKENS} == TOKENS
