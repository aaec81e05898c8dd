"""Lines of a file that are no rollouts, told in a few notes."""

from __future__ import annotations

from pathlib import Path

from velodrome.records.jsonl import DAMAGED

MOST_NOTES = 20  # on lines of one file


class Unread:
    """What `read_rows` tells of one file: the first few lines by number, of the rest how many there are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self._gaps: list[str] = []
        self._notes: list[str] = []

    def __call__(self, line: int, reason: str, torn: bool) -> None:
        if reason.endswith(DAMAGED):
            self._gaps.append(f"{self.path}: {reason}; what stood there is not counted")
            del self._gaps[MOST_NOTES:]
            return
        self.count += 1
        if torn or len(self._notes) < MOST_NOTES:  # only one line can be torn, and it is the last
            what = "not whole: it is being written, or was torn" if torn else "not a rollout"
            if reason.endswith("nothing after it was read"):
                what = reason
            self._notes.append(f"{self.path}:{line}: {what}; it is not counted")

    @property
    def notes(self) -> list[str]:
        """One line each."""
        more = self.count - len(self._notes)
        rest = [f"{self.path}: {more} more lines are not rollouts"] if more else []
        return [*self._gaps, *self._notes, *rest]
