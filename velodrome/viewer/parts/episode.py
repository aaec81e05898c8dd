"""A policy's episode in a rollout: the actions, the rewards, and the pictures of the world.

A row may hold anything under `episode`. What this module returns has been checked value by value, is bounded, and has
no text but the names of actions: colours are `#rrggbb`, and pictures use letters from `ALPHABET`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeGuard

Json = dict[str, Any]

# Letters that need no escaping anywhere, one for each colour of a picture.
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-.,:;=*/()[]{}!?#$%^_|~@"
MOST_AGENTS = 1_000
MOST_CELLS = 65_536  # of a picture
MOST_STEPS = 10_000
MOST_ENTRIES = 400_000  # of a column, steps times agents
MOST_LETTERS = 4_000_000  # of all pictures as they are sent, about
_MOST_NAMES = 1_000
_CHANGE_LETTERS = 6  # what a changed cell takes, about
_LARGEST = 1e12  # of a reward
_ENDS = {
    "truncated": "its time was over",
    "terminal": "it ended by the rules",
    "unfinished": "it was left before it ended",
}
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}")


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole picture: its cells row by row."""

    width: int
    cells: str


@dataclass(frozen=True, slots=True)
class FrameChange:
    """The picture before it, with other letters in some cells."""

    at: list[int]
    put: str


@dataclass(frozen=True, slots=True)
class Pictures:
    """One frame per step. The k-th colour and the k-th letter of the file are those of the k-th of `ALPHABET`.

    A mark is written into its cell: it is the letter the file has, where another letter has the same colour.
    """

    letters: str
    colours: list[str]
    marks: list[str]
    frames: list[Whole | FrameChange]

    def drawn(self) -> Iterator[tuple[int, list[str]]]:
        """The width and the cells of each picture, whole."""
        width, cells = 1, [""]
        for frame in self.frames:
            if isinstance(frame, FrameChange):
                for at, letter in zip(frame.at, frame.put, strict=True):
                    cells[at] = letter
            else:
                width, cells = frame.width, list(frame.cells)
            yield width, cells


@dataclass(frozen=True, slots=True)
class Episode:
    """The first steps of an episode that has `steps`: as many as each of its columns is long."""

    agents: int
    steps: int
    ended: str
    names: list[str]
    actions: list[list[int]] | None
    taught: list[list[int]] | None
    rewards: list[list[float]] | None
    pictures: Pictures | None
    shown: int


class _Flaw(ValueError):
    """Why this is not an episode."""


def read_episode(row: Json) -> Episode | str | None:
    """The episode of a rollout; the reason if it cannot be shown; None if there is none."""
    value = row.get("episode")
    if not isinstance(value, dict) or not value.keys() & {"frames", "actions"}:
        return None
    try:
        return _episode(value)
    except _Flaw as flaw:
        return str(flaw)


def how_it_ended(value: Json) -> str:
    """In our own words; "" if it does not say."""
    ended = value.get("ended")
    return _ENDS.get(ended, "") if isinstance(ended, str) else ""


