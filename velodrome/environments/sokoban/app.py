"""Sokoban by turns: an answer is one move or a few. A step takes microseconds and runs on the loop.

A level is text: walls `#`, floor, goals `.`, boxes `$` (`*` on a goal), the player `@` (`+` on a goal).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from velodrome.errors import TaskError
from velodrome.resources_servers.answers import need
from velodrome.resources_servers.turn_environment import TurnEnvironment
from velodrome.settings.component import Field

MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
LARGEST = 64
Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Level:
    """A state of a level. A move gives another one."""

    walls: frozenset[Place]
    goals: frozenset[Place]
    boxes: frozenset[Place]
    player: Place

    @property
    def solved(self) -> bool:
        return self.boxes <= self.goals

    def moved(self, move: str) -> Level:
        """The level after a step, or a push if there is a box with room behind it; otherwise the same level."""
        down, right = MOVES[move]
        there = self.player[0] + down, self.player[1] + right
        behind = there[0] + down, there[1] + right
        if there in self.walls or (there in self.boxes and (behind in self.walls or behind in self.boxes)):
            return self
        boxes = self.boxes - {there} | {behind} if there in self.boxes else self.boxes
        return Level(self.walls, self.goals, boxes, there)

    def drawn(self) -> str:
        """The level as text."""
        rows, columns = (max(place[axis] for place in self.walls) + 1 for axis in (0, 1))
        return "\n".join("".join(self._mark((row, at)) for at in range(columns)).rstrip() for row in range(rows))

    def _mark(self, place: Place) -> str:
        if place in self.walls:
            return "#"
        on_goal = place in self.goals
        if place == self.player:
            return "+" if on_goal else "@"
        if place in self.boxes:
            return "*" if on_goal else "$"
        return "." if on_goal else " "


def read_level(text: str) -> Level:
    """The level that a text draws. One that cannot be played is a `ValueError`."""
    lines = text.rstrip("\n").split("\n")
    if len(lines) > LARGEST or any(len(line) > LARGEST for line in lines):
        raise ValueError(f"it is larger than {LARGEST} by {LARGEST}")
    marks = {(row, at): mark for row, line in enumerate(lines) for at, mark in enumerate(line)}
    strange = sorted({*marks.values()} - {*"# .$*@+"})
    if strange:
        raise ValueError(f"it has {strange[0]!r}, which is none of # . $ * @ + and space")
    players = [place for place, mark in marks.items() if mark in "@+"]
    level = Level(
        frozenset(place for place, mark in marks.items() if mark == "#"),
        frozenset(place for place, mark in marks.items() if mark in ".*+"),
        frozenset(place for place, mark in marks.items() if mark in "$*"),
        players[0] if players else (0, 0),
    )
    if len(players) != 1 or not level.boxes or len(level.boxes) > len(level.goals) or level.solved:
        raise ValueError("it needs one player, boxes that are not all on goals, and a goal for each")
    if not _is_closed(level):
        raise ValueError("it is open: there must be walls around it")
    return level


def _is_closed(level: Level) -> bool:
    """Whether walls keep the player inside."""
    rows, columns = (max((place[axis] for place in level.walls), default=0) for axis in (0, 1))
    seen, waiting = {level.player}, [level.player]
    while waiting:
        row, at = waiting.pop()
        if not (0 < row < rows and 0 < at < columns):
            return False
        for down, right in MOVES.values():
            place = row + down, at + right
            if place not in level.walls and place not in seen:
                seen.add(place)
                waiting.append(place)
    return level.boxes | level.goals <= seen


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
