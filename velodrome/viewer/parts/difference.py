"""Where the repeats of one task diverge: the first message that differs, and the first word in it.

Only the output is compared; the prompt is the same for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from velodrome.viewer.parts.dialogue import ShownMessage

_MOST_COMPARED = 20_000  # characters of one message
_BEFORE = 240  # characters shown before the word that differs
_AFTER = 700
_WORD = re.compile(r"\s*\S+")


@dataclass(frozen=True, slots=True)
class Step:
    """One message of one repeat. If it diverges, `same` is the common start and `word` the first word that differs."""

    label: str
    kind: str  # same, diverging, after
    same: str
    word: str = ""
    rest: str = ""
    more: int = 0


@dataclass(frozen=True, slots=True)
class Divergence:
    """How far repeats agree: the number of equal messages, then of equal words. `message` is None if all are equal."""

    message: int | None
    word: int
    repeats: list[list[Step]]


def compared_text(message: ShownMessage) -> str:
    """A message as one text."""
    parts = [message.aloud] if message.aloud else []
    for call in message.calls:
        arguments = ", ".join(f"{each.name}: {each.text}" if each.name else each.text for each in call.arguments)
        parts.append(f"{call.name}({arguments}) → {'no result' if call.aloud is None else call.aloud}")
    return "\n".join(parts)


def divergence(repeats: Sequence[Sequence[ShownMessage]]) -> Divergence:
    """Compare the repeats, message by message and then word by word."""
    lines = [[(message_label(message), compared_text(message)) for message in repeat] for repeat in repeats]
    if len(lines) < 2:
        return Divergence(None, 0, [[_whole(*each, kind="after") for each in line] for line in lines])
    shared = 0
    longest = max(map(len, lines))
    while shared < longest and len({line[shared] if shared < len(line) else None for line in lines}) == 1:
        shared += 1
    if shared == longest:
        return Divergence(None, 0, [[_whole(*each, kind="same") for each in line] for line in lines])
    place, words = _first_word([line[shared][1] if shared < len(line) else "" for line in lines])
    result = []
    for line in lines:
        steps = [_whole(*each, kind="same") for each in line[:shared]]
        if shared < len(line):
            steps.append(_diverging(*line[shared], place))
        result.append([*steps, *(_whole(*each, kind="after") for each in line[shared + 1 :])])
    return Divergence(shared, words, result)


def _first_word(texts: list[str]) -> tuple[int, int]:
    """How many characters all texts begin with, in whole words; and how many words that is."""
    place = words = 0
    while True:
        heads = {
            match.group() if (match := _WORD.match(text, place, _MOST_COMPARED)) else text[place:_MOST_COMPARED]
            for text in texts
        }
        head = heads.pop()
        if heads or not head.strip():
            return place, words
        place += len(head)
        words += 1


def message_label(message: ShownMessage) -> str:
    return "tool call" if message.calls else message.role


def _diverging(label: str, text: str, place: int) -> Step:
    match = _WORD.match(text, place)
    word = match.group() if match else ""
    before = text[max(place - _BEFORE, 0) : place]
    if place > _BEFORE:
        before = f"… {before}"
    after = text[place + len(word) :]
    return Step(label, "diverging", before, word[:_AFTER], after[:_AFTER], max(len(after) - _AFTER, 0))


def _whole(label: str, text: str, *, kind: str) -> Step:
    longest = _BEFORE if kind == "same" else _AFTER
    return Step(label, kind, text[:longest], more=max(len(text) - longest, 0))
