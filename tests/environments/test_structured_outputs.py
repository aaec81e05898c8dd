"""One JSON value, strictly; valid by its schema, with the expected content, and never for ever."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.resources_servers.playing import closing, says, score
from velodrome.environments.structured_outputs.app import StructuredOutputs
from velodrome.environments.structured_outputs.schema import (
    NotOneValue,
    is_bounded_schema,
    json_text,
    json_value,
    schema_text,
)
from velodrome.errors import VerifyError

CITY = {
    "schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "people": {"type": "integer", "minimum": 0}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "expected": {"/city": "Oslo", "/people": 709037},
}
RIGHT = '{"city": "Oslo", "people": 709037}'


def scored(text: str, task: dict[str, Any] = CITY, **settings: Any) -> dict[str, Any]:
    return score(StructuredOutputs(**settings), task, text)


@pytest.mark.parametrize(
    "text",
    [RIGHT, f"\n {RIGHT} \n", f"```json\n{RIGHT}\n```", f"```\n{RIGHT}\n```", f"<think>hm</think>{RIGHT}"],
)
def test_bare_or_fenced_the_value_earns_the_reward(text: str):
    assert scored(text) == {"reward": 1.0, "valid": 1.0, "content": 1.0, "problems": []}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"Here: {RIGHT}", "not JSON"),
        (f"{RIGHT} {RIGHT}", "Extra data"),
        (f"```json\n{RIGHT}\n```\n```json\n{RIGHT}\n```", "exactly one fenced block"),
        (f"Here:\n```json\n{RIGHT}\n```", "text around"),
        ('{"city": "Oslo", "city": "Rome"}', "a key twice"),
        ("NaN", "NaN is not JSON"),
        ("9" * 5000, "too many digits"),
        ('"\\ud800"', "surrogate"),
        ("[" * 65 + "]" * 65, "64 deep"),
        ('"' + "x" * 100_000 + '"', "longer than"),
    ],
)
def test_what_is_not_exactly_one_value_is_refused(text: str, reason: str):
    with pytest.raises(NotOneValue, match=reason):
        json_value(json_text(text, around=False), 100_000)


def test_a_value_must_be_valid_and_have_the_content():
    assert scored('{"city": 5}')["problems"] == ["$.city: 5 is not of type 'string'"]
    assert scored('{"city": "Oslo", "mayor": 1}')["valid"] == 0.0
    empty = scored('{"city": ""}')
    assert (empty["reward"], empty["valid"], empty["content"]) == (0.0, 1.0, 0.0)
    half = '{"city": "Oslo", "people": 1}'
    assert (scored(half)["reward"], scored(half, partial=True)["reward"]) == (0.0, 0.5)
    assert scored('{"city": "Oslo", "people": -1}', partial=True)["reward"] == 0.0
    assert scored('{"city": "Rome"}', {"schema": CITY["schema"]})["reward"] == 1.0
    assert scored(RIGHT, {"schema_str": json.dumps(CITY["schema"])})["reward"] == 1.0


def test_formats_and_text_around_the_block_are_settings():
    task, text = {"schema": {"type": "string", "format": "date"}}, f"Here it is:\n```json\n{RIGHT}\n```\nAnything else?"
    for on in (False, True):
        assert scored('"30 February"', task, check_formats=on, executor="inline")["reward"] == float(not on)
        assert scored(text, text_around=on)["reward"] == float(on)


@pytest.mark.parametrize(
    ("value", "wanted", "met"),
    [
        ({"a": "the Moon!"}, {"/a": {"$text": "Moon"}}, True),
        ({"a": "[" * 500 + '\\"{'}, {"/a": "[" * 500 + '\\"{'}, True),  # brackets in strings are not depth
        ({"a": "near the moon base"}, {"/a": {"$contains": "Moon"}}, True),
        ({"a": "moonshine"}, {"/a": {"$contains": "Moon"}}, False),
        ({"a": 2}, {"/a": {"$one_of": [1, 2.0]}}, True),
        ({"a": [1, True]}, {"/a": [True, 1]}, False),
        ({"a": [3, 1]}, {"/a": {"$any_order": [1, 3, 1]}}, False),
        ({"a/b": [{"~": 7}]}, {"/a~1b/0/~0": 7}, True),
        ({"a": [1]}, {"/a/1": 1}, False),
        ({"a": {"$text": 1, "b": 2}}, {"/a": {"$text": 1, "b": 2}}, True),
        ("!? ", {"": {"$text": "!?"}}, True),
    ],
)
def test_content_is_checked_by_pointers(value: Any, wanted: dict[str, Any], met: bool):
    assert bool(scored(json.dumps(value), {"schema": {}, "expected": wanted})["reward"]) is met


def test_a_number_that_no_float_holds_is_the_models_mistake():
    task = {"schema": {"type": "number", "multipleOf": 0.01}}
    assert scored("1" + "0" * 400, task)["problems"] == ["$: a number is too large"]
    assert scored("12.5", task)["reward"] == 1.0


BACKTRACKS = {"schema": {"type": "string", "pattern": "^(a+)+$"}}


def test_a_pattern_that_never_ends_fails_its_own_rollout_and_nothing_else():
    environment = StructuredOutputs(check_timeout_s=1.0, worker_processes=1)

    async def use() -> list[Any]:
        hangs = environment.score("1", BACKTRACKS, says(json.dumps("a" * 64 + "!")))
        quick = environment.score("1", CITY, says(RIGHT))  # on the loop, which is free
        first = await asyncio.gather(hangs, quick, return_exceptions=True)
        return [*first, await environment.score("1", BACKTRACKS, says('"aaa"'))]

    hung, beside, after = closing(environment, use())
    assert isinstance(hung, VerifyError)
    assert "check_timeout_s" in str(hung)
    assert (beside["reward"], after["reward"]) == (1.0, 1.0)
    elsewhere = [
        {"patternProperties": {"^a": {}}},
        {"items": {"pattern": "x"}},
        {"$ref": "#/$defs/a", "$defs": {"a": {}}},
    ]
    assert [is_bounded_schema(schema_text({"schema": each})) for each in elsewhere] == [False] * 3
