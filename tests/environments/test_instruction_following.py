"""Constraints: each accepts the text written for it, refuses the smallest violation, and they combine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.resources_servers.playing import ROOT, score
from velodrome.environments.instruction_following.app import InstructionFollowing
from velodrome.environments.instruction_following.draft import written
from velodrome.environments.instruction_following.kinds import (
    KINDS,
    described,
    followed,
    paragraphs_of,
    sentences_of,
    visible,
    words_of,
)

Edit = Callable[[str], str]
README = ROOT / "velodrome" / "environments" / "instruction_following" / "README.md"


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


def test_there_is_a_case_for_every_kind_and_the_readme_lists_it():
    assert list(CASES) == list(KINDS)
    assert len(KINDS) >= 50
    readme = README.read_text()
    assert [kind for kind in KINDS if f"`{kind}`" not in readme] == []


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_constraint_accepts_its_own_text_and_refuses_the_smallest_violation(kind: str):
    text = written([constraint(kind)])
    assert text is not None
    assert followed(text, constraint(kind))
    violated = CASES[kind][1](text)
    assert violated != text
    assert not followed(violated, constraint(kind))
    sentence = described(constraint(kind))
    assert "{" not in sentence
    for value in CASES[kind][0].values():
        assert all(str(each) in sentence for each in (value if isinstance(value, list) else [value]))


def test_sentences_paragraphs_and_words_are_counted_as_people_count():
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


def scored(text: str, constraints: Any, **settings: Any) -> dict[str, Any]:
    return score(InstructionFollowing(**settings), {"constraints": constraints}, text)


def test_the_reward_is_all_or_a_share_and_each_constraint_has_its_result():
    rules = [{"kind": "max_words", "count": 5}, {"kind": "all_lowercase"}]
    assert scored("fine by me", rules)["reward"] == 1.0
    half = scored("Fine by me", rules)
    assert half == {
        "reward": 0.0,
        "fraction": 0.5,
        "kept": [{"kind": "max_words", "kept": True}, {"kind": "all_lowercase", "kept": False}],
    }
    assert scored("Fine by me", rules, grading="fraction")["reward"] == 0.5


@pytest.mark.parametrize("text", ["", " ", "...", "😀!", "word " * 100, "ab cd " * 400, "a b \x00\x01", "x" * 60_000])
def test_what_is_not_an_answer_keeps_no_constraint(text: str):
    assert scored(text, [{"kind": "no_digits"}, {"kind": "no_commas"}], grading="fraction")["reward"] == 0.0


def test_a_choice_may_have_no_word():
    rules = [{"kind": "choice", "options": ["+", "-"]}, {"kind": "no_commas"}]
    assert [scored(text, rules)["reward"] for text in ("+", "*")] == [1.0, 0.0]
