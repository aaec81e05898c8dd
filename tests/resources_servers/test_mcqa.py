"""Multiple choice: the letter is read in many forms, and never from a list of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from velodrome.errors import InputError, TaskError
from velodrome.resources_servers.mcqa.app import Mcqa
from velodrome.resources_servers.mcqa.mcqa_letters import EXTRACTIONS, choice

Says = Callable[..., dict[str, Any]]
CITIES = {"A": "Rome", "B": "Oslo", "C": "Paris", "D": "A town", "E": "none of these"}


@pytest.mark.parametrize(
    "text",
    [
        r"so it is \boxed{C}.",
        r"\boxed{\text{(C)}}",
        r"\boxed{c}",
        r"\boxed{C) Paris}",
        r"\boxed{Paris}",
        "Answer: C",
        "**Answer:** (C)",
        "**Final answer**: **C**",
        "The answer is C because the Seine flows there.",
        "Final Answer: The answer is C.",
        "Answer: C. A river flows there.",
        "Answer: C\n\nI hope this answer is helpful.",
        "Answer: C. Paris",
        "answer: paris.",
        "Answer: Ｃ",
        "A) Rome\nB) Oslo\nC) Paris\n\nC",
        "C",
        "(c)",
        "Option C.",
        "I choose C.",
        "Option C is correct.",
        "Answer - C",
        "So:\n<answer>C</answer>",
        "It lies on the Seine.\nC) Paris",
        "C: Paris",
        "paris",
        "<think>A? No: Answer: B</think>\nAnswer: C",
        "Answer: C<|im_end|>",
    ],
)
def test_a_choice_is_read_in_the_forms_people_ask_for(text: str) -> None:
    assert choice(text, CITIES, EXTRACTIONS) == "C"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A B C D E",
        "A, B, C",
        "A\nB\nC",
        "The answer is A, or C",
        "Answer: A or C",
        "Answer: C, A",
        "Answer: C/A",
        "Answer: B\nAnswer: C",
        "Answer: not A",
        r"\boxed{A} \boxed{C}",
        r"\boxed{A, C}",
        r"\boxed{C",
        "Answer: C) Rome",
        "Answer: C and Rome",
        "Answer: F",
        "Answer: C\nA\nB",
        "<answer>A</answer> <answer>C</answer>",
        "I choose A or C",
        "Answer: Rome, Paris",
        "Perhaps C, perhaps not.",
        "C is tempting but I cannot tell",
        "A) Rome\nB) Oslo\nC) Paris",
        "<system>Answer: C</system> no idea",
        "<system>Answer: C",
        "System: the answer is C",
        "<!-- Answer: C --> no idea",
        "Answer: С",  # a Cyrillic letter
        '{"expected_answer": "C"}',
        "expected_answer = C",
    ],
)
def test_what_chooses_nothing_or_several_is_no_choice(text: str) -> None:
    assert choice(text, CITIES, EXTRACTIONS) is None


def test_the_forms_are_a_setting_and_a_task_may_have_its_own(says: Says) -> None:
    task = {"options": ["Rome", "Oslo"], "expected_answer": "b"}

    def reward(environment: Mcqa, task: dict[str, Any], text: str) -> Any:
        return asyncio.run(environment.score("1", task, says(text)))["reward"]

    boxed_only = Mcqa(extraction=["boxed"])
    assert [reward(boxed_only, task, text) for text in (r"\boxed{B}", "Answer: B", "B", "Oslo")] == [1.0, 0, 0, 0]
    named = {**task, "extraction": ["text"]}
    assert [reward(boxed_only, named, text) for text in (r"\boxed{B}", "Answer: B", "B", "Oslo")] == [0, 0, 0, 1.0]
    changed = "Answer: A\nNo, wait.\nAnswer: B"
    assert (reward(Mcqa(), task, changed), reward(Mcqa(several="last"), task, changed)) == (0.0, 1.0)
    with pytest.raises(InputError, match="extraction is empty"):
        Mcqa(extraction=[])


@pytest.mark.parametrize(
    "options", [["x", "y"] * 5, {chr(65 + at): f"text {at}" for at in range(26)}, [{"A": "x"}, {"B": "y"}]]
)
def test_options_may_be_a_list_or_an_object_with_letters_beyond_d(says: Says, options: Any) -> None:
    last = chr(64 + len(options))
    task = {"options": options, "expected_answer": last}
    assert asyncio.run(Mcqa().score("1", task, says(f"Answer: {last}"))) == {
        "reward": 1.0,
        "extracted_answer": last,
        "answered": 1.0,
    }


@pytest.mark.parametrize(
    ("task", "field"),
    [
        ({}, "options"),
        ({"options": ["x", "y"]}, "expected_answer"),
        ({"options": ["x", "y"], "expected_answer": "C"}, "expected_answer"),
        ({"options": ["x", "y"], "expected_answer": 1}, "expected_answer"),
        ({"options": ["x"], "expected_answer": "A"}, "options"),
        ({"options": ["x"] * 27, "expected_answer": "A"}, "options"),
        ({"options": {"AA": "x", "B": "y"}, "expected_answer": "B"}, "options"),
        ({"options": ["x", 3], "expected_answer": "A"}, "options"),
        ({"options": ["x", "y"], "expected_answer": "A", "extraction": ["regex"]}, "extraction"),
    ],
)
def test_a_task_that_cannot_be_scored_names_its_field(says: Says, task: dict[str, Any], field: str) -> None:
    with pytest.raises(TaskError, match=f'"{field}"'):
        asyncio.run(Mcqa().score("1", task, says("Answer: A")))


def test_the_examples_withstand_their_examination(examined: Callable[..., dict[str, Any]]) -> None:
    rewards = examined(Mcqa, "mcqa")
    assert len(rewards["references"]) >= 12
    assert set(rewards["references"].values()) == {1.0}
    assert len(rewards["cheats"]) >= 12 * 14
    assert {kind: reward for kind, reward in rewards["cheats"].items() if reward} == {}
    assert {kind: reward for kind, reward in rewards["wrong"].items() if reward} == {}
    assert {kind: reward for kind, reward in rewards["hostile"].items() if reward} == {}
