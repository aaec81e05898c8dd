"""Constraints: each accepts the text written for it, refuses the smallest violation, and they combine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from velodrome.errors import TaskError
from velodrome.resources_servers.instruction_following.app import InstructionFollowing
from velodrome.resources_servers.instruction_following.following_draft import written
from velodrome.resources_servers.instruction_following.following_kinds import KINDS, described, followed
from velodrome.resources_servers.instruction_following.following_text import (
    SCRIPTS,
    paragraphs_of,
    sentences_of,
    visible,
    words_of,
)

Says = Callable[..., dict[str, Any]]
Edit = Callable[[str], str]
README = Path(__file__).parents[2] / "velodrome" / "resources_servers" / "instruction_following" / "README.md"


def without_last_line(text: str) -> str:
    return text.rpartition("\n")[0]


def one_word_less(text: str) -> str:
    return text.replace(words_of(text)[1], "", 1)


# For each kind: parameters, and the smallest change of its own text that violates it.
CASES: dict[str, tuple[dict[str, Any], Edit]] = {
    "min_words": ({"count": 20}, one_word_less),
    "max_words": ({"count": 3}, lambda text: f"{text} more"),
    "exact_words": ({"count": 7}, lambda text: f"{text} more"),
    "min_sentences": ({"count": 3}, lambda text: text.replace(". ", " ", 1)),
    "max_sentences": ({"count": 1}, lambda text: f"{text} More."),
    "exact_sentences": ({"count": 3}, lambda text: f"{text} More."),
    "min_paragraphs": ({"count": 3}, lambda text: text.replace("\n\n", "\n", 1)),
    "exact_paragraphs": ({"count": 2}, lambda text: f"{text}\n\nMore."),
    "exact_lines": ({"count": 4}, lambda text: f"{text}\nmore"),
    "max_line_length": ({"count": 18}, lambda text: text.replace("\n", " ") + " and much more"),
    "max_word_length": ({"count": 4}, lambda text: f"{text} fives"),
    "include_words": ({"words": ["lake", "stone bridge"]}, lambda text: text.replace("lake", "lakes")),
    "exclude_words": ({"words": ["amber", "lake"]}, lambda text: f"{text} Amber"),
    "word_exactly": ({"word": "lake", "count": 2}, lambda text: f"{text} Lake"),
    "word_at_least": ({"word": "lake", "count": 2}, lambda text: text.replace("lake", "sea", 1)),
    "word_order": ({"words": ["salt", "honey", "milk"]}, lambda text: f"honey {text}"),
    "distinct_words": ({}, lambda text: f"{text} {words_of(text)[0]}"),
    "starts_with": ({"text": "Well then:"}, lambda text: f" {text}".replace("Well", "well")),
    "ends_with": ({"text": "The end."}, lambda text: f"{text} "),
    "ends_with_question": ({}, lambda text: text[:-1] + "."),
    "all_lowercase": ({}, lambda text: text.capitalize()),
    "all_uppercase": ({}, lambda text: text.capitalize()),
    "min_capital_words": ({"count": 2}, lambda text: text.capitalize()),
    "max_capital_words": ({"count": 0}, lambda text: f"{text} NO"),
    "no_commas": ({}, lambda text: text.replace(" ", ", ", 1)),
    "no_digits": ({}, lambda text: f"{text} 4"),
    "min_numbers": ({"count": 2}, lambda text: text.replace("2", "two")),
    "exclamations": ({"count": 2}, lambda text: text + "!"),
    "bullets": ({"count": 3}, without_last_line),
    "numbered_list": ({"count": 3}, lambda text: text.replace("2. ", "4. ")),
    "sections": ({"word": "Part", "count": 2}, lambda text: text.replace("Part 2", "Part 3")),
    "table_rows": ({"count": 2}, without_last_line),
    "code_blocks": ({"count": 1}, without_last_line),
    "placeholders": ({"count": 2}, without_last_line),
    "highlights": ({"count": 2}, without_last_line),
    "parentheses": ({"count": 1}, lambda text: f"{text} (more)"),
    "title": ({}, lambda text: f"My {text}"),
    "quotation": ({}, lambda text: text + "."),
    "postscript": ({}, lambda text: f"{text}\nMore."),
    "json_only": ({}, lambda text: f"Here: {text}"),
    "two_answers": ({}, lambda text: f"{text}\n******\nmore"),
    "repeat_first": ({"text": "Why is it so?"}, lambda text: text.replace("Why is", "Why's")),
    "choice": ({"options": ["yes", "no"]}, lambda text: f"{text}."),
    "script": ({"script": "greek"}, lambda text: f"{text} a"),
    "forbidden_letter": ({"letter": "e"}, lambda text: f"{text} E"),
    "min_letter": ({"letter": "z", "count": 3}, lambda text: text.replace("z", "s", 1)),
    "max_letter": ({"letter": "a", "count": 0}, lambda text: f"{text} A"),
    "sentence_letter": ({"letter": "s"}, lambda text: f"{text} More."),
    "acrostic": ({"word": "RAIN"}, lambda text: f"{text}\nmore"),
    "palindromes": ({"count": 3}, lambda text: text.replace("level", "levels")),
    "nth_paragraph": ({"count": 2, "word": "Then"}, lambda text: text.replace("Then", "And then")),
}


def constraint(kind: str) -> dict[str, Any]:
    return {"kind": kind, **CASES[kind][0]}


def test_there_is_a_case_for_every_kind_and_the_readme_lists_it() -> None:
    assert list(CASES) == list(KINDS)
    assert len(KINDS) >= 50
    readme = README.read_text()
    assert [kind for kind in KINDS if f"`{kind}`" not in readme] == []


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_constraint_accepts_its_own_text_and_refuses_the_smallest_violation(kind: str) -> None:
    text = written([constraint(kind)])
    assert text is not None
    assert followed(text, constraint(kind))
    violated = CASES[kind][1](text)
    assert violated != text
    assert not followed(violated, constraint(kind))


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_sentence_that_asks_for_a_constraint_names_its_parameters(kind: str) -> None:
    sentence = described(constraint(kind))
    assert "{" not in sentence
    for value in CASES[kind][0].values():
        assert all(str(each) in sentence for each in (value if isinstance(value, list) else [value]))


@pytest.mark.parametrize("script", list(SCRIPTS))
def test_texts_are_written_in_every_script(script: str) -> None:
    rule = {"kind": "script", "script": script}
    text = written([rule, {"kind": "min_words", "count": 8}])
    assert text is not None
    assert followed(text, rule)


def test_most_pairs_can_be_written_together_and_what_is_written_keeps_both() -> None:
    count = 0
    for pair in combinations(KINDS, 2):
        rules = [constraint(kind) for kind in pair]
        text = written(rules)
        if text is not None:
            count += 1
            assert all(followed(text, rule) for rule in rules), (pair, text)
    assert count >= 0.75 * len(KINDS) * (len(KINDS) - 1) / 2  # the others contradict each other, nearly all of them


def test_sentences_paragraphs_and_words_are_counted_as_people_count() -> None:
    assert words_of("It's a well-known fact: 3.5 km_h") == ["It's", "a", "well-known", "fact", "3", "5", "km", "h"]
    assert sentences_of('He said "No." Then he left... Really?\n\nYes') == [
        'He said "No."',
        "Then he left...",
        "Really?",
        "Yes",
    ]
    assert sentences_of("Version 3.5 is out") == ["Version 3.5 is out"]
    assert paragraphs_of("a\nb\n\n \n\nc\n") == ["a\nb", "c"]
    assert visible("<think>x</think> a<!-- b -->\u200bc <!-- d") == "ac"


def score(says: Says, text: str, constraints: list[dict[str, Any]], **settings: Any) -> dict[str, Any]:
    return asyncio.run(InstructionFollowing(**settings).score("1", {"constraints": constraints}, says(text)))


def test_the_reward_is_all_or_a_share_and_each_constraint_has_its_result(says: Says) -> None:
    rules = [{"kind": "max_words", "count": 5}, {"kind": "all_lowercase"}]
    assert score(says, "fine by me", rules)["reward"] == 1.0
    half = score(says, "Fine by me", rules)
    assert half == {
        "reward": 0.0,
        "fraction": 0.5,
        "kept": [{"kind": "max_words", "kept": True}, {"kind": "all_lowercase", "kept": False}],
    }
    assert score(says, "Fine by me", rules, grading="fraction")["reward"] == 0.5


@pytest.mark.parametrize("text", ["", " ", "...", "😀!", "word " * 100, "ab cd " * 400, "a b \x00\x01", "x" * 60_000])
def test_what_is_not_an_answer_keeps_no_constraint(says: Says, text: str) -> None:
    assert score(says, text, [{"kind": "no_digits"}, {"kind": "no_commas"}], grading="fraction")["reward"] == 0.0


def test_a_choice_may_have_no_word(says: Says) -> None:
    rules = [{"kind": "choice", "options": ["+", "-"]}, {"kind": "no_commas"}]
    assert [score(says, text, rules)["reward"] for text in ("+", "*")] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("constraints", "problem"),
    [
        (None, 'no "constraints"'),
        ([], 'no "constraints"'),
        (["no_commas"], "not a kind"),
        ([{"kind": "poetic"}], "'poetic' is not a kind"),
        ([{"kind": "max_words"}], '"count" must be a whole number'),
        ([{"kind": "max_words", "count": "5"}], '"count" must be'),
        ([{"kind": "max_words", "count": 5, "word": "x"}], 'it has no "word"'),
        ([{"kind": "include_words", "words": "x"}], '"words" must be a list'),
        ([{"kind": "forbidden_letter", "letter": "ab"}], '"letter" must be one letter'),
        ([{"kind": "script", "script": "runes"}], '"script" must be one of'),
    ],
)
def test_a_task_that_cannot_be_scored_names_its_field(says: Says, constraints: Any, problem: str) -> None:
    with pytest.raises(TaskError, match=problem):
        score(says, "fine", constraints)


def test_prompts_of_the_examples_ask_for_what_is_checked() -> None:
    lines = (README.parent / "data" / "example.jsonl").read_text().splitlines()
    for task in map(json.loads, lines):
        prompt = task["responses_create_params"]["input"][1]["content"]
        assert [each["kind"] for each in task["constraints"] if described(each) not in prompt] == []


def test_the_examples_withstand_their_examination(examined: Callable[..., dict[str, Any]]) -> None:
    rewards = examined(InstructionFollowing, "instruction_following")
    assert len(rewards["references"]) >= 12
    assert {kind: reward for kind, reward in rewards["references"].items() if reward != 1.0} == {}
    for group in ("wrong", "cheats", "hostile"):
        assert {kind: reward for kind, reward in rewards[group].items() if reward} == {}
    assert len(rewards["wrong"]) >= 3 * 12
    assert len(rewards["cheats"]) >= 9 * 12