def _episode(value: Json) -> Episode:
    agents = value.get("agents")
    if not isinstance(agents, int) or isinstance(agents, bool) or not 1 <= agents <= MOST_AGENTS:
        raise _Flaw(f"the number of its agents is not one from 1 to {MOST_AGENTS:,}")
    columns = {name: value[name] for name in ("frames", "actions", "teacher_actions", "rewards") if name in value}
    for name, values in columns.items():
        if not isinstance(values, list):
            raise _Flaw(f"{name} is no list")
    lengths = {len(values) for values in columns.values()}
    if len(lengths) != 1 or 0 in lengths:
        raise _Flaw("its columns have no steps, or not the same number of them")
    (steps,) = lengths
    shown = min(steps, MOST_STEPS, max(1, MOST_ENTRIES // agents))
    pictures = _pictures(value.get("palette"), columns["frames"][:shown]) if "frames" in columns else None
    if pictures is not None:
        shown = len(pictures.frames)

    def column(name: str, fits: Callable[[Any], bool]) -> list[list[Any]] | None:
        return _column(name, columns[name][:shown], agents, fits) if name in columns else None

    return Episode(
        agents,
        steps,
        how_it_ended(value),
        _names(value.get("action_names", [])),
        column("actions", _is_action),
        column("teacher_actions", _is_action),
        column("rewards", is_reward),
        pictures,
        shown,
    )


def _column(name: str, rows: list[Any], agents: int, fits: Callable[[Any], bool]) -> list[list[Any]]:
    for step, row in enumerate(rows, 1):
        if not isinstance(row, list) or len(row) != agents or not all(map(fits, row)):
            raise _Flaw(f"{name}, step {step:,}: not one number of the right kind for each agent")
    return rows


def _names(names: Any) -> list[str]:
    if not isinstance(names, list) or len(names) > _MOST_NAMES or not all(isinstance(name, str) for name in names):
        raise _Flaw("action_names is not a list of names")
    return names


def _pictures(palette: Any, frames: list[Any]) -> Pictures:
    """As many of the frames as there is room for, and at least one."""
    if not isinstance(palette, dict) or not 0 < len(palette) <= len(ALPHABET):
        raise _Flaw(f"its palette does not have 1 to {len(ALPHABET)} colours")
    for letter, colour in palette.items():
        if len(letter) != 1 or not isinstance(colour, str) or not _COLOUR.fullmatch(colour):
            raise _Flaw("its palette is not a colour (#rrggbb) for each of some letters")
    ours = {ord(letter): ALPHABET[place] for place, letter in enumerate(palette)}
    checked: list[Whole | FrameChange] = []
    size = taken = 0
    for step, frame in enumerate(frames, 1):
        try:
            one = _whole(frame, ours) if isinstance(frame, list) else _change(frame, ours, size)
        except _Flaw as flaw:
            raise _Flaw(f"frame {step:,}: {flaw}") from None
        size = len(one.cells) if isinstance(one, Whole) else size
        taken += size if isinstance(one, Whole) else _CHANGE_LETTERS * len(one.at)
        if checked and taken > MOST_LETTERS:
            break
        checked.append(one)
    shared = Counter(colour.lower() for colour in palette.values())
    marks = [
        letter if letter.isascii() and letter.isalnum() and shared[colour.lower()] > 1 else ""
        for letter, colour in palette.items()
    ]
    return Pictures("".join(palette), list(palette.values()), marks, checked)


def _whole(frame: list[Any], ours: dict[int, str]) -> Whole:
    if not frame or not isinstance(frame[0], str) or not frame[0]:
        raise _Flaw("it has no rows of letters")
    width = len(frame[0])
    if width * len(frame) > MOST_CELLS:
        raise _Flaw(f"it has more than {MOST_CELLS:,} cells")
    if not all(isinstance(row, str) and len(row) == width for row in frame):
        raise _Flaw("its rows are not all of one length")
    return Whole(width, _lettered("".join(frame), ours))


def _change(frame: Any, ours: dict[int, str], size: int) -> FrameChange:
    at, put = (frame.get("at"), frame.get("put")) if isinstance(frame, dict) else (None, None)
    if not isinstance(at, list) or not isinstance(put, str):
        raise _Flaw("it is neither a picture nor a change of one")
    if len(at) != len(put) or len(at) > MOST_CELLS or not all(_is_int(cell) and 0 <= cell < size for cell in at):
        raise _Flaw("it is not one letter for each of some cells of the picture before it")
    if not size:
        raise _Flaw("there is no picture before it")
    return FrameChange(at, _lettered(put, ours))


def _lettered(text: str, ours: dict[int, str]) -> str:
    if not {ord(letter) for letter in set(text)} <= ours.keys():
        raise _Flaw("a letter in it has no colour")
    return text.translate(ours)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_action(value: Any) -> bool:
    return _is_int(value) and abs(value) < 2**31


def is_reward(value: Any) -> TypeGuard[float]:
    """Whether this is a number that a page can show."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST
