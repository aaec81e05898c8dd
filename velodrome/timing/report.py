"""Timings as text for a terminal: the tree, a table, a sparkline, a histogram. It knows names and numbers only.

Names come from files and from models: what could move a cursor or end a line is shown as an escape, and a long name
is cut. `for_stream` draws the same in ASCII, column by column, where a terminal has no other characters. Where `page`
is set, a picture is at most so wide: a table with more columns becomes several, one below the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import floor, isfinite
from typing import IO

from velodrome.timing.figures import duration
from velodrome.timing.invisible import escaped
from velodrome.timing.screen import columns, padded, page

LONGEST_NAME = 48
_LABEL_WIDTH = 24
_VALUE_WIDTH = 8
_BLOCKS = "▁▂▃▄▅▆▇█"
_IN_ASCII = str.maketrans(f"•…µ{_BLOCKS}", "*~u_.:-=+*#")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a tree: `depth` 0 is the whole, 1 its parts, 2 what is inside a part."""

    name: str
    depth: int
    mean_ms: float
    bottleneck: bool = False
    note: str = ""


def tree(title: str, lines: Sequence[Line]) -> str:
    """The title, and one aligned line for each part with its mean."""
    labels = [_label(line) for line in lines]
    digits = decimals(max((line.mean_ms for line in lines), default=0.0))
    values = [f"{line.mean_ms:.{digits}f}" for line in lines]
    label_width = max([_LABEL_WIDTH, *map(columns, labels)])
    value_width = max([_VALUE_WIDTH, *(len(value) + 2 for value in values)])
    shown = [clean(title, longest=200)]
    for line, label, value in zip(lines, labels, values, strict=True):
        mark = "  <-- BOTTLENECK" if line.bottleneck else ""
        note = f"  ({clean(line.note, longest=100)})" if line.note else ""
        shown.append(f"{padded(label, label_width)}{value:>{value_width}} ms{mark}{note}")
    return "\n".join(shown)


def _label(line: Line) -> str:
    name = clean(line.name)
    if line.depth <= 1:
        return f"    - {name}" if line.depth else f"  {name}"
    return f"{'    ' * line.depth}• {name}"


def decimals(largest_ms: float) -> int:
    """Enough decimals to tell the parts of a short total apart."""
    return 1 if largest_ms >= 100 else 2 if largest_ms >= 10 else 3


