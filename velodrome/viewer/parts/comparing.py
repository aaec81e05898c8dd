"""Comparison of conversations: how far repeats of a task agree, and two of them message by message, word by word.

The work is bounded: after enough words on a page, pairs of texts are compared only from both ends.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest

from velodrome.viewer.parts.dialogue import ShownMessage

_MOST_COMPARED = 20_000  # characters of one message
MOST_MESSAGES = 600  # of one conversation
_MOST_SHOWN = 4_000  # characters of one message that differs
_SAME_SHOWN = 300  # characters at each end of an equal stretch
_MOST_WORK = 3_000_000  # words of one side times words of the other, over the whole page
_MOST_WORDS = 1_500  # of one message
_WORDS = re.compile(r"\s*\S+|\s+$")


def compared_text(message: ShownMessage) -> str:
    """A message as one text."""
    parts = [message.aloud] if message.aloud else []
    for call in message.calls:
        arguments = ", ".join(f"{each.name}: {each.text}" if each.name else each.text for each in call.arguments)
        parts.append(f"{call.name}({arguments}) → {'no result' if call.aloud is None else call.aloud}")
    return "\n".join(parts)


def shared_messages(repeats: Sequence[Sequence[ShownMessage]]) -> int:
    """The number of equal messages at the start of all repeats."""
    spoken = ([(message_label(message), compared_text(message)) for message in repeat] for repeat in repeats)
    return next((at for at, each in enumerate(zip_longest(*spoken)) if len({*each}) > 1), max(map(len, repeats)))


def message_label(message: ShownMessage) -> str:
    return "tool call" if message.calls else message.role


@dataclass(frozen=True, slots=True)
class Stretch:
    """Part of a text. `kind`: `same` in both, `changed` here only, or `cut`: `text` says how much was left out."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class PairedSide:
    """A message of one side."""

    label: str
    stretches: list[Stretch]
    more: int = 0  # characters left out at the end


@dataclass(frozen=True, slots=True)
class PairedMessages:
    """A line of the page: two messages that belong together. `same`: word for word."""

    same: bool
    a: PairedSide | None
    b: PairedSide | None
    length: int = 0


Spoken = tuple[str, str]  # a label and a text


def pair_messages(a: Sequence[ShownMessage], b: Sequence[ShownMessage]) -> list[PairedMessages]:
    """The lines of the page, in order."""
    left, right = ([(message_label(each), compared_text(each)) for each in side[:MOST_MESSAGES]] for side in (a, b))
    work = _MOST_WORK
    lines = []
    for x, y in _alignment(left, right):
        if x is not None and y is not None and left[x] == right[y]:
            text = left[x][1]
            side = PairedSide(left[x][0], [Stretch("same", text[:_MOST_SHOWN])], max(len(text) - _MOST_SHOWN, 0))
            lines.append(PairedMessages(True, side, side, len(text)))
            continue
        sides: list[list[Stretch]] = [[], []]
        if x is not None and y is not None:
            sides, work = _compared(left[x][1][:_MOST_COMPARED], right[y][1][:_MOST_COMPARED], work)
        lines.append(
            PairedMessages(
                False,
                None if x is None else _side(*left[x], sides[0]),
                None if y is None else _side(*right[y], sides[1]),
            )
        )
    return lines


def _alignment(a: list[Spoken], b: list[Spoken]) -> Iterator[tuple[int | None, int | None]]:
    """Equal messages are paired first; between them, messages of the same speaker, in order."""
    for kind, i, i_end, j, j_end in SequenceMatcher(None, a, b, autojunk=True).get_opcodes():
        if kind == "equal":
            yield from zip(range(i, i_end), range(j, j_end), strict=True)
            continue
        speakers = SequenceMatcher(None, [x[0] for x in a[i:i_end]], [y[0] for y in b[j:j_end]], autojunk=False)
        for _, x, x_end, y, y_end in speakers.get_opcodes():
            yield from zip_longest(range(i + x, i + x_end), range(j + y, j + y_end))


def _compared(a: str, b: str, work: int) -> tuple[list[list[Stretch]], int]:
    """The stretches of both texts, and the remaining work."""
    left, right = _WORDS.findall(a), _WORDS.findall(b)
    start = _common(left, right)
    end = _common(left[start:][::-1], right[start:][::-1])
    inner = left[start : len(left) - end], right[start : len(right) - end]
    cost = _cost(*inner)
    codes = [("replace", 0, len(inner[0]), 0, len(inner[1]))]
    if 0 < cost <= work and max(map(len, inner)) <= _MOST_WORDS:
        work -= cost
        codes = [*SequenceMatcher(None, *inner, autojunk=True).get_opcodes()]
    sides: list[list[Stretch]] = []
    ranges = [[(kind, i, j) for kind, i, j, _, _ in codes], [(kind, i, j) for kind, _, _, i, j in codes]]
    for words, middle, side_ranges in zip((left, right), inner, ranges, strict=True):
        parts = [("same", words[:start])]
        parts += [("same" if kind == "equal" else "changed", middle[i:j]) for kind, i, j in side_ranges]
        parts.append(("same", words[len(words) - end :] if end else []))
        sides.append([each for kind, part in parts if part for each in _stretches(kind, "".join(part))])
    return sides, work


def _cost(a: Sequence[str], b: Sequence[str]) -> int:
    """An estimate of the comparison's cost: words that are frequent in both texts cost far more."""
    counts, most = Counter(b), len(b) // 100 + 1 if len(b) >= 200 else len(b)  # the matcher skips frequent words
    pairs = sum(count * counts[word] for word, count in Counter(a).items() if counts[word] <= most)
    return max(len(a) * len(b), pairs * min(len(a), len(b)) // 8)


def _stretches(kind: str, text: str) -> list[Stretch]:
    """A stretch. The space before a changed word is not marked."""
    blank = len(text) - len(text.lstrip()) if kind == "changed" else 0
    return [Stretch(*each) for each in (("same", text[:blank]), (kind, text[blank:])) if each[1]]


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    """The number of equal words at the start of both."""
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _side(label: str, text: str, stretches: list[Stretch]) -> PairedSide:
    """A message with long equal stretches cut in the middle, and a long message cut at its end."""
    room, shown = _MOST_SHOWN, []
    for part in (part for each in stretches or [Stretch("changed", text[:_MOST_COMPARED])] for part in _cut(each)):
        if room > 0:
            shown.append(Stretch(part.kind, part.text[:room]))
        room -= len(part.text)
    return PairedSide(label, shown, max(-room, 0) + max(len(text) - _MOST_COMPARED, 0))


def _cut(stretch: Stretch) -> list[Stretch]:
    text = stretch.text
    if stretch.kind != "same" or len(text) <= 2 * _SAME_SHOWN + 100:
        return [stretch]
    gap = Stretch("cut", f"{len(text) - 2 * _SAME_SHOWN:,} characters as in the other")
    return [Stretch("same", text[:_SAME_SHOWN]), gap, Stretch("same", text[-_SAME_SHOWN:])]
