"""The examiner's own parts: how answers are played, what is fuzzed, what is reported."""

from __future__ import annotations

import asyncio
import random
from itertools import islice
from typing import Any

import pytest

import velodrome
from velodrome import Environment, tool
from velodrome.errors import InputError
from velodrome.examiner.examination import CallCost, call_costs
from velodrome.examiner.playing import AnswerCase, PlayedAnswer, Player, answer_messages
from velodrome.examiner.tool_fuzz import fuzz_arguments
from velodrome.timing import spans

Json = dict[str, Any]


class Echo(Environment):
    """Pays for the word that the task wants, said after a look at the tool."""

    @tool
    async def look(self, place: str) -> str:
        """Look somewhere."""
        return f"{{{place}}}"

    async def verify(self, task: Json, response: Any) -> Json:
        looked = any(call.name == "look" for call in response.tool_calls)
        right = response.text == task["word"]
        return {"reward": float(right and looked), "calls": len(response.tool_calls), "wall_s": random.random()}

    def reference_answer(self, task: Json) -> Any:
        return [{"tool_calls": [{"name": "look", "arguments": {"place": "here"}}], "text": "hm"}, task["word"]]

    def wrong_answers(self, task: Json) -> Json:
        return {"did not look": task["word"], "braces": "{tool_result}"}

    def cheats(self, task: Json) -> Json:
        return {"says that it looked": f"I looked: {task['word']}"}


TASKS = [{"id": f"t{n}", "responses_create_params": {"input": f"say w{n}"}, "word": f"w{n}"} for n in range(3)]


def test_an_environment_that_keeps_the_rules_passes_all_of_them():
    report = asyncio.run(velodrome.examine(Echo, TASKS, strict=True))
    assert {result.status for result in report.rules.values()} == {"passed"}
    assert [cost.name for cost in report.costs] == ["verify", "tool:look"]
    assert str(report).startswith("Echo: passed (3 tasks, ")


def test_an_answer_is_played_move_by_move_and_without_a_tool_call_its_braces_are_literal():
    case = AnswerCase(TASKS[0], "t0", "wrong", "braces", ["{tool_result}"])
    play = asyncio.run(Player(Echo()).play(case))
    assert play.outcome == {"reward": 0.0, "calls": 0}
    texts = [move["content"] for move in islice(answer_messages(["a", "b"]), 4)]
    assert texts == ["a", "b", "b", "b"]
    with pytest.raises(InputError, match="an answer is a text, or a list"):
        list(islice(answer_messages([7]), 1))


def test_a_cheat_that_says_what_a_tool_gave_away_is_found():
    class Leaks(Echo):
        @tool
        async def look(self, place: str) -> str:
            """Look somewhere."""
            return "w0"

        def cheats(self, task: Json) -> Json:
            return {"asks": [{"tool_calls": [{"name": "look", "arguments": {"place": "answers"}}]}, "{tool_result}"]}

    report = asyncio.run(velodrome.examine(Leaks, TASKS[:1], only=["cheats"]))
    assert report.failed == ["cheats"]


def test_what_cannot_be_checked_is_said_and_is_a_failure_only_if_strict():
    class Bare(Environment):
        async def verify(self, task: Json, response: Any) -> float:
            return float(response.text == "yes!")

    loose = asyncio.run(velodrome.examine(Bare(), TASKS))
    assert loose.passed
    assert loose.unchecked == ["references", "wrong-answers", "cheats"]
    assert "not checked: references, wrong-answers, cheats" in str(loose)
    strict = asyncio.run(velodrome.examine(Bare(), TASKS, strict=True))
    assert strict.failed == loose.unchecked


def test_without_tasks_nothing_passes():
    nothing = asyncio.run(velodrome.examine(Echo(), None))
    assert nothing.failed == ["data"]
    assert [name for name, result in nothing.rules.items() if result.status == "passed"] == []
    assert {result.unchecked for name, result in nothing.rules.items() if name != "data"} == {"there are no tasks"}


def test_fuzzed_arguments_follow_the_schema_now_and_then_and_are_the_same_for_the_same_seed():
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "of": {"$ref": "#/$defs/kind"}, "l": {"type": "array"}},
        "required": ["n", "of"],
        "$defs": {"kind": {"enum": ["x", "y"]}},
    }
    made, again = ([fuzz_arguments(schema, random.Random(n), n) for n in range(48)] for _ in range(2))
    assert made == again
    assert any(isinstance(each, dict) and isinstance(each.get("n"), int) and each.get("of") == "x" for each in made)
    assert any(not isinstance(each, dict) for each in made)
    assert any(isinstance(each, dict) and "n" not in each for each in made)


@pytest.mark.parametrize(
    ("tasks", "seen"),
    [
        ([TASKS[0], TASKS[0]], "2 tasks have this id"),
        ([{"id": "x", "responses_create_params": {}}], 'no "responses_create_params.input"'),
        ([7], "a task is a JSON object"),
    ],
)
def test_data_that_is_not_sound_is_found_by_its_rule(tasks: list[Any], seen: str):
    report = asyncio.run(velodrome.examine(Echo, tasks, only=["data"]))
    assert report.failed == ["data"]
    assert seen in report.rules["data"].findings[0].seen


def test_a_task_without_an_id_and_an_answer_in_the_prompt_are_warnings():
    class Parrot(Echo):
        def reference_answer(self, task: Json) -> str:
            return str(task["word"])

    task = {"responses_create_params": {"input": "say nonsense, please"}, "word": "nonsense"}
    report = asyncio.run(velodrome.examine(Parrot, [task], only=["data"]))
    assert (report.passed, report.rules["data"].status) == (True, "warning")
    assert [finding.seen[:8] for finding in report.rules["data"].findings] == ['no "id";', "the prom"]


def test_the_cost_is_the_middle_and_the_longest_of_the_calls():
    def played(*lengths_s: float) -> PlayedAnswer:
        with spans.root("play", lambda: 0.0) as tree:
            for length in lengths_s:
                spans.record("verify", 1.0, 1.0 + length)
            spans.record("tool:unknown", 0.0, 9.0)
        return PlayedAnswer(AnswerCase({}, "t", "reference", "", ""), {}, None, tree)

    plays = [played(0.25, 0.5), played(2.0)]
    assert list(call_costs(plays, ["verify", "tool:look"])) == [CallCost("verify", 3, 500.0, 2000.0)]


def test_an_environment_whose_rollouts_all_fail_passes_no_rule_that_compares_scores():
    class Fails(Echo):
        async def verify(self, task: Json, response: Any) -> Json:
            raise KeyError("nothing works")

    report = asyncio.run(velodrome.examine(Fails, TASKS))
    assert report.failed == ["references", "wrong-answers", "garbage", "cheats"]
    assert report.unchecked == ["deterministic", "order-and-load", "sessions", "served"]
    assert "KeyError: 'nothing works'" in report.rules["served"].unchecked
    assert str(report).count("KeyError: 'nothing works'") == 5  # of dozens of findings: one per rule
    assert " more like it)" in str(report)
    assert "not checked: as deterministic" in str(report)
