"""Timings as text for a terminal: trees, tables, sparklines and histograms of names and numbers.

Names come from files and from models: control characters are escaped, and long names are cut. `for_stream` replaces the
characters of pictures by ASCII if the terminal has no others. If `page` is set, pictures are at most that wide: a wider
table becomes several, one below the other.
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
    """One line of a tree: `depth` 0 is the total, 1 its parts, 2 the parts of a part."""

    name: str
    depth: int
    mean_ms: float
    bottleneck: bool = False
    note: str = ""


def tree(title: str, lines: Sequence[Line]) -> str:
    """The title, and one aligned line per part with its mean."""
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
    rounded = [floor(part + 1e-6) for part in parts]  # 2.9999999 is 3 with a rounding error
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
    """Aligned columns: the first `left` to the left, the others, which are numbers, to the right."""
    if (page_width := page.get()) is not None:
        longest = min(longest, page_width // (3 if left == 2 else 2))  # a name beside a text leaves less room
    cells = [[clean(cell, longest=longest) for cell in row] for row in (head, *rows)]
    widths = [max(columns(row[index]) for row in cells) for index in range(len(head))]

    def line(row: Sequence[str], part: Iterable[int]) -> str:
        return "  ".join(padded(row[index], widths[index], right=index >= left) for index in part).rstrip()

    return "\n\n".join("\n".join(line(row, part) for row in cells) for part in _parts(widths, left))


def _parts(widths: Sequence[int], left: int) -> Iterator[list[int]]:
    """The columns that fit beside each other on the page; the first columns are repeated in every part."""
    page_width = page.get()
    name_columns = list(range(left))
    part = list(name_columns)
    for index in range(left, len(widths)):
        if (
            page_width is not None
            and len(part) > left
            and sum(widths[each] + 2 for each in [*part, index]) - 2 > page_width
        ):
            yield part
            part = list(name_columns)
        part.append(index)
    yield part


def _within_page(width: int, beside: int) -> int:
    page_width = page.get()
    return width if page_width is None else max(min(width, page_width - beside), 8)


def sparkline(values: Sequence[float | None], width: int = 60) -> str:
    """One character per stretch of time, from 0 to the largest value; a stretch without values is blank."""
    means = _squeezed(values, _within_page(width, 4))
    largest = max((mean for mean in means if mean is not None), default=0.0)
    if largest <= 0:
        return "".join(" " if mean is None else _BLOCKS[0] for mean in means)
    last = len(_BLOCKS) - 1
    return "".join(" " if mean is None else _BLOCKS[round(max(mean, 0.0) / largest * last)] for mean in means)


def curve(values: Sequence[float | None], *, width: int = 60, height: int = 5) -> str:
    """A chart of the area below the values, labelled with the smallest and the largest."""
    finite = [value for value in values if value is not None and isfinite(value)]
    if not finite:
        return ""
    low, high = min(finite), max(finite)
    labels = [f"{high:.4g}", *[""] * (height - 2), f"{low:.4g}"]
    label_width = max(map(len, labels))
    means = _squeezed(values, _within_page(width, label_width + 4))
    steps = height * len(_BLOCKS)
    levels = [0 if mean is None else 1 + round((mean - low) / ((high - low) or 1.0) * (steps - 1)) for mean in means]
    rows = []
    for row, text in enumerate(labels):
        base = (height - 1 - row) * len(_BLOCKS)
        filled = (min(max(level - base, 0), len(_BLOCKS)) for level in levels)
        rows.append(f"{text:>{label_width}} " + "".join(_BLOCKS[count - 1] if count else " " for count in filled))
    return "\n".join(row.rstrip() for row in rows)


def _squeezed(values: Sequence[float | None], width: int) -> list[float | None]:
    count = min(width, len(values))
    means: list[float | None] = []
    for index in range(count):
        part = values[index * len(values) // count : (index + 1) * len(values) // count]
        finite = [value for value in part if value is not None and isfinite(value)]
        means.append(sum(finite) / len(finite) if finite else None)
    return means


def histogram(edges_ms: Sequence[float], counts: Sequence[int], width: int = 40) -> str:
    """One bar per bin, with its edges and count; empty bins at either end are left out."""
    filled = [index for index, count in enumerate(counts) if count > 0]
    if not filled:
        return ""
    largest, width = max(counts), _within_page(width, 34)
    rows = []
    for index in range(filled[0], filled[-1] + 1):
        length = round(counts[index] / largest * width)
        bar = _BLOCKS[-1] * max(length, 1 if counts[index] else 0)
        edges = [duration(edge) for edge in edges_ms[index : index + 2]]
        rows.append((*edges, bar, str(counts[index])))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        f"{low:>{widths[0]}} - {high:>{widths[1]}}  {padded(bar, widths[2])}  {count:>{widths[3]}}"
        for low, high, bar, count in rows
    )


def clean(text: str, *, longest: int = LONGEST_NAME) -> str:
    """Text on one line without control characters, cut to `longest` columns."""
    shown = text[: longest * 4]
    if not shown.isprintable():
        shown = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in shown)
    shown = escaped(shown)  # some invisible characters count as printable
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
    """Whether the stream's encoding has the characters of the pictures."""
    try:
        f"•…µ{_BLOCKS}".encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def for_stream(text: str, stream: IO[str]) -> str:
    """The text, in ASCII if the stream has no other characters."""
    return text if speaks_unicode(stream) else text.translate(_IN_ASCII).encode("ascii", "backslashreplace").decode()
