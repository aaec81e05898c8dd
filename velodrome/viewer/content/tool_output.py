"""Draws the output of tools: JSON as a tree, a diff and terminal colours as classes, tables unchanged.

Of terminal sequences only text colours and bold have an effect, so no text can be hidden.
"""

from __future__ import annotations

import re

from markupsafe import Markup

from velodrome.viewer.content.highlighting import code
from velodrome.viewer.content.json_tree import json_tree
from velodrome.viewer.parts.safe_text import scrolling, visible

MOST_RESULT = 200_000  # characters
_MOST_GROWTH = 20  # characters of markup per character of text, beyond the first ten thousand
_MOST_CHANGES = 5_000  # of colour
_SGR = re.compile(r"\x1b\[([0-9;:]{0,60})m")
_DIFF_HEAD = re.compile(r"^(?:--- |diff --git |index [0-9a-f]+\.\.)", re.MULTILINE)
_ROW = re.compile(r"[|│┃║\t].*[|│┃║\t]|^\s*[+├└┌╔╠╚][-=+─┬┼┴┐┤┘═╦╬╩╗╣╝]{3,}|^\s*-{3,}(?:\s+-{3,})+\s*$")


def tool_result(text: str) -> Markup | None:
    """The result as markup, or None: show it plain."""
    text = text.replace("\r\n", "\n")
    if len(text) > MOST_RESULT:
        return None
    drawings = (draw(text) for draw in (json_tree, terminal_colours, _diff, _table))
    markup = next((drawing for drawing in drawings if drawing), None)
    return markup if markup is not None and len(markup) <= 10_000 + _MOST_GROWTH * len(text) else None


def terminal_colours(text: str) -> Markup | None:
    """The text as markup, or None if it has no colours."""
    first, *changes = _SGR.split(text)
    if not 0 < len(changes) <= 2 * _MOST_CHANGES:
        return None
    parts = [str(visible(first))]
    bold, colour = "", ""
    for codes, stretch in zip(changes[::2], changes[1::2], strict=True):
        for each in re.split("[;:]", codes):
            number = int(each or 0)
            if number in (38, 48):  # an extended colour: the following codes are its value
                break
            if number in (0, 1, 22):
                bold = "t-bold" if number == 1 else ""
            if number in (0, 39):
                colour = ""
            elif 30 <= number <= 37 or 90 <= number <= 97:
                colour = f"t-{number % 10}"
        style = " ".join(filter(None, (bold, colour)))
        shown = str(visible(stretch))
        parts.append(f'<span class="{style}">{shown}</span>' if style and stretch else shown)
    return Markup(f"{scrolling('Terminal output', text, 'pre', 'scroll terminal')}{''.join(parts)}</pre>")


def _diff(text: str) -> Markup | None:
    head = _DIFF_HEAD.search(text)
    return code(text, "diff") if head and "\n@@ -" in text[head.start() :] else None


def _table(text: str) -> Markup | None:
    """A table of text, which must not be wrapped."""
    lines = text.strip("\n").split("\n")
    rows = sum(1 for line in lines if len(line) < 2_000 and _ROW.search(line))
    if rows < 2 or 2 * rows < len(lines):
        return None
    return Markup(f"{scrolling('Table', text, 'pre', 'scroll as-is')}{visible(text)}</pre>")
