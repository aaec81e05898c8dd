"""A level of Sokoban: walls `#`, floor, goals `.`, boxes `$` (`*` on a goal), the player `@` (`+` on a goal)."""

from __future__ import annotations

from dataclasses import dataclass

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
    """Whether the player cannot walk out, whatever is pushed."""
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
