"""The abilities of a stream: colour, a moving bar, and its width. All commands use this module.

Colour follows NO_COLOR, FORCE_COLOR and TERM=dumb, and never carries information alone. Text is wrapped between words;
a word longer than a line, such as a path, is not split, so that it can be copied.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator
from contextvars import ContextVar
from typing import IO

page: ContextVar[int | None] = ContextVar("page", default=None)  # columns of tables and pictures; None: any number

USUAL, NARROWEST = 80, 30
_STYLES = {"bold": "1", "dim": "2", "red": "1;31", "green": "1;32", "yellow": "1;33", "accent": "36"}
_PAINT = re.compile(r"\x1b\[[0-9;]*m")
_COMMAND = re.compile(r"(?: {2,}|next: |\$ )(?:\S*/)?(?:velo|ng_\w+) ")
_GAP = re.compile(r"(?<=\S) {2,}(?=\S)")
_SHELL_WORD = re.compile(r"""(?:[^\s"']|"[^"]*"|'[^']*')+""")


def coloured(stream: IO[str]) -> bool:
    """Whether text for this stream is coloured."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return redraws(stream)


def redraws(stream: IO[str]) -> bool:
    """Whether the stream is a screen with a cursor that can move."""
    return is_terminal(stream) and os.environ.get("TERM", "dumb") not in ("", "dumb")


def is_terminal(stream: IO[str]) -> bool:
    """Whether the stream is a terminal."""
    try:
        return stream.isatty()
    except (AttributeError, ValueError):  # not a stream, or a closed one
        return False


def page_width(stream: IO[str]) -> int | None:
    """The width of this stream's terminal; None if it is not a terminal, so lines may be long."""
    return screen_width(stream) if is_terminal(stream) else None


def screen_width(stream: IO[str]) -> int:
    """The width from COLUMNS, else of this stream's terminal, else 80."""
    if (setting := os.environ.get("COLUMNS", "")).isdigit() and int(setting):
        return max(int(setting), NARROWEST)
    try:
        size = os.get_terminal_size(stream.fileno()).columns
    except (AttributeError, ValueError, OSError):
        size = USUAL
    return max(size or USUAL, NARROWEST)


def columns(text: str) -> int:
    """The width of the text on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text
    )


def padded(text: str, width: int, *, right: bool = False) -> str:
    """The text filled up with spaces to `width` columns."""
    fill = " " * max(width - columns(text), 0)
    return fill + text if right else text + fill


def painted(text: str, style: str, stream: IO[str]) -> str:
    """The text in a style, if the stream has colours."""
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if text and coloured(stream) else text


def fitted(text: str, width: int | None, *, hang: int = 2) -> str:
    """The text with lines of at most `width` columns. A continuation is indented to the start of the last column.

    A command continues with a backslash, so that it can still be copied.
    """
    if width is None:
        return text
    return "\n".join(part for line in text.split("\n") for part in _fitted(line, width, hang))


def _fitted(line: str, width: int, hang: int) -> Iterator[str]:
    if _shown(line) <= width:
        yield line
        return
    indent = len(line) - len(line.lstrip(" "))
    if _COMMAND.match(_PAINT.sub("", line)):
        yield from _fitted_command(line, indent, width)
        return
    gaps = [match.end() for match in _GAP.finditer(line)]
    column = max((gap for gap in gaps if _shown(line[:gap]) <= width * 0.6), default=indent)
    begin = " " * (_shown(line[:column]) if column > indent else indent + hang)
    yield from _wrapped(line[:column], line[column:].split(" "), begin, width)


def _wrapped(head: str, words: list[str], begin: str, width: int) -> Iterator[str]:
    """The words after `head`, as many on a line as fit."""
    line, is_empty = head, True
    for word in words:
        if not is_empty and _shown(line) + 1 + _shown(word) > width:
            yield line.rstrip()
            line, is_empty = begin, True
        line += word if is_empty else f" {word}"
        is_empty = False
    yield line.rstrip()


def _fitted_command(line: str, indent: int, width: int) -> Iterator[str]:
    command, *notes = _GAP.split(line.strip(), maxsplit=1)
    words = _SHELL_WORD.findall(command) if command.count('"') % 2 == 0 == command.count("'") % 2 else command.split()
    begin = " " * (indent + 4)
    lines = list(_wrapped(" " * indent, words, begin, width - 2))
    yield from (f"{each} \\" for each in lines[:-1])
    yield lines[-1]
    for note in notes:
        yield from _wrapped(begin, note.split(), begin, width)


def paragraphs(text: str, width: int) -> str:
    """Prose with lines of at most `width` columns: lines of a paragraph are joined, indented ones are kept."""
    lines: list[str] = []
    open_paragraph = False
    for line in text.split("\n"):
        if open_paragraph and line and not line.startswith(" "):
            lines[-1] += f" {line}"
        else:
            lines.append(line)
        open_paragraph = bool(line) and not line.startswith(" ") and not line.endswith(":")
    return fitted("\n".join(lines), width, hang=0)


def _shown(text: str) -> int:
    return columns(_PAINT.sub("", text))
