"""What a tool returned, drawn: JSON as a tree, a diff with its lines coloured, terminal colours, tables as they are."""

from __future__ import annotations

import re

from markupsafe import Markup

from velodrome.viewer.content.diff_lines import diff_lines
from velodrome.viewer.content.json_tree import json_tree
from velodrome.viewer.content.scroll_region import scrolling
from velodrome.viewer.content.terminal_colours import terminal_colours
from velodrome.viewer.parts.safe_text import visible

MOST_RESULT = 200_000  # characters, but for images in base64
_MOST_WITH_IMAGES = 10_000_000
MOST_DRAWN = 2_000_000  # characters of markup
_MOST_GROWTH = 20  # characters of markup per character of text, beyond the first ten thousand
_ROW = re.compile(r"[|│┃║\t].*[|│┃║\t]|^\s*[+├└┌╔╠╚][-=+─┬┼┴┐┤┘═╦╬╩╗╣╝]{3,}|^\s*-{3,}(?:\s+-{3,})+\s*$")


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
