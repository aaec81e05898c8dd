"""Where repeats of one task part: the first message in which they differ, and the first word in it.

Only what was made on the way is compared; the question is the same for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from velodrome.viewer.parts.dialogue import Said

_MOST_COMPARED = 20_000  # characters of one message
_BEFORE = 240  # characters of a message that are shown before the word it parts at
_AFTER = 700
_WORD = re.compile(r"\s*\S+")


@dataclass(frozen=True, slots=True)
class Step:
    """One message of one repeat. At the parting `same` is what all say, `word` the first that differs."""

    role: str
    label: str
    kind: str  # same, parting, after
    same: str
    word: str = ""
    rest: str = ""
    more: int = 0


@dataclass(frozen=True, slots=True)
class Parting:
    """How far repeats agree: so many messages, then so many words of the next. `message` is None if they never part."""

    message: int | None
    word: int
    repeats: list[list[Step]]


def told(said: Said) -> str:
    """One thing said as one text: what is compared."""
    parts = [said.text] if said.text else []
    for call in said.calls:
        given = ", ".join(f"{each.name}: {each.text}" if each.name else each.text for each in call.arguments)
        parts.append(f"{call.name}({given}) → {'no result' if call.result is None else call.result}")
    return "\n".join(parts)


def parting(repeats: Sequence[Sequence[Said]]) -> Parting:
    """Compare the repeats, message by message and then word by word."""
    lines = [[(said.role, _label(said), told(said)) for said in repeat] for repeat in repeats]
    if len(lines) < 2:
        return Parting(None, 0, [[_whole(*each, kind="after") for each in line] for line in lines])
    shared = 0
    longest = max(map(len, lines))
    while shared < longest and len({line[shared] if shared < len(line) else None for line in lines}) == 1:
        shared += 1
    if shared == longest:
        return Parting(None, 0, [[_whole(*each, kind="same") for each in line] for line in lines])
    place, words = _first_word([line[shared][2] if shared < len(line) else "" for line in lines])
    found = []
    for line in lines:
        steps = [_whole(*each, kind="same") for each in line[:shared]]
        if shared < len(line):
            steps.append(_parted(*line[shared], place))
        found.append([*steps, *(_whole(*each, kind="after") for each in line[shared + 1 :])])
    return Parting(shared, words, found)


def _first_word(texts: list[str]) -> tuple[int, int]:
    """How many characters all texts begin with, in whole words; and how many words that is."""
    place = words = 0
    while True:
        heads = {
            found.group() if (found := _WORD.match(text, place, _MOST_COMPARED)) else text[place:_MOST_COMPARED]
            for text in texts
        }
        head = heads.pop()
        if heads or not head.strip():
            return place, words
        place += len(head)
        words += 1


def _label(said: Said) -> str:
    return "tool call" if said.calls else said.role


def _parted(role: str, label: str, text: str, place: int) -> Step:
    found = _WORD.match(text, place)
    word = found.group() if found else ""
    before = text[max(place - _BEFORE, 0) : place]
    if place > _BEFORE:
        before = f"… {before}"
    after = text[place + len(word) :]
    return Step(role, label, "parting", before, word[:_AFTER], after[:_AFTER], max(len(after) - _AFTER, 0))


def _whole(role: str, label: str, text: str, *, kind: str) -> Step:
    longest = _BEFORE if kind == "same" else _AFTER
    return Step(role, label, kind, text[:longest], more=max(len(text) - longest, 0))
