"""Token ids and log-probabilities: found wherever a server puts them, and never lost without a word."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from patience import DEADLINE_S

import velodrome as velo
from velodrome import http
from velodrome.errors import ModelError
from velodrome.records.conversation import messages, token_flaws
from velodrome.resources_servers.calculator.app import Calculator
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.openai_model.app import OpenAI
from velodrome.responses_api_models.tokens import LOGPROBS, mark, token_fields, wanted
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


@pytest.mark.parametrize("place", PLACES)
def test_ids_and_log_probabilities_are_found_in_each_place_a_server_puts_them(place: str) -> None:
    assert token_fields(PLACES[place]) == TOKENS


def test_log_probabilities_of_some_tokens_are_not_those_of_the_answer() -> None:
    fields = token_fields({"choices": [choice(probs=PROBS[:1], token_ids=[7, 8])]})
    assert fields == {"generation_token_ids": [7, 8]}


def test_raw_messages_of_several_turns_are_not_the_ids_of_one() -> None:
    several = [{"tokens": [7]}, {"tokens": [1, 2, 7]}, {"tokens": [8]}]
    assert token_fields({"output": [spoken()], **RAW, "output_messages": several}) == {"prompt_token_ids": [1, 2]}


def test_log_probabilities_of_a_call_have_a_place_without_ids() -> None:
    called = {"choices": [choice({"content": None, "tool_calls": [CALL]})]}
    assert token_fields(called) == {"generation_log_probs": [-0.5, -1.5]}
    assert token_fields({"choices": [choice()]}) == {}  # they are on the text


def test_log_probabilities_alone_are_whole_on_a_call_and_on_a_text(wire: Any) -> None:
    turns = [choice({"content": None, "tool_calls": [CALL]}), choice()]
    asked = {"input": "Hi", "top_logprobs": 0}
    answers, _ = answering(wire, lambda path, body: {"choices": [turns.pop(0)]}, asked, asked, endpoint="chat")
    result = {"type": "function_call_output", "call_id": "c", "output": "1"}
    assert token_flaws(messages([*answers[0]["output"], result, *answers[1]["output"]])) == ([], [])


def test_what_a_request_asks_for() -> None:
    prompt, ids, probs = TOKENS
    assert wanted({}, {}) == ()
    assert wanted({"return_token_ids": True}, {}) == wanted({"enable_response_messages": True}, {}) == (prompt, ids)
    assert wanted({"include": [LOGPROBS]}, {}) == wanted({}, {"top_logprobs": 0}) == (probs,)
    assert wanted({}, {"return_token_ids": True, "logprobs": True}) == (prompt, ids, probs)
    assert wanted({"return_token_ids": True}, {"return_token_ids": False}) == ()


def test_what_did_not_come_is_null_on_the_last_item() -> None:
    output = [{"type": "reasoning"}, spoken(), {"type": "function_call", "name": "f", "generation_token_ids": [7]}]
    assert mark(output, TOKENS) == ["prompt_token_ids", "generation_log_probs"]
    assert output[-1] == {
        "type": "function_call",
        "name": "f",
        "prompt_token_ids": None,
        "generation_token_ids": [7],
        "generation_log_probs": None,
    }
    assert mark([spoken()], ["generation_log_probs"]) == []  # asked for alone, they are on the text


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
@pytest.mark.parametrize(
    "extra", [{"return_token_ids": True, "logprobs": True}, {"return_token_ids": True, "top_logprobs": 1}]
)
def test_ids_come_from_either_endpoint_in_whose_words_ever_they_are_asked_for(
    wire: Any, endpoint: str, extra: Json, caplog: Any
) -> None:
    caplog.set_level("INFO")
    [answer], server = answering(wire, vllm, {"input": "Hi"}, endpoint=endpoint, extra_body=extra)
    assert {name: answer["output"][-1].get(name) for name in TOKENS} == TOKENS
    assert answer.keys().isdisjoint(RAW)
    assert len(server.seen) == 1
    assert not caplog.records


def test_a_caller_that_asks_for_raw_messages_gets_them(wire: Any) -> None:
    request = {"input": "Hi", "enable_response_messages": True}
    [answer], _ = answering(wire, vllm, request, endpoint="responses")
    assert {name: answer[name] for name in RAW} == RAW


@pytest.mark.parametrize("message", [HI, {"role": "assistant", "tool_calls": [CALL]}], ids=["a text", "a call"])
def test_ids_and_log_probabilities_of_fewer_tokens_than_were_generated_are_not_those_of_the_answer(
    message: Json,
) -> None:
    answer = {"choices": [choice(message, probs=NUMBERED)], "usage": {"completion_tokens": 3}}
    assert token_fields(answer) == {}
    answer["usage"]["completion_tokens"] = 2
    assert token_fields(answer) == {name: TOKENS[name] for name in ("generation_token_ids", "generation_log_probs")}


@pytest.mark.parametrize("endpoint", ["responses", "chat", "auto"])
def test_only_a_model_held_to_responses_is_told_to_try_chat(wire: Any, caplog: Any, endpoint: str) -> None:
    caplog.set_level("INFO")
    answering(wire, lambda path, body: CHAT_WITHOUT if "chat" in path else RESPONSE_WITHOUT, ASKED, endpoint=endpoint)
    assert ("try endpoint: chat" in caplog.text) == (endpoint == "responses")


def test_ids_that_do_not_come_are_null_and_logged_once(wire: Any, caplog: Any) -> None:
    caplog.set_level("INFO")

    def answer(path: str, body: Json) -> Json:
        return CHAT_WITHOUT if path == "chat/completions" else RESPONSE_WITHOUT

    answers, server = answering(wire, answer, ASKED, ASKED, ASKED, endpoint="responses")
    assert all({name: each["output"][-1][name] for name in TOKENS} == dict.fromkeys(TOKENS) for each in answers)
    [line] = caplog.records
    assert f"{server.url}/v1/responses" in line.getMessage()
    assert "docs/models.md#token-ids" in line.getMessage()


AUTO = {
    "chat has ids": (ASKED, CHAT_WITH, RESPONSE_WITHOUT, ["chat", "chat"]),
    "only responses has ids": (ASKED, CHAT_WITHOUT, RESPONSE_WITH, ["chat", "responses", "responses"]),
    "there is no chat": (ASKED, {"error": "no such route"}, RESPONSE_WITH, ["chat", "responses", "responses"]),
    "there is no responses": (ASKED, CHAT_WITH, {"error": "no such route"}, ["chat", "chat"]),
    "nobody has ids": (ASKED, CHAT_WITHOUT, RESPONSE_WITHOUT, ["chat", "responses", "chat"]),
    "only chat has log-probabilities": (
        {"input": "Hi", "top_logprobs": 1}, PLACES["vLLM"], RESPONSE_WITHOUT, ["responses", "chat", "chat"]
    ),
    "nothing is asked for": ({"input": "Hi"}, CHAT_WITH, RESPONSE_WITH, ["responses", "responses"]),
    "only responses keeps conversations": (
        {**ASKED, "previous_response_id": "r"}, CHAT_WITH, RESPONSE_WITH, ["responses", "responses"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", AUTO)
def test_auto_calls_the_endpoint_that_has_what_is_asked_for(wire: Any, case: str) -> None:
    request, chat, responses, called = AUTO[case]

    def answer(path: str, body: Json) -> Json:
        return chat if path == "chat/completions" else responses

    _, server = answering(wire, answer, request, request)
    assert ["chat" if "chat" in seen.path else "responses" for seen in server.seen] == called


def test_a_request_that_asks_for_nothing_does_not_choose_for_those_that_ask(wire: Any) -> None:
    def answer(path: str, body: Json) -> Json:
        return CHAT_WITH if path == "chat/completions" else RESPONSE_WITHOUT

    answers, server = answering(wire, answer, {"input": "Hi"}, ASKED, {"input": "Hi"})
    assert answers[1]["output"][-1]["generation_token_ids"]
    assert ["chat" if "chat" in seen.path else "responses" for seen in server.seen] == [
        "responses",
        "chat",
        "responses",
    ]


def test_a_good_answer_does_not_wait_for_retries_of_the_other_endpoint(wire: Any) -> None:
    def answer(seen: Any) -> bytes:
        if "chat" in seen.path:
            return wire.reply(200, orjson.dumps(CHAT_WITHOUT), Content_Type="application/json")
        return wire.reply(500)

    async def called() -> list[str]:
        async with wire(answer) as server:
            try:
                await asyncio.wait_for(OpenAI(f"{server.url}/v1", "m", backoff_s=0.0).respond(ASKED), DEADLINE_S)
                return [seen.path.rpartition("/")[2] for seen in server.seen]
            finally:
                await http.close_shared()

    assert asyncio.run(called()) == ["completions", "responses"]


@pytest.mark.parametrize(
    ("response", "called"),
    [(RESPONSE_WITHOUT, {"chat": 20, "responses": 1}), (RESPONSE_WITH, {"chat": 1, "responses": 20})],
    ids=["neither has them", "only responses has them"],
)
def test_of_the_first_calls_at_once_one_alone_asks_both_endpoints(wire: Any, response: Json, called: Json) -> None:
    def answer(seen: Any) -> Any:
        return wire.reply(200, orjson.dumps(CHAT_WITHOUT if "chat" in seen.path else response))

    async def first_calls() -> list[str]:
        async with wire(answer) as server:
            model = OpenAI(f"{server.url}/v1", "m", backoff_s=0.0)
            await asyncio.wait_for(asyncio.gather(*(model.respond(ASKED) for _ in range(20))), DEADLINE_S)
            await http.close_shared()
            return [seen.path for seen in server.seen]

    paths = asyncio.run(first_calls())
    assert {kind: sum(kind in path for path in paths) for kind in ("chat", "responses")} == called


def test_ids_that_are_not_numbers_are_a_fault_of_the_model(wire: Any) -> None:
    poisoned = {**RESPONSE_WITH, "output_messages": [{"tokens": [2**64 - 1]}]}
    with pytest.raises(ModelError, match="generation_token_ids"):
        answering(wire, lambda path, body: poisoned, ASKED, endpoint="responses")


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


def test_the_last_event_of_a_stream_has_the_ids(wire: Any) -> None:
    ended = {"type": "response.completed", "response": RESPONSE_WITH}
    response = streamed(wire, ended, endpoint="responses")
    assert {name: response["output"][-1].get(name) for name in TOKENS} == TOKENS
    first = {**chunk("H", 0, token_ids=[7]), "prompt_token_ids": [1, 2]}
    last = chunk("i", 1, provider_specific_fields={"token_ids": [8]}, finish_reason="stop")
    response = streamed(wire, first, last, USAGE, endpoint="chat")
    assert {name: response["output"][-1].get(name) for name in TOKENS} == TOKENS


def test_ids_of_some_tokens_of_a_stream_are_not_those_of_the_answer(wire: Any, caplog: Any) -> None:
    caplog.set_level("INFO")
    first = {**chunk("Hi", 0, token_ids=[7]), "prompt_token_ids": [1, 2]}
    response = streamed(wire, first, chunk(None, 1, finish_reason="stop"), USAGE, endpoint="chat")
    assert response["output"][-1]["generation_token_ids"] is None
    assert len(caplog.records) == 1


def test_a_run_reports_what_did_not_come_at_its_first_rollout_and_counts_what_earlier_runs_lacked(
    wire: Any, tmp_path: Path, caplog: Any
) -> None:
    def answer(seen: Any) -> bytes:
        return wire.reply(200, orjson.dumps(CHAT_WITHOUT), Content_Type="application/json")

    async def collected(limit: int) -> list[str]:
        async with wire(answer) as server:
            model = OpenAI(f"{server.url}/v1", "m", endpoint="chat", extra_body={"return_token_ids": True})
            agent = SimpleAgent(model=model, environment=Calculator(), offer_tools=False)
            asked = {"expected_answer": "36", "responses_create_params": {"input": "?"}}
            tasks = [{"id": f"t{number}", **asked} for number in range(limit)]
            settings = {"out": tmp_path / "out.jsonl", "allow_mixed": True, "progress": False}  # the address changes
            try:
                return (await velo.collect(tasks, agent, **settings)).findings
            finally:
                await http.close_shared()

    first = asyncio.run(collected(2))
    assert [finding for finding in first if "no-token-ids" in finding and "2 of 2 rollouts" in finding]
    assert [record.levelno for record in caplog.records if "no generation_token_ids" in record.getMessage()] == [30]
    second = asyncio.run(collected(3))
    assert [finding for finding in second if "no-token-ids" in finding and "3 of 3 rollouts" in finding]
    assert len(caplog.records) == 2  # the run that went on says it again


def test_a_run_with_a_served_agent_reports_what_did_not_come_above_its_bar(wire: Any, capsys: Any) -> None:
    def answer(seen: Any) -> bytes:
        return wire.reply(200, orjson.dumps(CHAT_WITHOUT), Content_Type="application/json")

    async def whole() -> None:
        async with wire(answer) as server:
            model = OpenAI(f"{server.url}/v1", "m", endpoint="chat", extra_body={"return_token_ids": True})
            async with velo.serve(agent=SimpleAgent(model=model, environment=Calculator())) as agents:
                task = {"expected_answer": "36", "responses_create_params": {"input": "?"}}
                await velo.collect([task, {**task, "id": "b"}], HttpAgent(agents))
                await http.close_shared()

    asyncio.run(whole())
    [line] = [line for line in capsys.readouterr().err.splitlines() if "asked for and did not come" in line]
    assert "no prompt_token_ids, no generation_token_ids" in line
    assert "it/s" not in line


@pytest.mark.parametrize("endpoint", ["chat", "responses"])
def test_ids_come_through_a_served_model_and_a_served_agent(wire: Any, endpoint: str) -> None:
    """The collector calls an agent server, which calls a model server, which calls the upstream."""

    def answer(seen: Any) -> bytes:
        return wire.reply(200, orjson.dumps(PLACES["vLLM"]), Content_Type="application/json")

    async def whole() -> Json:
        async with wire(answer) as server:
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
