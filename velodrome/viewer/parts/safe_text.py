"""Text from a model on a page. It is untrusted, so it is escaped and bounded, and invisible characters are shown.

A control, bidirectional or zero-width character is shown by its code in a small frame and never sent itself. So a text
cannot reorder, hide or end the text around it.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cache
from html import escape

from markupsafe import Markup

from velodrome.timing.invisible import INVISIBLE

FOLD_OVER = 6_000  # characters; a longer text is folded
HEAD, TAIL = 4_000, 1_000  # characters of a folded text at its start and its end
MOST_SHOWN = 4_000_000  # characters of one text in full
_MOST_MARKS = 5_000  # of one text; further codes have no frame

_NAMES = {"\x1b": "escape", "\x00": "null", "\r": "carriage return", "\x7f": "delete", "\x08": "backspace"}
_MOST_IN_A_ROW = 8
_NARROW = 38  # characters on a line of a small screen
_NOTHING = Markup("")


@dataclass(frozen=True, slots=True)
class Folded:
    """A text for a page: its start, the number of characters left out, and its end."""

    head: Markup
    hidden: int = 0
    tail: Markup = _NOTHING
    length: int = 0


def visible(text: str) -> Markup:
    """The whole text, escaped, with codes for invisible characters."""
    marks = 0

    def shown(match: re.Match[str]) -> str:
        nonlocal marks
        run = match.group()
        parts = []
        for each in run[:_MOST_IN_A_ROW]:
            marks += 1
            parts.append(_mark(each) if marks <= _MOST_MARKS else _code(each))
        if len(run) > _MOST_IN_A_ROW:
            parts.append(f'<span class="odd">{len(run) - _MOST_IN_A_ROW:,} more</span>')
        return "".join(parts)

    return Markup(INVISIBLE.sub(shown, escape(text.replace("\r\n", "\n"), quote=True)))


def folded(text: str, *, whole: bool = False, over: int = FOLD_OVER, head: int = HEAD, tail: int = TAIL) -> Folded:
    """The text, without its middle if it is long and not `whole`."""
    if whole:
        over, head, tail = MOST_SHOWN, MOST_SHOWN - tail, tail
    if len(text) <= over:
        return Folded(visible(text), length=len(text))
    return Folded(visible(text[:head]), len(text) - head - tail, visible(text[len(text) - tail :]), len(text))


def plain_line(text: str, longest: int = 200) -> Markup:
    """The text on one line and bounded, for a table cell or a heading."""
    cut = text[: longest * 2]
    line = " ".join(cut.split())
    is_cut = len(line) > longest or len(text) > longest * 2
    return visible(line[:longest]) + ("…" if is_cut else "")


def attribute(text: str, longest: int = 200) -> str:
    """The text on one line for a title or a label: codes have no frames there."""
    line = " ".join(text[: longest * 2].split())[:longest]
    return INVISIBLE.sub(lambda match: "".join(map(_code, match.group()[:_MOST_IN_A_ROW])), line)


@cache
def _mark(character: str) -> str:
    name = _NAMES.get(character) or unicodedata.name(character, "control character").lower()
    return f'<span class="odd" title="{escape(name)}">{_code(character)}</span>'


def _code(character: str) -> str:
    return f"U+{ord(character):04X}"


def scrolling(label: str, text: str | None = None, element: str = "div", kind: str = "scroll") -> str:
    """The opening tag of a scrolling region. It has keyboard focus if it may be wider than a small screen."""
    wide = text is None or not text.isascii() or any(len(line.expandtabs()) > _NARROW for line in text.split("\n"))
    reach = f' tabindex="0" role="group" aria-label="{escape(label)}"' if wide else ""
    return f'<{element} class="{kind}"{reach}>'
