"""A hidden word: feedback letter by letter, and no way around the guesses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from velodrome import SimpleAgent, examine
from velodrome.errors import TaskError
from velodrome.resources_servers.word_guess.app import WordGuess, feedback
from velodrome.resources_servers.word_guess.word_guess_words import WORDS
from velodrome.responses_api_models.scripted_model.app import ScriptedModel


def play(secret: Any, *answers: str, **settings: Any) -> dict[str, Any]:
    agent = SimpleAgent(model=ScriptedModel(answers=list(answers)), environment=WordGuess(**settings))
    return asyncio.run(agent.run({"responses_create_params": {"input": []}, "secret": secret}))


def test_it_passes_its_examination() -> None:
    report = asyncio.run(examine("word_guess"))
    assert report.passed, str(report)


@pytest.mark.parametrize(
    ("guess", "secret", "marks"),
    [
        ("crane", "crane", "GGGGG"),
        ("slate", "crane", "--G-G"),
        ("eerie", "three", "Y-G-G"),
        ("llama", "label", "GYY--"),
        ("allow", "lolly", "-YGY-"),
        ("geese", "these", "--GGG"),
        ("sissy", "basis", "YYG--"),
    ],
)
def test_a_letter_is_marked_as_often_as_the_word_has_it(guess: str, secret: str, marks: str) -> None:
    assert feedback(guess, secret) == marks


def test_the_list_has_words_of_five_letters_each_once() -> None:
    assert all(len(word) == 5 and word.isascii() and word.islower() for word in WORDS)
    assert len({*WORDS}) == len(WORDS)


def test_the_last_guess_ends_the_game_and_the_word_stays_hidden_until_then() -> None:
    result = play("zebra", "Crane.", *["slate"] * 9)
    assert (result["reward"], result["guesses_made"], result["terminated"]) == (0.0, 6, True)
    texts = [str(item["content"]) for item in result["response"]["output"] if item["role"] == "user"]
    assert texts[0] == "C R A N E\n- Y Y - Y\n5 left."
    assert ["zebra" in text for text in texts] == [False] * 5 + [True]
    assert "zebra" not in str(result["responses_create_params"])
    assert play("zebra", "slate", "zebra", guesses=2)["reward"] == 1.0


@pytest.mark.parametrize("text", ["\ud800" * 5, "zebra" * 1_000_000, "zebra zebra", "ｚｅｂｒａ", "zebr\0", ""])
def test_what_is_not_one_word_is_no_guess(text: str) -> None:
    result = play("zebra", text)
    assert (result["reward"], result["truncated"]) == (0.0, True)


@pytest.mark.parametrize("secret", [None, 5, "word", "zebras", "zebrä"])
def test_a_task_without_a_word_is_blamed_on_the_input(secret: Any) -> None:
    with pytest.raises(TaskError, match='"secret"'):
        play(secret, "crane")
