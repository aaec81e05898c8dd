"""What makes a line a task, and what it is called."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from velodrome.records.task import agent_of, parse_task, task_id

GOOD = {"responses_create_params": {"input": "hi"}, "expected_answer": "36"}


def line(**fields: Any) -> bytes:
    return orjson.dumps({**GOOD, **fields})


def test_a_task_is_returned_as_it_stands():
    assert parse_task(line()) == GOOD
    assert parse_task(asking([]))["responses_create_params"] == {"input": []}  # somebody else brings the prompt


def asking(value: Any) -> bytes:
    return line(responses_create_params={"input": value})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"[1]", "a task is a JSON object, not a list"),
        (b"{}", 'no "responses_create_params"'),
        (line(responses_create_params="x"), '"responses_create_params" must be an object, not a text'),
        (asking(5), '"responses_create_params.input" must be a text that is not empty'),
        (asking(["hi"]), 'a message of "responses_create_params.input" is not an object'),
        (asking([{"role": "user", "content": "hi"}, {"role": "user"}]), '"responses_create_params.input[1]"'),
    ],
)
def test_what_is_no_task_is_said_in_one_line(text: bytes, problem: str):
    with pytest.raises(ValueError) as caught:
        parse_task(text)
    assert str(caught.value).startswith(problem)
    assert str(caught.value).endswith("(see docs/rollouts.md#task)")


@pytest.mark.parametrize("text", [b"{", b'{"a": NaN}', b"\xff", b"[" * 100_000])
def test_what_is_not_json_is_said_in_one_line(text: bytes):
    with pytest.raises(ValueError, match=r"^not JSON: "):
        parse_task(text)


def test_a_row_nested_deeper_than_can_be_written_again_is_no_task_and_a_wide_one_is():
    deep = b'{"id":"d","responses_create_params":{"input":"hi"},"x":' + b"[" * 260 + b"]" * 260 + b"}"
    with pytest.raises(ValueError, match="nested deeper than 250 levels"):
        parse_task(deep)
    assert len(parse_task(line(x=[[]] * 1000))["x"]) == 1000


@pytest.mark.parametrize(
    ("own", "name"),
    [({"id": "a/b#2"}, "a/b#2"), ({"task_id": "t"}, "t"), ({"id": 0}, "0"), ({"task_id": "t", "id": "i"}, "i")],
)
def test_a_row_with_a_name_of_its_own_is_called_that_and_id_goes_before_task_id(own: dict[str, Any], name: str):
    assert task_id({**GOOD, **own}) == name


@pytest.mark.parametrize("own", [{"id": ""}, {"id": None}, {"id": True}, {"id": 1.5}, {}])
def test_a_row_without_a_usable_name_is_called_by_its_content(own: dict[str, Any]):
    name = task_id({**GOOD, **own})
    assert (len(name), set(name) <= set("0123456789abcdef")) == (16, True)


def test_a_name_by_content_depends_on_everything_but_the_order_of_keys_and_the_agent_is_what_the_row_names():
    row = {"responses_create_params": {"input": "hi", "top_p": 1}, "a": [1, 2]}
    turned = {"a": [1, 2], "responses_create_params": {"top_p": 1, "input": "hi"}}
    assert task_id(row) == task_id(turned)
    assert task_id({**row, "a": [2, 1]}) != task_id(row)
    rows = [{"agent_ref": {"name": "a"}}, {"agent_ref": {"name": 5}}, {"agent_ref": "a"}]
    assert [agent_of(row) for row in rows] == ["a", None, None]
