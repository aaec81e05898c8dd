"""Constraints: each accepts a text that keeps it, refuses the smallest violation, and they combine."""

from __future__ import annotations

from typing import Any

import pytest

from tests.resources_servers.playing import ROOT, score
from velodrome.environments.instruction_following.app import InstructionFollowing
from velodrome.environments.instruction_following.kinds import (
    KINDS,
    described,
    followed,
    paragraphs_of,
    sentences_of,
    visible,
    words_of,
)

README = ROOT / "velodrome" / "environments" / "instruction_following" / "README.md"


# For each kind: parameters, a text that keeps it, and the same with the smallest violation.
CASES: dict[str, tuple[dict[str, Any], str, str]] = {
    "min_words": ({"count": 4}, "It is fine today.", "It is fine."),
    "max_words": ({"count": 3}, "It is fine.", "It is fine today."),
    "exact_words": ({"count": 3}, "It's well-known here.", "It is well-known here."),
    "min_sentences": ({"count": 2}, "Wait. Then go.", "Wait then go."),
    "max_sentences": ({"count": 1}, "Wait then go.", "Wait. Then go."),
    "exact_sentences": ({"count": 2}, "Wait. Then go.", "Wait. Then go. Now."),
    "min_paragraphs": ({"count": 2}, "One.\n\nTwo.", "One.\nTwo."),
    "exact_paragraphs": ({"count": 2}, "One.\n\nTwo.", "One.\n\nTwo.\n\nMore."),
    "exact_lines": ({"count": 2}, "one\n\ntwo", "one\ntwo\nthree"),
    "max_line_length": ({"count": 8}, "one two\nthree", "one two three"),
    "max_word_length": ({"count": 4}, "four and less", "four and fives"),
    "include_words": ({"words": ["lake", "stone bridge"]}, "Lake, stone bridge.", "Lakes, stone bridge."),
    "exclude_words": ({"words": ["amber", "lake"]}, "Ambers by lakes", "Amber by lakes"),
    "word_exactly": ({"word": "lake", "count": 2}, "lake to Lake", "lake to Lake lake"),
    "word_at_least": ({"word": "lake", "count": 2}, "lake, lake, lake", "lake, lakes"),
    "word_order": ({"words": ["salt", "honey", "milk"]}, "Salt, then honey, milk", "Honey, salt, honey, milk"),
    "distinct_words": ({}, "No word again here", "No word again, no"),
    "starts_with": ({"text": "Well then:"}, "Well then: go", "well then: go"),
    "ends_with": ({"text": "The end."}, "So it was. The end.", "So it was. The end. "),
    "ends_with_question": ({}, "Is it so?", "It is so."),
    "all_lowercase": ({}, "only small ones, 1", "Only small ones"),
    "all_uppercase": ({}, "ONLY LARGE ONES, 1", "ONLY LARGE ONEs"),
    "min_capital_words": ({"count": 2}, "STOP it NOW", "STOP it Now"),
    "max_capital_words": ({"count": 0}, "I say Stop", "I say STOP"),
    "no_commas": ({}, "this and that", "this, that"),
    "no_digits": ({}, "four", "4"),
    "min_numbers": ({"count": 2}, "from 10 to 2", "from 10 to two"),
    "exclamations": ({"count": 2}, "Stop! Now!", "Stop! Now!!"),
    "bullets": ({"count": 2}, "- one\n- two", "- one\ntwo"),
    "numbered_list": ({"count": 2}, "1. one\n2. two", "1. one\n3. two"),
    "sections": ({"word": "Part", "count": 2}, "Part 1\none\nPart 2:\ntwo", "Part 1\none\nPart 3\ntwo"),
    "table_rows": ({"count": 1}, "| a | b |\n|---|---|\n| 1 | 2 |", "| a | b |\n|---|---|"),
    "code_blocks": ({"count": 1}, "```\nx = 1\n```", "```\nx = 1"),
    "placeholders": ({"count": 2}, "Dear [name], at [time]", "Dear [name], at [time](x)"),
    "highlights": ({"count": 2}, "*this* and **that**", "*this* and * that *"),
    "parentheses": ({"count": 1}, "so (they say)", "so (they) (say)"),
    "title": ({}, "<<My title>>\ntext", "My <<My title>>\ntext"),
    "quotation": ({}, '"It is so."', '"It is so".'),
    "postscript": ({}, "text\nP.S. more", "text\nP.S. more\nand more"),
    "json_only": ({}, '```json\n{"a": 1}\n```', 'Here: {"a": 1}'),
    "two_answers": ({}, "one\n******\ntwo", "one\n******\nOne"),
    "repeat_first": ({"text": "Why is it so?"}, "Why is it so? Nobody can tell.", "Why's it so? Nobody can tell."),
    "choice": ({"options": ["yes", "no"]}, "yes", "yes."),
    "script": ({"script": "greek"}, "νερό, φως", "νερό, φως a"),
    "forbidden_letter": ({"letter": "e"}, "only tall words", "only tall words, E"),
    "min_letter": ({"letter": "z", "count": 3}, "Zig zag buzz", "Zig zag bus"),
    "max_letter": ({"letter": "a", "count": 1}, "all of it", "all of it, A"),
    "sentence_letter": ({"letter": "s"}, "Sam sails. She stays.", "Sam sails. He stays."),
    "acrostic": ({"word": "RAIN"}, "river\nall\nin\nnight", "river\nall\nin\nnight\nmore"),
    "palindromes": ({"count": 2}, "At noon a kayak, noon", "At noon no kayaks"),
    "nth_paragraph": ({"count": 2, "word": "Then"}, "First.\n\nThen this.", "First.\n\nAnd then this."),
}


def constraint(kind: str) -> dict[str, Any]:
    return {"kind": kind, **CASES[kind][0]}


def test_there_is_a_case_for_every_kind_and_the_readme_lists_it():
    assert list(CASES) == list(KINDS)
    assert len(KINDS) >= 50
    readme = README.read_text()
    assert [kind for kind in KINDS if f"`{kind}`" not in readme] == []


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_constraint_accepts_a_text_that_keeps_it_and_refuses_the_smallest_violation(kind: str):
    _, kept, violated = CASES[kind]
    assert followed(kept, constraint(kind))
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
