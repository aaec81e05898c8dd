"""Counts by name, of which a model or a file may make up any number."""

from __future__ import annotations


class NameCounts:
    """Counts for each name. Of more names than `most` those that sort first stay, in whatever order they come.

    Such a name was never refused and never dropped, so its counts are complete.
    """

    def __init__(self, most: int, counts: int = 1) -> None:
        self._most = most
        self._new = [0] * counts
        self._last = ""  # of the names that are kept, once there are so many
        self.kept: dict[str, list[int]] = {}

    def counts(self, name: str) -> list[int] | None:
        """The counts of a name, to be changed; None if it is left out."""
        kept = self.kept.get(name)
        if kept is not None:
            return kept
        if len(self.kept) >= self._most:
            if name > self._last:
                return None
            del self.kept[self._last]
        kept = self.kept[name] = [*self._new]
        if len(self.kept) >= self._most:
            self._last = max(self.kept)
        return kept

    def add(self, name: str) -> None:
        """Count a name once."""
        counts = self.counts(name)
        if counts is not None:
            counts[0] += 1

    def most_often(self, few: int = 3) -> list[tuple[str, int]]:
        """The few names that were counted most often, each with how often."""
        counted = ((name, counts[0]) for name, counts in self.kept.items())
        return sorted(counted, key=lambda each: (-each[1], each[0]))[:few]
