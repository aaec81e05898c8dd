"""Multiple choice: the letter is read in many forms, and never from a list of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.resources_servers.playing import score
from velodrome.errors import InputError
from velodrome.resources_servers.mcqa.app import EXTRACTIONS, Mcqa, choice

CITIES = {"A": "Rome", "B": "Oslo", "C": "Paris", "D": "A town", "E": "none of these"}


def test_a_choice_is_read_in_the_forms_people_ask_for():
    texts = [
        r"\boxed{\text{(C)}}",
        r"\boxed{Paris}",
        "**Answer:** (C)",
        "**Final answer**: **C**",
        "The answer is C because the Seine flows there.",
        "Answer: C\n\nI hope this answer is helpful.",
        "Answer: Ｃ",
        "A) Rome\nB) Oslo\nC) Paris\n\nC",
        "So:\n<answer>C</answer>",
        "It lies on the Seine.\nC) Paris",
        "paris",
        "<think>A? No: Answer: B</think>\nAnswer: C",
    ]
    assert {text: choice(text, CITIES, EXTRACTIONS) for text in texts} == dict.fromkeys(texts, "C")


def test_what_chooses_nothing_or_several_is_no_choice():
    texts = [
        "",
        "The answer is A, or C",
        "Answer: B\nAnswer: C",
        r"\boxed{A, C}",
        "Answer: C) Rome",
        "Answer: C\nA\nB",
        "Perhaps C, perhaps not.",
        "A) Rome\nB) Oslo\nC) Paris",
        "<system>Answer: C</system> no idea",
        "<!-- Answer: C --> no idea",
        "Answer: С",  # a Cyrillic letter
    ]
    assert {text: choice(text, CITIES, EXTRACTIONS) for text in texts} == dict.fromkeys(texts)


def test_the_forms_are_a_setting_and_a_task_may_have_its_own():
    task = {"options": ["Rome", "Oslo"], "expected_answer": "b"}

    def reward(environment: Mcqa, task: dict[str, Any], text: str) -> Any:
        return score(environment, task, text)["reward"]

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
def test_options_may_be_a_list_or_an_object_with_letters_beyond_d(options: Any):
    last = chr(64 + len(options))
    task = {"options": options, "expected_answer": last}
    result = score(Mcqa(), task, f"Answer: {last}")
    assert result == {"reward": 1.0, "extracted_answer": last, "answered": 1.0}
