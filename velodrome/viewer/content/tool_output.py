"""What a tool returned, drawn: JSON as a tree, a diff with its lines coloured, terminal colours, tables as they are.

Terminal colours are classes of a fixed set: sixteen colours and a few styles. No other escape sequence is obeyed.
Text is never hidden: concealed text is shown, and text on a coloured ground has the colour that can be read on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from markupsafe import Markup

from velodrome.viewer.content.json_tree import json_tree
from velodrome.viewer.parts.safe_text import scrolling, visible

_MOST_LINES = 5_000
_HUNK = re.compile(r"@@ -\d{1,9}(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@")
_SEEN = re.compile(r"^(?:--- |diff --git |index [0-9a-f]+\.\.)[^\n]*\n", re.MULTILINE)
_HEADS = (
    "diff ", "index ", "--- ", "+++ ", "new file", "deleted file", "old mode", "new mode", "rename ", "copy ",
    "similarity ", "dissimilarity ", "Binary files ",
)  # fmt: skip
_MOST_CHANGES = 5_000
_SGR = re.compile(r"\x1b\[([0-9;:]{0,60})m")
_STYLES = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 9: "struck", 21: "underline"}
_ENDED = {22: ("bold", "dim"), 23: ("italic",), 24: ("underline",), 27: ("inverse",), 29: ("struck",)}
MOST_RESULT = 200_000  # characters, but for images in base64
_MOST_WITH_IMAGES = 10_000_000
MOST_DRAWN = 2_000_000  # characters of markup
_MOST_GROWTH = 20  # characters of markup per character of text, beyond the first ten thousand
_ROW = re.compile(r"[|│┃║\t].*[|│┃║\t]|^\s*[+├└┌╔╠╚][-=+─┬┼┴┐┤┘═╦╬╩╗╣╝]{3,}|^\s*-{3,}(?:\s+-{3,})+\s*$")


def diff_lines(text: str) -> Markup | None:
    """The diff as markup, or None: this is not one."""
    if "\n@@ -" not in text or not _SEEN.search(text) or text.count("\n") > _MOST_LINES:
        return None
    made = "".join(_lines(text))
    return Markup(f"{scrolling('Diff', text, 'pre', 'scroll diff')}{made}</pre>") if "<span" in made else None


def _lines(text: str) -> Iterator[str]:
    old = new = 0  # lines of the hunk that are still to come
    for line in text.removesuffix("\n").split("\n"):
        hunk = _HUNK.match(line)
        kind = ""
        if hunk is not None:
            old, new = (int(count) if count is not None else 1 for count in hunk.groups())
            kind = "hunk"
        elif old > 0 or new > 0:
            kind = {"+": "added", "-": "removed"}.get(line[:1], "")
            old -= line[:1] not in ("+", "\\")
            new -= line[:1] not in ("-", "\\")
        elif line.startswith(_HEADS):
            kind = "about"
        shown = visible(line)
        yield f'<span class="d-{kind}">{shown}\n</span>' if kind else f"<span>{shown}\n</span>"


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
    """The colour that these numbers begin with, if it is one of the sixteen; others are not drawn."""
    kind = numbers.pop(0) if numbers else 0
    colour = [numbers.pop(0) for _ in range(min({5: 1, 2: 3}.get(kind, 0), len(numbers)))]
    return colour[0] if len(colour) == 1 and colour[0] < 16 else None


def tool_result(text: str) -> Markup | None:
    """The result as markup, or None: show it plain."""
    text = text.replace("\r\n", "\n")
    if len(text) > MOST_RESULT:
        made = json_tree(text) if len(text) - _encoded(text) <= MOST_RESULT else None
    else:
        made = next((made for draw in (json_tree, terminal_colours, diff_lines, _table) if (made := draw(text))), None)
    most = min(MOST_DRAWN + 2 * len(text), 10_000 + _MOST_GROWTH * len(text))
    return made if made is not None and len(made) <= most else None


def _encoded(text: str) -> int:
    """How many characters of JSON are images and files in base64: long strings without a comma after their head."""
    if len(text) > _MOST_WITH_IMAGES or not text.startswith(("{", "[")):
        return 0
    strings = text.replace('\\"', "").split('"')[1::2]
    return sum(len(each) for each in strings if len(each) > 2_000 and each.find(",", 100) < 0)


def _table(text: str) -> Markup | None:
    """A table of text, which must not be wrapped."""
    lines = text.strip("\n").split("\n")
    rows = sum(1 for line in lines if len(line) < 2_000 and _ROW.search(line))
    if rows < 2 or 2 * rows < len(lines):
        return None
    return Markup(f"{scrolling('Table', text, 'pre', 'scroll as-is')}{visible(text)}</pre>")
