"""`rollouts.keys`: which rollouts an output has, so that a resume need not read it.

The file is a cache: a header with the size and modification time of the output that it describes, then 24 bytes per
rollout (a hash of the task's name, the digest of its content, the repeat). If the output has another size or time, the
output is read instead, and the file is written again. An output in `.zst` has none.
"""

from __future__ import annotations

import os
import struct
from array import array
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from velodrome.errors import StorageError
from velodrome.records.jsonl import LostLine, read_lines
from velodrome.records.outfile import write_whole
from velodrome.records.rollout import beside, key_in, meta_in
from velodrome.records.rows import Notes
from velodrome.records.task import hashed

Entry = tuple[str, int, str | None]  # a task's name, the repeat, the digest of its content if there is one

_HEADER = struct.Struct("<24sqqq")  # the kind of file, the output's size and time, the number of rows
_KINDS = {True: b"velodrome keys 3 by task", False: b"velodrome keys 3 by key "}
_ROW = struct.Struct("<QQq")  # name, digest, repeat (-1: none)


def content_number(content: str | None) -> int:
    """A digest as 64 bits; 0 for none."""
    try:
        return int(content or "0", 16) & (2**64 - 1)
    except ValueError:
        return hashed(content or "")


def entry_of(line: bytes) -> Entry | None:
    """The name, repeat and digest of a line of the output; None if it is not a rollout."""
    meta = meta_in(line)
    if meta is None:
        return None
    name, _, repeat = meta["key"].rpartition("/")
    content = meta.get("task_digest")
    number = int(repeat) if repeat.isdecimal() and len(repeat) < 10 else -1
    return name, number, content if isinstance(content, str) else None


def has_other(rollouts: list[tuple[int, int]], content: str) -> bool:
    """Whether one of these rollouts was made from other content. One without a digest counts as equal."""
    own = int(content, 16) if rollouts else 0
    return any(digest not in (0, own) for digest, _ in rollouts)


def _row(entry: Entry) -> bytes:
    name, repeat, content = entry
    return _ROW.pack(hashed(name), content_number(content), repeat)


@dataclass
class Earlier:
    """The rollouts that an output has before a run. `notes` are about lines that are not rollouts."""

    output: Path | None = None
    size: int = 0
    rows: int = 0
    notes: Notes = field(default_factory=Notes)
    records: bytes = b""  # of the rows

    @cached_property
    def _sorted(self) -> tuple[array[int], array[int], array[int]]:
        """Names, digests and repeats of all rows, by name."""
        import numpy as np

        table = np.frombuffer(self.records, dtype=[("name", "<u8"), ("digest", "<u8"), ("repeat", "<i8")])
        table = table[np.argsort(table["name"])]
        return (
            array("Q", table["name"].tobytes()),
            array("Q", table["digest"].tobytes()),
            array("q", table["repeat"].tobytes()),
        )

    @property
    def repeated(self) -> bool:
        """Whether a task has more than one rollout."""
        if not self.rows:
            return False
        import numpy as np

        names = np.frombuffer(self._sorted[0], "<u8")
        return bool((names[1:] == names[:-1]).any())

    def rollouts(self, name: int) -> list[tuple[int, int]]:
        """Digest and repeat of every rollout of the task whose name has this hash."""
        result: list[tuple[int, int]] = []
        if self.rows:
            names, digests, repeats = self._sorted
            at = bisect_left(names, name)
            while at < len(names) and names[at] == name:
                result.append((digests[at], repeats[at]))
                at += 1
        return result

    def forget(self) -> None:
        """Free the memory, once the plan is complete."""
        self.records, self.rows = b"", 0
        self.__dict__.pop("_sorted", None)

    def lost(self, lost: LostLine) -> None:
        """Note what cannot be read. A torn last line is left to the writer, which cuts it."""
        if lost.damaged:
            self.notes.add(f"{self.output}: {lost.reason}; the rollouts there count as not run")
        elif not lost.torn:
            self.left_alone(lost.number, lost.reason)

    def left_alone(self, number: int, reason: str) -> None:
        """Note a line that is not a rollout."""
        self.notes.add(f"{self.output}:{number}: {reason}; it is left alone and counts as not run")


def read_earlier(
    output: Path | None, read: Callable[[bytes], Entry | None] = entry_of, *, by_task: bool = True
) -> Earlier:
    """The rollouts of an output: from its keys file if that fits, else from its lines."""
    earlier = Earlier(output)
    if output is None or not output.exists():
        return earlier
    earlier.size = output.stat().st_size
    records = _saved(output, by_task)
    if records is None:
        rows = []
        for number, line in read_lines(output, lost=earlier.lost):
            entry = read(line)
            if entry is not None:
                rows.append(_row(entry))
            elif line.endswith(b"\n"):  # else it may be torn: the writer looks at that one
                earlier.left_alone(number, "not a rollout")
        records = b"".join(rows)
    earlier.records, earlier.rows = records, len(records) // _ROW.size
    return earlier


def _saved(output: Path, by_task: bool) -> bytes | None:
    """The rows of the keys file; None if there is none for the output as it is."""
    try:
        content, state = keys_path(output).read_bytes(), output.stat()
    except OSError:
        return None
    records = content[_HEADER.size :]
    expected = _header(state.st_size, state.st_mtime_ns, len(records) // _ROW.size, by_task)
    return records if content.startswith(expected) and not len(records) % _ROW.size else None


def _header(size: int, mtime: int, rows: int, by_task: bool) -> bytes:
    return _HEADER.pack(_KINDS[by_task], size, mtime, rows)


def count_rollouts(path: Path) -> int:
    """How many rollouts a file has."""
    if not path.is_file():
        return 0
    return sum(key_in(line) is not None for _, line in read_lines(path, lost=lambda *_: None))


def keys_path(output: Path) -> Path:
    """The path of an output's keys file."""
    return beside(output, "keys")


class KeyFile:
    """The keys file of an output that is written to. If the disk refuses it, the next resume reads the output."""

    def __init__(self, output: Path, earlier: Earlier, size: int, mtime: int, *, by_task: bool = True) -> None:
        self._fd = -1
        self._by_task, self._rows = by_task, earlier.rows
        self._waiting: list[bytes] = []
        if output.suffix == ".zst":
            return
        path = keys_path(output)
        with suppress(StorageError, OSError):
            write_whole(path, _header(size, mtime, self._rows, by_task) + earlier.records)
            self._fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)

    def add(self, entry: Entry) -> None:
        """Add a row that is in the output."""
        if self._fd >= 0:
            self._waiting.append(_row(entry))

    def seal(self, size: int, mtime: int) -> None:
        """Write the rows so far, then the header: the output has this size and time."""
        if self._fd < 0 or not self._waiting:
            return
        rows, self._waiting = b"".join(self._waiting), []
        end = _HEADER.size + self._rows * _ROW.size
        self._rows += len(rows) // _ROW.size
        try:
            if os.pwrite(self._fd, rows, end) != len(rows):
                self.close()
            else:
                os.pwrite(self._fd, _header(size, mtime, self._rows, self._by_task), 0)
        except OSError:
            self.close()

    def close(self) -> None:
        """No more rows."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
