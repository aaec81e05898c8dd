"""What the output has before a run: which rollouts, and of which content."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from velodrome.records.jsonl import DAMAGED, Lost, read_lines
from velodrome.records.rollout import meta_in

_MOST_NOTES = 20
_SEVERAL = -1

Entry = tuple[str, int, str | None]  # a task's name, the repeat, the digest of the content if there is one


@dataclass
class Earlier:
    """The rollouts of an output: their names and contents, as hashes. `notes` are about lines that are not rollouts."""

    output: Path | None = None
    size: int = 0
    rows: int = 0
    notes: list[str] = field(default_factory=list)
    _done: set[int] = field(default_factory=set)
    _contents: dict[int, int] = field(default_factory=dict)

    def add(self, name: str, repeat: int, content: str | None) -> None:
        """One rollout."""
        self._done.add(hash((name, repeat)))
        if content is not None:
            number, place = _number(content), hash(name)
            if self._contents.setdefault(place, number) != number:
                self._contents[place] = _SEVERAL

    def has(self, name: str, repeat: int) -> bool:
        """Whether this rollout is there."""
        return hash((name, repeat)) in self._done

    def taken(self, name: str, content: str) -> bool:
        """Whether rollouts of this name have other content."""
        number = self._contents.get(hash(name))
        return number is not None and number != _number(content)

    def note(self, text: str) -> None:
        """Keep one of the first notes."""
        if len(self.notes) < _MOST_NOTES:
            self.notes.append(text)

    def lost(self, number: int, reason: str, torn: bool) -> None:
        """Note what cannot be read. A torn last line is left to the writer, which cuts it."""
        if reason.endswith(DAMAGED):
            self.note(f"{self.output}: {reason}; the rollouts there count as not run")
        elif not torn:
            self.note(f"{self.output}:{number}: {reason}; it is left alone and counts as not run")


def _number(content: str) -> int:
    try:
        return int(content, 16)
    except ValueError:
        return hash(content)


def entry_of(line: bytes) -> Entry | None:
    """The name, repeat and digest of a line of the output; None if it is not a rollout."""
    meta = meta_in(line)
    if meta is None:
        return None
    name, _, repeat = meta["key"].rpartition("/")
    content = meta.get("task_digest")
    return name, int(repeat) if repeat.isdecimal() else -1, content if isinstance(content, str) else None


def read_earlier(output: Path | None, read: Callable[[bytes], Entry | None] = entry_of) -> Earlier:
    """Read the output that is there; nothing if there is none.

    A last line without its end may be torn: the writer looks at that one.
    """
    earlier = Earlier(output)
    if output is None or not output.exists():
        return earlier
    earlier.size = output.stat().st_size
    lost: Lost = earlier.lost
    for number, line in read_lines(output, lost=lost):
        entry = read(line)
        if entry is not None:
            earlier.rows += 1
            earlier.add(*entry)
        elif line.endswith(b"\n"):
            earlier.note(f"{output}:{number}: not a rollout; it is left alone and counts as not run")
    return earlier
