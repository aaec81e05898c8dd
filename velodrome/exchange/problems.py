"""The mistakes in a user's file: each kind once, with its first place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import orjson

from velodrome.errors import InputError, ModelError, describe

_MOST_KINDS = 20
_OTHERS = "other reasons"

# The errors of reading another program's row: fields that are missing, or of another type.
FLAWS = (ModelError, AttributeError, IndexError, KeyError, TypeError, ValueError)


class Problems:
    """A bounded list of mistakes. `count` is the number of wrong places."""

    def __init__(self) -> None:
        self.count = 0
        self._first: dict[str, str] = {}  # kind of mistake -> its first place
        self._times: Counter[str] = Counter()

    def add(self, where: str, what: str) -> None:
        """Note one wrong place; `where` is a file with its line."""
        self.count += 1
        if what in self._first or len(self._first) < _MOST_KINDS:
            self._first.setdefault(what, where)
            self._times[what] += 1

    @contextmanager
    def at(self, where: str, flaws: tuple[type[Exception], ...] = (ValueError,)) -> Iterator[None]:
        """Note the mistake that reading a row raises; the rest of the block is skipped."""
        try:
            yield
        except flaws as error:
            self.add(where, mistake(error))

    def kinds(self) -> dict[str, int]:
        """The number of wrong places of each kind; kinds beyond the bound are counted together."""
        others = self.count - self._times.total()
        return {**self._times, **({_OTHERS: others} if others else {})}

    def lines(self) -> list[str]:
        lines = []
        for what, where in self._first.items():
            repeats = self._times[what] - 1
            lines.append(f"{where}: {what}" + (f" (and {repeats} more like it)" if repeats else ""))
        others = self.count - self._times.total()
        return [*lines, f"and {others} more places with mistakes of other kinds"] if others else lines

    def refuse(self, *hints: str) -> None:
        if self.count:
            raise InputError(*self.lines(), *hints)


def mistake(error: Exception) -> str:
    """A description of the mistake in a row, from the error of reading it."""
    if isinstance(error, orjson.JSONDecodeError):
        return f"not JSON: {error.msg} (character {error.pos + 1} of the line)"
    if isinstance(error, ModelError | ValueError):
        return str(error)
    return f"not a line of this format ({describe(error):.80})"
