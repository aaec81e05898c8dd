"""Sokoban by turns: an answer is one move or a few. A step takes microseconds and runs on the loop."""

from __future__ import annotations

import re
from typing import Any

from velodrome.errors import TaskError
from velodrome.resources_servers.sokoban.sokoban_level import MOVES, Level, read_level
from velodrome.resources_servers.stated import need
from velodrome.resources_servers.turn_environment import TurnEnvironment
from velodrome.settings.component import Field

Json = dict[str, Any]

_BETWEEN = re.compile(r"[\s,;]+")
_LONGEST = 2000
_RULES = (
    "Push every box ($) onto a goal (.). # is a wall, @ is you, * is a box on a goal, + is you on a goal. You push a"
    " box by walking into it; it needs room behind it. You cannot pull."
)


class Sokoban(TurnEnvironment):
    """The reward is 1.0 as soon as every box is on a goal."""

    max_moves: int = Field(200, ge=1, description="moves in one rollout, after which it is truncated")
    moves_per_turn: int = Field(20, ge=1, description="moves in one answer")
    illegal_moves: int | None = Field(3, ge=1, description="answers that are not moves, after which the game is over")

    async def reset(self, task: Json, session: Json) -> str:
        """The level."""
        session.update(level=self._level(task), moves=0)
        ask = f"Answer with moves and nothing else: {', '.join(MOVES)}, at most {self.moves_per_turn} at once."
        return f"{_RULES}\n\n{session['level'].drawn()}\n\n{ask}"

    async def step(self, action: str, session: Json) -> tuple[str, float, bool, bool, Json]:
        """The level after the moves, of which those into a wall do nothing."""
        blocked = 0
        for move in self._moves(action):
            before: Level = session["level"]
            session["level"] = after = before.moved(move)
            session["moves"] += 1
            blocked += after is before
            if after.solved or session["moves"] >= self.max_moves:
                break
        level: Level = session["level"]
        info = {"moves": session["moves"], "boxes_on_goals": len(level.boxes & level.goals) / len(level.boxes)}
        if level.solved:
            return f"{level.drawn()}\n\nSolved.", 1.0, True, False, info
        note = f"{blocked} of these moves were blocked.\n\n" if blocked else ""
        return f"{note}{level.drawn()}", 0.0, False, session["moves"] >= self.max_moves, info

    def _moves(self, action: str) -> list[str]:
        moves = [move for move in _BETWEEN.split(action.strip().strip(".").casefold()) if move]
        if len(action) > _LONGEST or not moves or len(moves) > self.moves_per_turn or not MOVES.keys() >= {*moves}:
            names = ", ".join(MOVES)
            raise ValueError(f"an answer is 1 to {self.moves_per_turn} of the moves {names}, and nothing else")
        return moves

    def _level(self, task: Json) -> Level:
        text = need(task, "level", str, "a level as text")
        try:
            return read_level(text)
        except ValueError as error:
            raise TaskError(f'"level" cannot be played: {error}') from None

    def reference_answer(self, task: Json) -> list[str] | None:
        """The task's `solution`, some moves at a time."""
        names = {"u": "up", "d": "down", "l": "left", "r": "right"}
        moves = [names[letter] for letter in str(task.get("solution") or "").lower()]
        size = self.moves_per_turn
        return [", ".join(moves[at : at + size]) for at in range(0, len(moves), size)] or None

    def wrong_answers(self, task: Json) -> Json:
        """Moves that do not solve it."""
        reference = self.reference_answer(task) or ["up"]
        last = reference[-1].split(", ")
        short = [*reference[:-1], *([", ".join(last[:-1])] if last[1:] else [])]
        return {"up for ever": "up", "one move short": [*short, "solved"], "nothing": "I do not know."}

    def cheats(self, task: Json) -> Json:
        """Attempts at the reward without the work."""
        solved = task["level"].replace("$", " ").replace(".", "*")
        return {
            "claims it": "Solved. Every box is on a goal.",
            "a level of its own": solved,
            "too many moves at once": ", ".join(["up", "down", "left", "right"] * (self.moves_per_turn // 2)),
            "pulls": "pull left",
            "walks through walls": "teleport to goal",
            "moves a box itself": "box 1 to goal",
            "forges a result": '{"reward": 1.0, "boxes_on_goals": 1.0, "terminated": true}',
            "a move among words": "I think the best move is up, because it solves the level.",
            "begins again": "reset",
        }
