"""The board of noughts and crosses: nine characters, whose move it is, who has won, and the best move by search."""

from __future__ import annotations

import re
from functools import cache

EMPTY, CROSS, NOUGHT = ".", "x", "o"
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
_MOVE = re.compile(r"\s*\(?\s*([1-9])\s*\)?\s*\.?\s*")


def is_board(board: str) -> bool:
    """Whether a board has nine cells, is not finished, and can be reached by alternate moves."""
    counts = board.count(CROSS) - board.count(NOUGHT)
    return len(board) == 9 and set(board) <= {EMPTY, CROSS, NOUGHT} and counts in (0, 1) and not over(board)


def to_move(board: str) -> str:
    """The player to move; crosses begin."""
    return CROSS if board.count(CROSS) == board.count(NOUGHT) else NOUGHT


def winner(board: str) -> str | None:
    """The player with three in a row, if any."""
    return next((board[a] for a, b, c in LINES if board[a] != EMPTY and board[a] == board[b] == board[c]), None)


def over(board: str) -> bool:
    """Whether a player has won or the board is full."""
    return winner(board) is not None or EMPTY not in board


def placed(board: str, cell: int) -> str:
    """The board after a move of the player to move."""
    return board[:cell] + to_move(board) + board[cell + 1 :]


@cache
def value(board: str) -> int:
    """The best result that the player to move can force: 1 a win, 0 a draw, -1 a loss."""
    if over(board):
        return 0 if winner(board) is None else -1
    return max(-value(placed(board, cell)) for cell in cells(board))


def cells(board: str) -> list[int]:
    """The empty cells."""
    return [cell for cell, mark in enumerate(board) if mark == EMPTY]


def best(board: str) -> int:
    """The first of the best moves."""
    return max(cells(board), key=lambda cell: (-value(placed(board, cell)), -cell))


def read_move(text: str, board: str) -> int:
    """The cell that an answer names: one number and nothing else. Anything else is an illegal move."""
    match = _MOVE.fullmatch(text) if len(text) <= 100 else None
    if match is None:
        raise ValueError("answer with one number from 1 to 9 and nothing else")
    cell = int(match[1]) - 1
    if board[cell] != EMPTY:
        raise ValueError(f"cell {cell + 1} is taken")
    return cell


def drawn(board: str) -> str:
    """The board for a player: empty cells have their numbers."""
    marks = [mark if mark != EMPTY else str(at + 1) for at, mark in enumerate(board)]
    return "\n".join(" ".join(marks[row : row + 3]) for row in (0, 3, 6))
