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
    messages = {"input": [{"role": "user", "content": "hi"}], "temperature": 0.5}
    assert parse_task(line(responses_create_params=messages))["responses_create_params"] == messages


def test_an_empty_list_is_a_task_for_whoever_brings_the_prompt():
    assert parse_task(line(responses_create_params={"input": []}))["responses_create_params"] == {"input": []}


SEE = "(see docs/rollouts.md#task)"
LIST = '"responses_create_params.input" must be a text that is not empty, or a list of messages'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"[1]", f"a task is a JSON object, not a list {SEE}"),
        (b"null", f"a task is a JSON object, not null {SEE}"),
        (b'"x"', f"a task is a JSON object, not a text {SEE}"),
        (b"true", f"a task is a JSON object, not true or false {SEE}"),
        (b"1.5", f"a task is a JSON object, not a number {SEE}"),
        (b"{}", f'no "responses_create_params" {SEE}'),
        (line(responses_create_params="x"), f'"responses_create_params" must be an object, not a text {SEE}'),
        (line(responses_create_params={}), f'no "responses_create_params.input" {SEE}'),
        (line(responses_create_params={"input": ""}), f"{LIST} {SEE}"),
        (line(responses_create_params={"input": 5}), f"{LIST} {SEE}"),
        (
            line(responses_create_params={"input": ["hi"]}),
            f'a message of "responses_create_params.input" is not an object {SEE}',
        ),
        *(
            (
                line(responses_create_params={"input": [{"role": "user", "content": "hi"}, {"role": "user", **empty}]}),
                f'"responses_create_params.input[1]" is a message without "content" {SEE}',
            )
            for empty in ({}, {"content": None}, {"type": "message"})
        ),
    ],
)
def test_what_is_no_task_is_said_in_one_line(text: bytes, problem: str):
    with pytest.raises(ValueError) as caught:
        parse_task(text)
    assert str(caught.value) == problem


@pytest.mark.parametrize("text", [b"{", b'{"a": NaN}', b'{"a": "\x00"}', b"\xff", b"[" * 100_000])
def test_what_is_not_json_is_said_in_one_line(text: bytes):
    with pytest.raises(ValueError, match=r"^not JSON: "):
        parse_task(text)


@pytest.mark.parametrize("depth", [260, 1000])
def test_a_row_nested_deeper_than_can_be_written_again_is_no_task(depth: int):
    deep = b'{"id":"d","responses_create_params":{"input":"hi"},"x":' + b"[" * depth + b"]" * depth + b"}"
    with pytest.raises(ValueError, match="nested deeper than 250 levels"):
        parse_task(deep)


def test_a_wide_row_is_a_task_however_many_brackets_it_has():
    assert len(parse_task(line(x=[[]] * 1000))["x"]) == 1000


@pytest.mark.parametrize(
    ("own", "name"), [({"id": "a/b#2"}, "a/b#2"), ({"id": 7}, "7"), ({"task_id": "t"}, "t"), ({"id": 0}, "0")]
)
def test_a_row_with_a_name_of_its_own_is_called_that(own: dict[str, Any], name: str):
    assert task_id({**GOOD, **own}) == name


def test_id_goes_before_task_id():
    assert task_id({**GOOD, "task_id": "t", "id": "i"}) == "i"


@pytest.mark.parametrize("own", [{"id": ""}, {"id": None}, {"id": True}, {"id": 1.5}, {"id": ["x"]}, {}])
def test_a_row_without_a_usable_name_is_called_by_its_content(own: dict[str, Any]):
    name = task_id({**GOOD, **own})
    assert (len(name), set(name) <= set("0123456789abcdef")) == (16, True)


def test_a_name_by_content_does_not_depend_on_the_order_of_keys_but_on_everything_else():
    row = {"responses_create_params": {"input": "hi", "top_p": 1}, "a": [1, 2]}
    turned = {"a": [1, 2], "responses_create_params": {"top_p": 1, "input": "hi"}}
    assert task_id(row) == task_id(turned)
    assert task_id({**row, "a": [2, 1]}) != task_id(row)


@pytest.mark.parametrize(
    ("row", "agent"),
    [
        ({"agent_ref": {"name": "a"}}, "a"),
        ({"agent_ref": {"name": 5}}, None),
        ({"agent_ref": "a"}, None),
        ({}, None),
    ],
)
def test_the_agent_a_row_asks_for(row: dict[str, Any], agent: str | None):
    assert agent_of(row) == agent
