"""The scripted model says what it is told, when it is told, and fails exactly when it is told to."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from velodrome.errors import InputError, ModelError
from velodrome.responses_api_models.scripted_model.app import ScriptedModel, last_tool_result

ASKED = {"role": "user", "content": "15% of 240?"}
CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "36.0"}


def answer(config: dict[str, Any], *conversation: dict[str, Any]) -> dict[str, Any]:
    return asyncio.run(ScriptedModel(**config).respond({"input": list(conversation or [ASKED])}))


def said(config: dict[str, Any], *conversation: dict[str, Any]) -> str:
    (item,) = answer(config, *conversation)["output"]
    text: str = item["content"][0]["text"]
    return text


def problem(config: dict[str, Any]) -> str:
    with pytest.raises(InputError) as caught:
        ScriptedModel(**config)
    return str(caught.value)


def test_a_text_is_a_whole_response_and_a_whole_response_is_handed_over_as_it_is():
    response = answer({"answers": ["It is 36."], "model": "tiny"})
    (item,) = response["output"]
    text = {"type": "output_text", "text": "It is 36.", "annotations": []}
    assert (item["type"], item["role"], item["content"]) == ("message", "assistant", [text])
    assert (response["id"], response["model"], response["status"]) == ("resp_1", "tiny", "completed")
    counts = {"input_tokens": 3, "output_tokens": 3, "total_tokens": 6}
    assert {name: response["usage"][name] for name in counts} == counts
    whole = {"output": [], "status": "incomplete"}
    assert answer({"answers": [whole]}) == whole


def test_a_message_may_reason_talk_and_call_tools():
    message = {
        "reasoning_content": "hm",
        "content": "one moment",
        "tool_calls": [{"name": "f", "arguments": {"x": 1}}, {"name": "g", "arguments": "{bad", "id": "mine"}],
    }
    reasoning, text, first, second = answer({"answers": [message]})["output"]
    assert (reasoning["content"][0]["text"], text["content"][0]["text"]) == ("hm", "one moment")
    assert (first.pop("id"), second.pop("id")) == ("fc_resp_1_2", "fc_resp_1_3")
    assert first == {"type": "function_call", "call_id": "call_0_0", "name": "f", "arguments": '{"x":1}'}
    assert second == {"type": "function_call", "call_id": "mine", "name": "g", "arguments": "{bad"}


def test_the_answer_depends_on_the_turn_of_the_conversation_not_on_the_order_of_calls():
    model = ScriptedModel(answers=["first", "second", "last"])
    later = {"input": [ASKED, CALL, RESULT, {"role": "assistant", "content": "second"}, ASKED]}
    requests = [{"input": [ASKED, CALL, RESULT]}, {"input": "hi"}, later, {"input": [ASKED]}]

    async def main() -> list[str]:
        responses = await asyncio.gather(*map(model.respond, requests))
        return [response["output"][0]["content"][0]["text"] for response in responses]

    assert asyncio.run(main()) == ["second", "first", "last", "first"]


def test_the_last_tool_result_can_be_quoted():
    assert said({"answers": ["It is {tool_result}!"]}, ASKED, CALL, RESULT) == "It is 36.0!"
    assert said({"answers": ["It is {tool_result}!"]}) == "It is !"
    chat = {"input": [{"role": "tool", "content": "old"}, {"role": "tool", "content": [{"text": "new"}]}]}
    assert last_tool_result(chat) == "new"


def test_a_file_answers_by_what_the_prompt_holds(tmp_path: Path):
    path = tmp_path / "script.jsonl"
    path.write_text('{"match": "240", "answers": ["36", "yes"]}\n\n{"answers": ["dunno"]}\n')
    config = {"file": str(path)}
    assert said(config) == "36"
    assert (
        said(config, ASKED, {"role": "assistant", "content": "36"}, {"role": "user", "content": "240, sure?"}) == "yes"
    )
    assert said(config, {"role": "user", "content": "hello"}) == "dunno"
    path.write_text('{"match": "x", "answers": ["1"]}\n')
    with pytest.raises(ModelError, match=r"script\.jsonl"):
        answer(config)


def test_a_function_answers_from_the_request(tmp_path: Path):
    path = tmp_path / "script.py"
    path.write_text("def shout(request):\n    return request['input'][0]['content'].upper()\n")
    assert said({"function": f"{path}:shout"}) == "15% OF 240?"
    assert said({"function": lambda request: request["input"][0]["content"][:3]}) == "15%"
    assert problem({"function": f"{path}:nobody"}) == f"scripted_model: {path} has no function 'nobody'"


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({}, "one of answers, file and function"),
    ({"answer": ["x"]}, 'unknown key "answer"; did you mean "answers"?'),
    ({"answers": []}, "answers"),
    ({"function": "no.py:f"}, "no.py:f"),
    ({"answers": ["x"], "faults": [{}]}, '"faults.0.kind" is required'),
    ({"answers": ["x"], "faults": [{"kind": "reset", "time": 1}]}, 'faults.0.time"; did you mean "times"?'),
]


def test_a_mistake_in_the_config_or_a_bad_line_of_the_script_is_one_line_that_names_it(tmp_path: Path):
    for config, place in MISTAKES:
        assert place in problem(config)
        assert "\n" not in problem(config)
    path = tmp_path / "script.jsonl"
    for line in ("[]", "{", '{"match": "x"}', '{"match": 5, "answers": ["x"]}', "5"):
        path.write_text('{"answers": ["x"]}\n' + line + "\n")
        assert problem({"file": str(path)}).startswith(f"{path}:2: a line is ")


def hits(faults: list[dict[str, Any]], calls: int, **config: Any) -> str:
    """One letter a call: what went wrong, or a dot."""
    model = ScriptedModel(answers=["x"], faults=faults, **config)

    async def one() -> str:
        try:
            await model.respond({"input": "hi"})
        except ModelError as error:
            return str(error.status or str(error).rpartition(" ")[2])[0]
        return "."

    async def main() -> str:
        return "".join([await one() for _ in range(calls)])

    return asyncio.run(main())


def test_faults_hit_the_first_calls_every_nth_call_or_all_of_them():
    assert hits([{"kind": "status", "status": 503, "times": 2}], 5) == "55..."
    assert hits([{"kind": "reset", "every": 3}], 7) == "..r..r."
    assert hits([{"kind": "garbage"}], 3) == "ggg"
    assert hits([{"kind": "status", "status": 429, "times": 1}, {"kind": "half_body", "every": 2}], 5) == "4h.h."


def test_a_share_of_calls_is_the_same_in_every_run_whatever_the_jitter():
    faults = [{"kind": "status", "status": 500, "rate": 0.3}]
    first = hits(faults, 200)
    assert hits(faults, 200) == first
    assert hits(faults, 200, jitter_s=1e-9) == first
    assert hits(faults, 200, seed=1) != first
    assert 40 <= first.count("5") <= 80
