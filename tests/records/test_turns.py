"""Turns: an answer is parsed once and kept as it came; a conversation of turns is one Response."""

from __future__ import annotations

from typing import Any

import pytest

from velodrome.errors import ModelError
from velodrome.records.turns import Conversation, FunctionCall, parse, result_turn, spoken_turn

Json = dict[str, Any]

CALL = {"type": "function_call", "id": "f", "call_id": "c1", "name": "add", "arguments": '{"a": 1}', "extra": [1]}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is 2."}]}
FIRST: Json = {"id": "r1", "model": "m", "output": [CALL], "usage": {"input_tokens": 3, "output_tokens": 1}}
LAST: Json = {"id": "r2", "model": "m", "output": [SAID], "usage": {"input_tokens": 5, "output_tokens": 2}}


def test_a_turn_has_the_very_items_of_its_answer_and_the_calls_in_them():
    turn = parse(FIRST)
    assert turn.raw is FIRST["output"]
    assert turn.calls == [FunctionCall("c1", "add", '{"a": 1}')]
    assert turn.response({}) is FIRST
    assert (parse(LAST).text, parse(LAST).calls, parse({**LAST, "status": "incomplete"}).is_cut) == (
        "It is 2.",
        [],
        True,
    )


@pytest.mark.parametrize(
    ("answer", "cost"),
    [
        ("text", 0),
        ({"output": [], "usage": {"total_tokens": 7}}, 7),
        ({"output": [{"type": "function_call_output"}], "usage": {"input_tokens": 2, "output_tokens": 3}}, 5),
        ({**LAST, "usage": {"total_tokens": -1}}, 0),
    ],
)
def test_an_answer_that_no_model_can_have_given_is_an_error_that_says_what_it_cost(answer: Any, cost: int):
    with pytest.raises(ModelError) as caught:
        parse(answer)
    assert caught.value.tokens == cost


def test_a_conversation_is_one_response_with_the_id_of_the_first_answer_and_the_usage_of_all():
    talk = Conversation()
    talk.begin({"input": "1 + 1?", "temperature": 0.5})
    first = parse(FIRST)
    talk.add([first])
    talk.add([result_turn(first.calls[0], "2"), spoken_turn({"role": "user", "content": "Well?"})])
    request = talk.next_request()
    assert [item.get("role", item.get("type")) for item in request["input"]] == [
        "user",
        "function_call",
        "function_call_output",
        "user",
    ]
    assert request["temperature"] == 0.5
    talk.add([parse(LAST)])
    whole = talk.response()
    assert (whole["id"], whole["status"]) == ("r1", "completed")
    assert whole["output"][-1]["content"][0]["text"] == "It is 2."
    counts = {"input_tokens": 8, "output_tokens": 3, "total_tokens": 11}
    assert {name: whole["usage"][name] for name in counts} == counts
    stopped = talk.response("max_steps")
    assert (stopped["status"], stopped["metadata"]) == ("incomplete", {"stop": "max_steps"})
