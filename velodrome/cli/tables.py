"""Results: a table on a terminal, JSON on a pipe.

The same rule holds for every verb: a result is a table on a terminal and JSON on a pipe, and `--json` is JSON
everywhere. Reports that are text on a pipe stay text.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from velodrome.timing.invisible import escaped, printed_json
from velodrome.timing.report import for_stream
from velodrome.timing.screen import columns, fitted, is_terminal, padded, page_width, painted

Json = dict[str, Any]
Row = tuple[str, str]

JSON_FLAG = "--json"


def without_json(words: Sequence[str]) -> tuple[list[str], bool]:
    """The words without `--json`, and whether it was there."""
    return [word for word in words if word != JSON_FLAG], JSON_FLAG in words


def wants_json(requested: bool = False) -> bool:
    """Whether a result is printed as JSON."""
    return requested or not is_terminal(sys.stdout)


def print_result(value: Any, draw: Callable[[], str], *, as_json: bool = False) -> None:
    """Print the result of a verb: a table on a terminal, JSON on a pipe."""
    print_text(draw()) if not wants_json(as_json) else print_lines(printed_json(value))


def print_text(text: str) -> None:
    """Print a report, fitted to the terminal."""
    print_lines(for_stream(fitted(text, page_width(sys.stdout)), sys.stdout))


def print_lines(text: str) -> None:
    """Print lines unchanged. A closed pipe does not change the exit code."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def ink(text: str, style: str) -> str:
    """The text in a style, if stdout has colours."""
    return painted(text, style, sys.stdout)


def pairs(rows: Iterable[Row]) -> str:
    """Names and values in two columns."""
    filled = [(escaped(name), text) for name, text in rows if text]
    width = max((columns(name) for name, _ in filled), default=0)
    return "\n".join(f"{ink(padded(name, width), 'dim')}  {text}" for name, text in filled)


def next_step(*commands: str) -> str:
    """The commands to run next."""
    first, *more = map(escaped, commands)
    return "\n".join([f"{ink('next:', 'accent')} {first}", *(f"      {command}" for command in more)])


def print_counts(values: Mapping[str, Any], next_command: str = "", *, as_json: bool = False) -> None:
    """Print a small result, such as the counts of a verb that writes a file, and the next command."""

    def drawn() -> str:
        rows = pairs((name.replace("_", " "), _cell(value)) for name, value in values.items())
        return f"{rows}\n\n{next_step(next_command)}" if next_command else rows

    print_result(values, drawn, as_json=as_json)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{escaped(str(name))} {_cell(each)}" for name, each in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(_cell, value)) or "none"
    return "-" if value is None else escaped(str(value))
