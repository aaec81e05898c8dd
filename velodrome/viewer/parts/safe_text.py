"""Text from a model on a page: it is untrusted, so it is escaped, bounded, and what cannot be seen is made visible.

A control, bidirectional or zero-width character is shown by its code in a small frame and never sent as itself. So no
text can reorder, hide or end what stands around it.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cache
from html import escape

from markupsafe import Markup

from velodrome.timing.invisible import INVISIBLE

FOLD_OVER = 6_000  # characters; a text that is longer is folded
HEAD, TAIL = 4_000, 1_000  # what is left of it then
MOST_SHOWN = 4_000_000  # of one text that is shown in full
_MOST_MARKS = 5_000  # of one text; beyond that a code stands without its frame

_NAMES = {"\x1b": "escape", "\x00": "null", "\r": "carriage return", "\x7f": "delete", "\x08": "backspace"}
_MOST_IN_A_ROW = 8
_NARROW = 38  # characters on a line of a small screen
_NOTHING = Markup("")


@dataclass(frozen=True, slots=True)
class Folded:
    """A text as a page shows it: its beginning, how many characters are left out, and its end."""

    head: Markup
    hidden: int = 0
    tail: Markup = _NOTHING
    length: int = 0


def visible(text: str) -> Markup:
    """The whole text, harmless: escaped, and every odd character by its code."""
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
    """The text, with its middle left out if it is long and not wanted `whole`."""
    if whole:
        over, head, tail = MOST_SHOWN, MOST_SHOWN - tail, tail
    if len(text) <= over:
        return Folded(visible(text), length=len(text))
    return Folded(visible(text[:head]), len(text) - head - tail, visible(text[len(text) - tail :]), len(text))


def plain_line(text: str, longest: int = 200) -> Markup:
    """The text on one line and bounded, for a table cell or a title that is looked at."""
    cut = text[: longest * 2]
    line = " ".join(cut.split())
    more = len(line) > longest or len(text) > longest * 2
    return visible(line[:longest]) + ("…" if more else "")


def attribute(text: str, longest: int = 200) -> str:
    """The text for a document's title or a label, where no frame can stand: codes without one, on one line."""
    line = " ".join(text[: longest * 2].split())[:longest]
    return INVISIBLE.sub(lambda match: "".join(map(_code, match.group()[:_MOST_IN_A_ROW])), line)


@cache
def _mark(character: str) -> str:
    name = _NAMES.get(character) or unicodedata.name(character, "control character").lower()
    return f'<span class="odd" title="{escape(name)}">{_code(character)}</span>'


def _code(character: str) -> str:
    return f"U+{ord(character):04X}"


def scrolling(label: str, text: str | None = None, element: str = "div", kind: str = "scroll") -> str:
    """The opening tag of a region that scrolls; a keyboard reaches it if it may be wider than a small screen."""
    wide = text is None or not text.isascii() or any(len(line.expandtabs()) > _NARROW for line in text.split("\n"))
    reach = f' tabindex="0" role="group" aria-label="{escape(label)}"' if wide else ""
    return f'<{element} class="{kind}"{reach}>'
