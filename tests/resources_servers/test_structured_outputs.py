"""One JSON value, strictly; valid by its schema, with the expected content, and never for ever."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from velodrome.errors import InputError, ModelError, TaskError, VerifyError
from velodrome.resources_servers.structured_outputs.app import StructuredOutputs
from velodrome.resources_servers.structured_outputs.structured_content import same_json
from velodrome.resources_servers.structured_outputs.structured_schema import is_bounded_schema, schema_text
from velodrome.resources_servers.structured_outputs.structured_value import NotOneValue, json_text, json_value
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.scripted_model.app import ScriptedModel

Says = Callable[..., dict[str, Any]]
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


def score(says: Says, text: str, task: dict[str, Any] = CITY, **settings: Any) -> dict[str, Any]:
    environment = StructuredOutputs(**settings)

    async def main() -> dict[str, Any]:
        try:
            return await environment.score("1", task, says(text))
        finally:
            await environment.aclose()

    return asyncio.run(main())


@pytest.mark.parametrize(
    "text",
    [RIGHT, f"\n {RIGHT} \n", f"```json\n{RIGHT}\n```", f"```\n{RIGHT}\n```", f"<think>hm</think>{RIGHT}"],
)
def test_bare_or_fenced_the_value_earns_the_reward(says: Says, text: str) -> None:
    assert score(says, text) == {"reward": 1.0, "valid": 1.0, "content": 1.0, "problems": []}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        (f"Here: {RIGHT}", "not JSON"),
        (f"{RIGHT} {RIGHT}", "Extra data"),
        (f"```json\n{RIGHT}\n```\n```json\n{RIGHT}\n```", "exactly one fenced block"),
        (f"Here:\n```json\n{RIGHT}\n```", "text around"),
        (f"```python\n{RIGHT}\n```", "exactly one fenced block"),
        ('{"city": "Oslo", "city": "Rome"}', "a key twice"),
        ('{"city": {"a": 1, "a": 1}}', "a key twice"),
        ("NaN", "NaN is not JSON"),
        ("-Infinity", "-Infinity is not JSON"),
        ("1e999", "not finite"),
        ("9" * 5000, "too many digits"),
        ('"\\ud800"', "surrogate"),
        ("[" * 65 + "]" * 65, "64 deep"),
        ("[" * 50_000, "64 deep"),
        ('"' + "x" * 100_000 + '"', "longer than"),
        (RIGHT.replace('"', "'"), "not JSON"),
    ],
)
def test_what_is_not_exactly_one_value_is_refused(text: str, reason: str) -> None:
    with pytest.raises(NotOneValue, match=reason):
        json_value(json_text(text, around=False), 100_000)


def test_brackets_in_strings_are_not_depth() -> None:
    assert json_value(json.dumps("[" * 500 + '\\"{'), 100_000) == "[" * 500 + '\\"{'


def test_text_around_the_block_is_a_setting(says: Says) -> None:
    text = f"Here it is:\n```json\n{RIGHT}\n```\nAnything else?"
    assert (score(says, text)["reward"], score(says, text, text_around=True)["reward"]) == (0.0, 1.0)


def test_a_value_must_be_valid_and_have_the_content(says: Says) -> None:
    assert score(says, '{"city": 5}')["problems"] == ["$.city: 5 is not of type 'string'"]
    assert score(says, '{"city": "Oslo", "mayor": 1}')["valid"] == 0.0
    empty = score(says, '{"city": ""}')
    assert (empty["reward"], empty["valid"], empty["content"]) == (0.0, 1.0, 0.0)
    half = '{"city": "Oslo", "people": 1}'
    assert (score(says, half)["reward"], score(says, half, partial=True)["reward"]) == (0.0, 0.5)
    assert score(says, '{"city": "Oslo", "people": -1}', partial=True)["reward"] == 0.0
    assert score(says, '{"city": "Rome"}', {"schema": CITY["schema"]})["reward"] == 1.0
    assert score(says, RIGHT, {"schema_str": json.dumps(CITY["schema"])})["reward"] == 1.0


def test_formats_count_if_the_settings_say_so(says: Says) -> None:
    task = {"schema": {"type": "string", "format": "date"}}
    rewards = [
        score(says, '"30 February"', task, check_formats=on, executor="inline")["reward"] for on in (False, True)
    ]
    assert rewards == [1.0, 0.0]


@pytest.mark.parametrize(
    ("value", "wanted", "met"),
    [
        ({"a": "the Moon!"}, {"/a": {"$text": "Moon"}}, True),
        ({"a": "the Moon"}, {"/a": "Moon"}, False),
        ({"a": "near the moon base"}, {"/a": {"$contains": "Moon"}}, True),
        ({"a": "moonshine"}, {"/a": {"$contains": "Moon"}}, False),
        ({"a": 2}, {"/a": {"$one_of": [1, 2.0]}}, True),
        ({"a": [3, 1, 1]}, {"/a": {"$any_order": [1, 3, 1]}}, True),
        ({"a": [3, 1]}, {"/a": {"$any_order": [1, 3, 1]}}, False),
        ({"a/b": [{"~": 7}]}, {"/a~1b/0/~0": 7}, True),
        ({"a": [1]}, {"/a/1": 1}, False),
        ({"a": {"$text": 1, "b": 2}}, {"/a": {"$text": 1, "b": 2}}, True),
        ([1], {"": [1.0]}, True),
    ],
)
def test_content_is_checked_by_pointers(says: Says, value: Any, wanted: dict[str, Any], met: bool) -> None:
    assert bool(score(says, json.dumps(value), {"schema": {}, "expected": wanted})["reward"]) is met


def test_a_number_that_no_float_holds_is_the_models_mistake(says: Says) -> None:
    task = {"schema": {"type": "number", "multipleOf": 0.01}}
    assert score(says, "1" + "0" * 400, task)["problems"] == ["$: a number is too large"]
    assert score(says, "12.5", task)["reward"] == 1.0


def test_a_text_without_words_is_compared_as_it_is(says: Says) -> None:
    task = {"schema": {"type": "string"}, "expected": {"": {"$text": "!?"}}}
    assert [score(says, text, task)["reward"] for text in ('"?"', '"…"', '"!? "')] == [0.0, 0.0, 1.0]


def test_json_equality_knows_that_true_is_not_one() -> None:
    assert same_json({"a": [1, None]}, {"a": [1.0, None]})
    assert not same_json(True, 1)
    assert not same_json("1", 1)
    assert not same_json([1], [1, 1])


BACKTRACKS = {"schema": {"type": "string", "pattern": "^(a+)+$"}}


def test_a_pattern_that_never_ends_fails_its_own_rollout_and_nothing_else(says: Says) -> None:
    environment = StructuredOutputs(check_timeout_s=1.0, worker_processes=1)

    async def main() -> list[Any]:
        try:
            hangs = environment.score("1", BACKTRACKS, says(json.dumps("a" * 64 + "!")))
            quick = environment.score("1", CITY, says(RIGHT))  # on the loop, which is free
            first = await asyncio.gather(hangs, quick, return_exceptions=True)
            return [*first, await environment.score("1", BACKTRACKS, says('"aaa"'))]
        finally:
            await environment.aclose()

    hung, beside, after = asyncio.run(main())
    assert isinstance(hung, VerifyError)
    assert "check_timeout_s" in str(hung)
    assert (beside["reward"], after["reward"]) == (1.0, 1.0)


@pytest.mark.parametrize(
    "schema",
    [{"patternProperties": {"^a": {}}}, {"items": {"pattern": "x"}}, {"$ref": "#/$defs/a", "$defs": {"a": {}}}],
)
def test_what_could_take_long_is_checked_elsewhere(schema: dict[str, Any]) -> None:
    assert not is_bounded_schema(schema_text({"schema": schema}))
    assert is_bounded_schema(schema_text(CITY))


@pytest.mark.parametrize(
    ("task", "field"),
    [
        ({}, "schema"),
        ({"schema": "x"}, "schema"),
        ({"schema_str": "{"}, "schema_str"),
        ({"schema": {"type": "strange"}}, "schema"),
        ({"schema": {"$schema": "https://example.org/mine"}}, "schema"),
        ({"schema": {"$ref": "https://example.org/schema.json"}}, "nothing is fetched"),
        ({"schema": {"$ref": "file:///etc/passwd"}}, "nothing is fetched"),
        ({"schema": {"$ref": "#/$defs/missing"}}, "leads nowhere"),
        ({"schema": {"pattern": "("}}, "pattern"),
        ({"schema": {"$comment": "x" * 70_000}}, "70015 bytes"),
        ({"schema": {"$ref": "#"}}, "without end"),
        ({"schema": {}, "expected": {"city": 1}}, "JSON pointer"),
        ({"schema": {}, "expected": {"/city": {"$near": 1}}}, "not one of"),
        ({"schema": {}, "expected": []}, "expected"),
    ],
)
def test_a_task_that_cannot_be_scored_says_why(says: Says, task: dict[str, Any], field: str) -> None:
    with pytest.raises(TaskError, match=field):
        score(says, "1", task)


def test_a_bad_schema_is_reported_before_the_model_is_asked() -> None:
    model = ScriptedModel(answers=["1"])
    agent = SimpleAgent(model=model, environment=StructuredOutputs())
    with pytest.raises(TaskError, match="not a JSON Schema"):
        asyncio.run(agent.run({"responses_create_params": {"input": "?"}, "schema": {"type": "strange"}}))
    assert model.calls == 0
    with pytest.raises(ModelError):
        asyncio.run(
            SimpleAgent(
                model=ScriptedModel(answers=["x"], faults=[{"kind": "status", "status": 500}]),
                environment=StructuredOutputs(),
            ).run({"responses_create_params": {"input": "?"}, "schema": {}})
        )


def test_a_missing_library_is_one_line_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)  # as if it were absent
    with pytest.raises(InputError, match=r'pip install "velodrome\[environments\]"'):
        StructuredOutputs()


def test_the_examples_withstand_their_examination(examined: Callable[..., dict[str, Any]]) -> None:
    rewards = examined(StructuredOutputs, "structured_outputs")
    assert len(rewards["references"]) >= 12
    assert {kind: reward for kind, reward in rewards["references"].items() if reward != 1.0} == {}
    for group in ("wrong", "cheats", "hostile"):
        assert {kind: reward for kind, reward in rewards[group].items() if reward} == {}
    assert len(rewards["cheats"]) >= 12 * 16
