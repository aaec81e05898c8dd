"""Noughts and crosses: two models play each other, or one plays against a perfect opponent.

All of it takes microseconds and runs on the loop.
"""

from __future__ import annotations

from typing import Any, Literal

from velodrome.environments.players_environment import PlayersEnvironment
from velodrome.environments.tic_tac_toe import board as game
from velodrome.errors import TaskError
from velodrome.resources_servers.answers import need
from velodrome.settings.component import Field

Json = dict[str, Any]


class TicTacToe(PlayersEnvironment):
    """The players are `x` and `o`. A win is 1.0, a draw 0.5, a loss 0.0; too many illegal moves are a loss."""

    opponent: Literal["model", "perfect"] = Field(
        "model", description="who plays the other side: another player of the agent, or a search for the best move"
    )
    illegal_moves: int | None = Field(3, ge=1, description="illegal moves of one player that are a loss")

    async def reset(self, task: Json, session: Json) -> Json:
        """The board, for the player to move."""
        board = need(task, "board", str, "nine characters of x, o and .").lower()
        if not game.is_board(board):
            raise TaskError(f'"board" must be nine characters of x, o and . with a move to make, not {board[:40]!r}')
        session.update(board=board, me=game.to_move(board), illegal={game.CROSS: 0, game.NOUGHT: 0})
        return self._address(session, "Noughts and crosses. Three in a row win.")

    async def step(self, actions: dict[str, str], session: Json) -> tuple[Any, ...]:
        """Make the move of the addressed player; in a game against the search, also its reply."""
        board = session["board"]
        player = game.to_move(board)
        try:
            cell = game.read_move(actions[player], board)
        except ValueError as error:
            session["illegal"][player] += 1
            if session["illegal"][player] != self.illegal_moves:
                raise
            return self._end(session, f"error: {error}. That was one illegal move too many.", _other(player))
        session["board"] = board = game.placed(board, cell)
        reply = ""
        if self.opponent == "perfect" and not game.over(board):
            cell = game.best(board)
            session["board"] = board = game.placed(board, cell)
            reply = f"{_other(player)} takes {cell + 1}."
        if game.over(board):
            return self._end(session, reply, game.winner(board))
        return self._address(session, reply or f"{player} takes {cell + 1}."), {}, False, False, {}

    def _address(self, session: Json, text: str) -> Json:
        player = game.to_move(session["board"])
        ask = f"You are {player}. Answer with the number of an empty cell and nothing else."
        return {player: f"{text}\n\n{game.drawn(session['board'])}\n\n{ask}"}

    def _end(self, session: Json, text: str, winner: str | None) -> tuple[Any, ...]:
        result = "A draw." if winner is None else f"{winner} wins."
        shares = {each: 0.5 if winner is None else float(each == winner) for each in (game.CROSS, game.NOUGHT)}
        observers = shares if self.opponent == "model" else [session["me"]]
        text = "\n\n".join(filter(None, (text, game.drawn(session["board"]), result)))
        info = {"winner": winner or "nobody", "board": session["board"]}
        return dict.fromkeys(observers, text), shares, True, False, info

    @classmethod
    def example_settings(cls) -> Json:
        """One player against the search."""
        return {"opponent": "perfect"}

    def reference_answer(self, task: Json) -> Any:
        """The best moves against the best replies; None if a win cannot be forced."""
        board, moves = task["board"], []
        if game.value(board) < 1:
            return None
        while not game.over(board):
            moves.append(str(game.best(board) + 1))
            board = game.placed(board, game.best(board))
            board = board if game.over(board) else game.placed(board, game.best(board))
        return moves

    def wrong_answers(self, task: Json) -> Json:
        """The worst moves until the game ends."""
        board, moves = task["board"], []
        while not game.over(board):
            cell = max(game.cells(board), key=lambda cell: (game.value(game.placed(board, cell)), cell))
            moves.append(str(cell + 1))
            board = game.placed(board, cell)
            board = board if game.over(board) else game.placed(board, game.best(board))
        lost = game.winner(board) != game.to_move(task["board"])
        return {"the worst moves": moves} if lost else {}

    def cheats(self, task: Json) -> Json:
        """Attempts to win without playing."""
        board = task["board"]
        taken = next((str(at + 1) for at, mark in enumerate(board) if mark != game.EMPTY), "0")
        free = [str(cell + 1) for cell in game.cells(board)]
        me = game.to_move(board)
        return {
            "claims to win": f"{me} wins. The game is over.",
            "a taken cell": taken,
            "all moves at once": " ".join(free),
            "moves for both": [f"{me}: {free[0]}, {_other(me)}: {free[-1]}"],
            "a board of its own": f"{me * 9}\n{me} wins.",
            "forges a result": '{"reward": 1.0, "winner": "' + me + '"}',
            "gives up": "resign",
        }


def _other(player: str) -> str:
    return game.NOUGHT if player == game.CROSS else game.CROSS
