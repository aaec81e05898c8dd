"""The games: each knows its rules, pays for what its search says, and reads moves with care.

Two players of tic_tac_toe are in test_players_agent.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.resources_servers.playing import example_tasks, play
from velodrome.environments.blackjack.app import Blackjack, outcomes, points, shuffled
from velodrome.environments.sokoban.app import Sokoban, read_level
from velodrome.environments.tic_tac_toe import board as game
from velodrome.environments.tic_tac_toe.app import TicTacToe
from velodrome.environments.word_guess.app import WORDS, WordGuess, feedback
from velodrome.errors import TaskError

ROOM = "######\n#@$ .#\n######"
NAMES = {"u": "up", "d": "down", "l": "left", "r": "right"}


def test_a_deck_is_whole_and_its_seeds_alone_and_an_ace_is_what_helps():
    assert sorted(shuffled(1)) == sorted(shuffled(2))
    assert shuffled(1) == shuffled(1) != shuffled(2)
    assert shuffled(1)[-4:] == ["2", "K", "10", "3"]  # the same on every Python
    hands = {"A K": 21, "A A 9": 21, "A 9 5": 15, "10 6 K": 26, "A A A A K": 14}
    assert {cards: points(cards.split()) for cards in hands} == hands


def test_what_the_search_says_of_a_hand_is_what_it_earns():
    for seed in range(1, 12):
        for moves, reward in outcomes(seed):
            result = play(Blackjack(), {"seed": seed}, *moves)
            assert (result["reward"], result["terminated"]) == (reward, True), (seed, moves)


def test_moves_of_a_hand_are_read_with_care_and_too_many_others_end_it():
    assert play(Blackjack(), {"seed": 8}, " **Stand**. ")["terminated"] is True
    result = play(Blackjack(), {"seed": 8}, "hit stand", "HIT ME", "I win", "stand")
    assert (result["reward"], result["truncated"], result["step_rewards"]) == (0.0, True, [0.0] * 3)


def test_perfect_play_is_a_draw_and_the_search_never_loses():
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
        ("xx.oo....", [" (3). "], 1.0, "x"),
        ("xx.oo....", ["9"], 0.0, "o"),
        ("xoxoox.x.", ["9"], 0.5, "nobody"),
        ("xx.oo....", ["3 and 9", "1", "0", "3"], 0.0, "o"),
    ],
)
def test_a_win_is_one_a_draw_half_and_too_many_illegal_moves_a_loss(
    board: str, answers: list[str], reward: float, winner: str
):
    result = play(TicTacToe(opponent="perfect"), {"board": board}, *answers)
    assert (result["reward"], result["winner"], result["terminated"]) == (reward, winner, True)


def test_a_letter_is_marked_as_often_as_the_word_has_it():
    marks = {("crane", "crane"): "GGGGG", ("eerie", "three"): "Y-G-G", ("llama", "label"): "GYY--"}
    assert {words: feedback(*words) for words in marks} == marks
    assert all(len(word) == 5 and word.isascii() and word.islower() for word in WORDS)


def test_the_last_guess_ends_the_game_and_the_word_stays_hidden_until_then():
    result = play(WordGuess(), {"secret": "zebra"}, "Crane.", *["slate"] * 9)
    assert (result["reward"], result["guesses_made"], result["terminated"]) == (0.0, 6, True)
    texts = [str(item["content"]) for item in result["response"]["output"] if item["role"] == "user"]
    assert texts[0] == "C R A N E\n- Y Y - Y\n5 left."
    assert ["zebra" in text for text in texts] == [False] * 5 + [True]
    assert "zebra" not in str(result["responses_create_params"])
    assert play(WordGuess(guesses=2), {"secret": "zebra"}, "slate", "zebra")["reward"] == 1.0


def test_the_solution_of_each_level_solves_it_and_not_before_its_last_move():
    for task in example_tasks("sokoban").values():
        level = read_level(task["level"])
        assert level.drawn() == task["level"]
        for letter in task["solution"]:
            assert not level.solved, task["id"]
            level = level.moved(NAMES[letter])
        assert level.solved, task["id"]


def test_a_box_is_pushed_if_there_is_room_and_never_pulled():
    level = read_level(ROOM)
    pushed = level.moved("right")
    assert pushed.drawn() == "######\n# @$.#\n######"
    assert pushed.moved("left").drawn() == "######\n#@ $.#\n######"
    assert level.moved("left") is level.moved("up") is level
    solved = pushed.moved("right")
    assert (solved.solved, solved.drawn(), solved.moved("right") is solved) == (True, "######\n#  @*#\n######", True)


def test_moves_are_counted_and_blocked_ones_are_reported():
    result = play(Sokoban(), {"level": ROOM}, "up, LEFT\nright", "right")
    texts = [item["content"] for item in result["response"]["output"] if item["role"] == "user"]
    assert texts[0].startswith("2 of these moves were blocked.")
    assert (result["reward"], result["moves"], result["boxes_on_goals"]) == (1.0, 4, 1.0)
    cut = play(Sokoban(max_moves=3), {"level": ROOM}, "left")
    assert (cut["reward"], cut["truncated"], cut["moves"]) == (0.0, True, 3)
    assert play(Sokoban(moves_per_turn=1), {"level": ROOM}, "right right")["reward"] == 0.0


LEVELS = ["", "#####\n#@$ #\n#####", "#####\n#$$.#\n#####", "#####\n@$ .#\n#####", "#####\n#@$x#\n#####", "#" * 65]


@pytest.mark.parametrize(
    ("owner", "field", "values"),
    [
        (Blackjack, "seed", [None, "7", 1.5, True]),
        (TicTacToe, "board", [None, 5, "", "xxx......", "xxxoo....", "ooo......", "xoxoxooxo", "abcdefghi", "." * 10]),
        (WordGuess, "secret", [None, 5, "word", "zebras", "zebrä"]),
        (Sokoban, "level", [None, 7, *LEVELS]),
    ],
)
def test_a_game_that_cannot_be_played_is_blamed_on_the_input(owner: Any, field: str, values: list[Any]):
    for value in values:
        with pytest.raises(TaskError, match=f'"{field}"'):
            play(owner(), {field: value}, "1")
