"""Noughts and crosses: the board, the search, and moves that are none. Two players are in test_players_agent.py."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from velodrome import SimpleAgent, examine
from velodrome.errors import TaskError
from velodrome.resources_servers.tic_tac_toe import tic_tac_toe_board as game
from velodrome.resources_servers.tic_tac_toe.app import TicTacToe
from velodrome.responses_api_models.scripted_model.app import ScriptedModel


def play(board: Any, *answers: str) -> dict[str, Any]:
    agent = SimpleAgent(model=ScriptedModel(answers=list(answers)), environment=TicTacToe(opponent="perfect"))
    return asyncio.run(agent.run({"responses_create_params": {"input": []}, "board": board}))


def test_it_passes_its_examination() -> None:
    report = asyncio.run(examine("tic_tac_toe"))
    assert report.passed, str(report)


def test_perfect_play_is_a_draw_and_the_search_never_loses() -> None:
    assert game.value(".........") == 0
    board = "........."
    while not game.over(board):
        board = game.placed(board, game.best(board))
    assert game.winner(board) is None
    for first in range(9):  # whatever is played first, and then badly
        board = game.placed(".........", first)
        while not game.over(board):
            board = game.placed(board, game.best(board))
            board = board if game.over(board) else game.placed(board, game.cells(board)[-1])
        assert game.winner(board) != game.CROSS


@pytest.mark.parametrize(
    ("board", "answers", "reward", "winner"),
    [
        ("xx.oo....", ["3"], 1.0, "x"),
        ("xx.oo....", ["9"], 0.0, "o"),
        ("xoxxoo.x.", ["9"], 0.0, "x"),
        ("xoxoox.x.", ["9"], 0.5, "nobody"),
        ("xx.oo....", [" (3). "], 1.0, "x"),
        ("xx.oo....", ["3 and 9", "1", "3"], 1.0, "x"),
        ("xx.oo....", ["3 and 9", "1", "0", "3"], 0.0, "o"),
    ],
)
def test_a_win_is_one_a_draw_half_and_too_many_illegal_moves_a_loss(
    board: str, answers: list[str], reward: float, winner: str
) -> None:
    result = play(board, *answers)
    assert (result["reward"], result["winner"], result["terminated"]) == (reward, winner, True)


@pytest.mark.parametrize("text", ["\ud800", "3" * 1_000_000, "[" * 100_000, "3\0", "", "٣", "③"])
def test_hostile_answers_are_no_moves(text: str) -> None:
    assert play("xx.oo....", text)["reward"] == 0.0


@pytest.mark.parametrize(
    "board", [None, 5, "", "xxx......", "xxxoo....", "ooo......", "xoxoxooxo", "abcdefghi", "." * 10]
)
def test_a_board_that_cannot_be_played_is_blamed_on_the_input(board: Any) -> None:
    with pytest.raises(TaskError, match='"board"'):
        play(board, "1")
