"""What is wrong with a file a user gave: each kind of mistake once, with the first place it stands in."""

from __future__ import annotations

from velodrome.errors import InputError

_MOST_KINDS = 20


class Problems:
    """A bounded list of mistakes. `count` is how many places are wrong in all."""

    def __init__(self) -> None:
        self.count = 0
        self._places: dict[str, list[str | int]] = {}  # what -> first place, how often
        self._untold = 0

    def add(self, where: str, what: str) -> None:
        """Note one wrong place; `where` is a file with its line."""
        self.count += 1
        if what in self._places:
            self._places[what][1] = int(self._places[what][1]) + 1
        elif len(self._places) < _MOST_KINDS:
            self._places[what] = [where, 1]
        else:
            self._untold += 1

    def lines(self) -> list[str]:
        """One line a kind of mistake."""
        found = [
            f"{where}: {what}" + (f" (and {int(times) - 1} more like it)" if int(times) > 1 else "")
            for what, (where, times) in self._places.items()
        ]
        if self._untold:
            found.append(f"and {self._untold} more places with mistakes of other kinds")
        return found

    def refuse(self, *hints: str) -> None:
        """Raise if anything is wrong."""
        if self.count:
            raise InputError(*self.lines(), *hints)