def rounded_parts(whole: int, parts: Sequence[float]) -> list[int]:
    """Whole numbers near the parts that add up to `whole`: the largest remainders are rounded up."""
    rounded = [floor(part + 1e-6) for part in parts]  # 2.9999999 is 3, apart from the computer's own rounding
    order = sorted(range(len(parts)), key=lambda index: rounded[index] - parts[index])
    for index in range(whole - sum(rounded)):
        rounded[order[index % len(order)]] += 1
    return rounded


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: int = 1,
    longest: int = LONGEST_NAME,
) -> str:
    """Aligned columns: the first `left` of them to the left, the others, which are numbers, to the right."""
    if (most := page.get()) is not None:
        longest = min(longest, most // (3 if left == 2 else 2))  # a name beside a text leaves less room
    cells = [[clean(cell, longest=longest) for cell in row] for row in (head, *rows)]
    widths = [max(columns(row[index]) for row in cells) for index in range(len(head))]

    def line(row: Sequence[str], part: Iterable[int]) -> str:
        return "  ".join(padded(row[index], widths[index], right=index >= left) for index in part).rstrip()

    return "\n\n".join("\n".join(line(row, part) for row in cells) for part in _parts(widths, left))


def _parts(widths: Sequence[int], left: int) -> Iterator[list[int]]:
    """The columns that fit beside each other on the page; the first columns are repeated in every part."""
    most = page.get()
    names = list(range(left))
    part = list(names)
    for index in range(left, len(widths)):
        if most is not None and len(part) > left and sum(widths[each] + 2 for each in [*part, index]) - 2 > most:
            yield part
            part = list(names)
        part.append(index)
    yield part


def _within_page(width: int, beside: int) -> int:
    most = page.get()
    return width if most is None else max(min(width, most - beside), 8)


def sparkline(values: Sequence[float | None], width: int = 60) -> str:
    """One character a stretch of time, from 0 to the largest value; a stretch without values is blank."""
    means = _squeezed(values, _within_page(width, 4))
    top = max((mean for mean in means if mean is not None), default=0.0)
    if top <= 0:
        return "".join(" " if mean is None else _BLOCKS[0] for mean in means)
    last = len(_BLOCKS) - 1
    return "".join(" " if mean is None else _BLOCKS[round(max(mean, 0.0) / top * last)] for mean in means)


def curve(values: Sequence[float | None], *, width: int = 60, height: int = 5) -> str:
    """A line of values as an area, from the smallest to the largest, both of which are written beside it."""
    known = [value for value in values if value is not None and isfinite(value)]
    if not known:
        return ""
    low, high = min(known), max(known)
    ends = [f"{high:.4g}", *[""] * (height - 2), f"{low:.4g}"]
    label = max(map(len, ends))
    means = _squeezed(values, _within_page(width, label + 4))
    steps = height * len(_BLOCKS)
    levels = [0 if mean is None else 1 + round((mean - low) / ((high - low) or 1.0) * (steps - 1)) for mean in means]
    rows = []
    for row, end in enumerate(ends):
        base = (height - 1 - row) * len(_BLOCKS)
        filled = (min(max(level - base, 0), len(_BLOCKS)) for level in levels)
        rows.append(f"{end:>{label}} " + "".join(_BLOCKS[count - 1] if count else " " for count in filled))
    return "\n".join(row.rstrip() for row in rows)


def _squeezed(values: Sequence[float | None], width: int) -> list[float | None]:
    count = min(width, len(values))
    means: list[float | None] = []
    for index in range(count):
        part = values[index * len(values) // count : (index + 1) * len(values) // count]
        known = [value for value in part if value is not None and isfinite(value)]
        means.append(sum(known) / len(known) if known else None)
    return means


def histogram(edges_ms: Sequence[float], counts: Sequence[int], width: int = 40) -> str:
    """One bar a bin, with the bin's edges and its count; empty bins at both ends are left out."""
    filled = [index for index, count in enumerate(counts) if count > 0]
    if not filled:
        return ""
    top, width = max(counts), _within_page(width, 34)
    rows = []
    for index in range(filled[0], filled[-1] + 1):
        length = round(counts[index] / top * width)
        bar = _BLOCKS[-1] * max(length, 1 if counts[index] else 0)
        edges = [duration(edge) for edge in edges_ms[index : index + 2]]
        rows.append((*edges, bar, str(counts[index])))
    ends = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        f"{low:>{ends[0]}} - {high:>{ends[1]}}  {padded(bar, ends[2])}  {count:>{ends[3]}}"
        for low, high, bar, count in rows
    )


def clean(text: str, *, longest: int = LONGEST_NAME) -> str:
    """Text on one line without control characters, cut to `longest` columns."""
    shown = text[: longest * 4]
    if not shown.isprintable():
        shown = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in shown)
    shown = escaped(shown)  # some of what cannot be seen counts as printable
    if columns(shown) <= longest and len(text) <= longest * 4:
        return shown
    while shown and columns(shown) > longest - 1:
        shown = shown[:-1]
    return shown + "…"


def sections(parts: Iterable[tuple[str, Iterable[str]]]) -> str:
    """Titles with their texts below them, indented; an empty section is left out."""
    shown = []
    for title, texts in parts:
        lines = [f"  {line}" if title else line for text in texts for line in text.splitlines()]
        if lines:
            shown.append("\n".join([title, *lines] if title else lines))
    return "\n\n".join(shown)


def speaks_unicode(stream: IO[str]) -> bool:
    """Whether the stream's encoding has the characters that the pictures are drawn with."""
    try:
        f"•…µ{_BLOCKS}".encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def for_stream(text: str, stream: IO[str]) -> str:
    """The text as the stream can show it."""
    return text if speaks_unicode(stream) else text.translate(_IN_ASCII).encode("ascii", "backslashreplace").decode()
