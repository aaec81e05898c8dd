"""Terminal colours as classes of a fixed set: sixteen colours and a few styles. No other escape sequence is obeyed.

A text is never hidden: concealed text is shown, and text on a coloured ground has the colour that can be read on it.
"""

from __future__ import annotations

import re

from markupsafe import Markup

from velodrome.viewer.content.scroll_region import scrolling
from velodrome.viewer.parts.safe_text import visible

_MOST_CHANGES = 5_000
_SGR = re.compile(r"\x1b\[([0-9;:]{0,60})m")
_STYLES = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 9: "struck", 21: "underline"}
_ENDED = {22: ("bold", "dim"), 23: ("italic",), 24: ("underline",), 27: ("inverse",), 29: ("struck",)}
_PALETTE = (
    (0, 0, 0), (205, 0, 0), (0, 205, 0), (205, 205, 0), (0, 0, 238), (205, 0, 205), (0, 205, 205), (229, 229, 229),
    (127, 127, 127), (255, 0, 0), (0, 255, 0), (255, 255, 0), (92, 92, 255), (255, 0, 255), (0, 255, 255),
    (255, 255, 255),
)  # fmt: skip


def terminal_colours(text: str) -> Markup | None:
    """The text as markup, or None: there is no colour in it."""
    changes = list(_SGR.finditer(text))
    if not 0 < len(changes) <= _MOST_CHANGES:
        return None
    pen = _Pen()
    parts, at = [], 0
    for change in changes:
        parts.append(pen.write(text[at : change.start()]))
        pen.change(change.group(1))
        at = change.end()
    parts.append(pen.write(text[at:]))
    return Markup(f"{scrolling('Terminal output', text, 'pre', 'scroll terminal')}{''.join(parts)}</pre>")


class _Pen:
    """The colours and styles at one place of the text."""

    def __init__(self) -> None:
        self._styles: set[str] = set()
        self._ink: int | None = None
        self._ground: int | None = None

    def write(self, text: str) -> str:
        if not text:
            return ""
        ink, ground = (self._ground, self._ink) if "inverse" in self._styles else (self._ink, self._ground)
        classes = sorted(f"t-{style}" for style in self._styles if style != "inverse" or ink is ground is None)
        if ground is not None:
            classes.append(f"t-on-{ground}")  # and the colour that can be read on it
        elif ink is not None:
            classes.append(f"t-{ink}")
        shown = str(visible(text))
        return f'<span class="{" ".join(classes)}">{shown}</span>' if classes else shown

    def change(self, codes: str) -> None:
        numbers = [int(code) if code and len(code) < 4 else 0 for code in re.split("[;:]", codes)]
        while numbers:
            code = numbers.pop(0)
            if code in (38, 48):
                colour = _extended(numbers)
                if code == 38:
                    self._ink = colour
                else:
                    self._ground = colour
            else:
                self._step(code)

    def _step(self, code: int) -> None:
        if code == 0:
            self._styles.clear()
            self._ink = self._ground = None
        elif code in _STYLES:
            self._styles.add(_STYLES[code])
        elif code in _ENDED:
            self._styles.difference_update(_ENDED[code])
        elif 30 <= code <= 37 or 90 <= code <= 97:
            self._ink = code - 30 if code < 90 else code - 82
        elif 40 <= code <= 47 or 100 <= code <= 107:
            self._ground = code - 40 if code < 100 else code - 92
        elif code == 39:
            self._ink = None
        elif code == 49:
            self._ground = None


def _extended(numbers: list[int]) -> int | None:
    """The nearest of the sixteen colours to the one of 256, or of all, that these numbers begin with."""
    kind = numbers.pop(0) if numbers else 0
    if kind == 5 and numbers:
        return _of_256(min(255, numbers.pop(0)))
    if kind == 2 and len(numbers) >= 3:
        wanted = [numbers.pop(0) for _ in range(3)]
        return _nearest(wanted[0], wanted[1], wanted[2])
    return None


def _of_256(colour: int) -> int:
    if colour < 16:
        return colour
    if colour >= 232:
        grey = 8 + 10 * (colour - 232)
        return _nearest(grey, grey, grey)
    red, green, blue = ((colour - 16) // 36, (colour - 16) // 6 % 6, (colour - 16) % 6)
    return _nearest(*(55 + 40 * part if part else 0 for part in (red, green, blue)))


def _nearest(red: int, green: int, blue: int) -> int:
    def distance(place: int) -> int:
        return sum((own - wanted) ** 2 for own, wanted in zip(_PALETTE[place], (red, green, blue), strict=True))

    return min(range(16), key=distance)
