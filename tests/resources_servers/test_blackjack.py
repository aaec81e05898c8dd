"""Blackjack: the cards are the seed's, the rules are the table's, and words do not win."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from velodrome import SimpleAgent, examine
from velodrome.errors import TaskError
from velodrome.resources_servers.blackjack.app import Blackjack, outcomes, points, shuffled
from velodrome.responses_api_models.scripted_model.app import ScriptedModel


def play(seed: Any, *answers: str) -> dict[str, Any]:
    agent = SimpleAgent(model=ScriptedModel(answers=list(answers)), environment=Blackjack())
    return asyncio.run(agent.run({"responses_create_params": {"input": []}, "seed": seed}))


def test_it_passes_its_examination() -> None:
    report = asyncio.run(examine("blackjack"))
    assert report.passed, str(report)


@pytest.mark.parametrize(
    ("cards", "value"),
    [("A K", 21), ("A A", 12), ("A A 9", 21), ("A 9 5", 15), ("10 6 K", 26), ("A A A A K", 14), ("2 3", 5)],
)
def test_an_ace_is_what_helps(cards: str, value: int) -> None:
    assert points(cards.split()) == value


def test_a_deck_is_whole_and_its_seeds_alone() -> None:
    assert sorted(shuffled(1)) == sorted(shuffled(2))
    assert len(shuffled(1)) == 52
    assert shuffled(1) == shuffled(1) != shuffled(2)
    assert shuffled(1)[-4:] == ["2", "K", "10", "3"]  # the same on every Python


@pytest.mark.parametrize("seed", range(1, 60))
def test_what_the_search_says_of_a_hand_is_what_it_earns(seed: int) -> None:
    for moves, reward in outcomes(seed):
        result = play(seed, *moves)
        assert (result["reward"], result["terminated"]) == (reward, True)


def test_moves_are_read_with_care_and_too_many_others_end_the_hand() -> None:
    assert play(8, " **Stand**. ")["terminated"] is True
    result = play(8, "hit stand", "HIT ME", "I win", "stand")
    assert (result["reward"], result["truncated"], result["step_rewards"]) == (0.0, True, [0.0] * 3)


@pytest.mark.parametrize("text", ["\ud800", "hit" * 1_000_000, "[" * 100_000, "hit\0", ""])
def test_hostile_answers_are_no_moves(text: str) -> None:
    assert play(8, text)["reward"] == 0.0


@pytest.mark.parametrize("seed", [None, "7", 1.5, True])
def test_a_task_without_a_seed_is_blamed_on_the_input(seed: Any) -> None:
    with pytest.raises(TaskError, match='"seed"'):
        play(seed, "stand")
