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

Entry = tuple[str, int, str | None]  # task name, repeat, content digest if known

_HEADER = struct.Struct("<24sqqq")  # the kind of file, the output's size and time, the number of rows
_KINDS = {True: b"velodrome keys 3 by task", False: b"velodrome keys 3 by key "}
_ROW = struct.Struct("<QQq")  # name, digest, repeat (-1: none)


def digest_bits(digest: str | None) -> int:
    """A digest as a 64-bit number; 0 without a digest."""
    try:
        return int(digest or "0", 16) & (2**64 - 1)
    except ValueError:
        return hashed(digest or "")


def entry_of(line: bytes) -> Entry | None:
    """The name, repeat and digest of a line of the output; None if it is not a rollout."""
    meta = meta_in(line)
    if meta is None:
        return None
    name, _, repeat = meta["key"].rpartition("/")
    digest = meta.get("task_digest")
    rollout_index = int(repeat) if repeat.isdecimal() and len(repeat) < 10 else -1
    return name, rollout_index, digest if isinstance(digest, str) else None


def has_other(rollouts: list[tuple[int, int]], content_digest: str) -> bool:
    """Whether a rollout has different content. A rollout without a digest counts as equal."""
    own_digest = int(content_digest, 16) if rollouts else 0
    return any(digest not in (0, own_digest) for digest, _ in rollouts)


def _row(entry: Entry) -> bytes:
    name, repeat, digest = entry
    return _ROW.pack(hashed(name), digest_bits(digest), repeat)


@dataclass
class Earlier:
    """The rollouts in an output before a run. `notes` are about lines that are not rollouts."""

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

    def rollouts(self, name_hash: int) -> list[tuple[int, int]]:
        """Digest and repeat of every rollout of a task, by the hash of its name."""
        result: list[tuple[int, int]] = []
        if self.rows:
            names, digests, repeats = self._sorted
            index = bisect_left(names, name_hash)
            while index < len(names) and names[index] == name_hash:
                result.append((digests[index], repeats[index]))
                index += 1
        return result

    def free(self) -> None:
        """Free the memory, once the plan is complete."""
        self.records, self.rows = b"", 0
        self.__dict__.pop("_sorted", None)

    def lost(self, lost: LostLine) -> None:
        """Note an unreadable line. The writer cuts a torn last line, so that is not noted."""
        if lost.damaged:
            self.notes.add(f"{self.output}: {lost.reason}; the rollouts there count as not run")
        elif not lost.torn:
            self.note_other_line(lost.number, lost.reason)

    def note_other_line(self, line_number: int, reason: str) -> None:
        """Note a line that is not a rollout."""
        self.notes.add(f"{self.output}:{line_number}: {reason}; it is left alone and counts as not run")


def read_earlier(
    output: Path | None, read: Callable[[bytes], Entry | None] = entry_of, *, by_task: bool = True
) -> Earlier:
    """The rollouts of an output, from its keys file if that is up to date, else from its lines."""
    earlier = Earlier(output)
    if output is None or not output.exists():
        return earlier
    earlier.size = output.stat().st_size
    records = _read_key_file(output, by_task)
    if records is None:
        rows = []
        for line_number, line in read_lines(output, lost=earlier.lost):
            entry = read(line)
            if entry is not None:
                rows.append(_row(entry))
            elif line.endswith(b"\n"):  # without a line end it may be torn: the writer checks that
                earlier.note_other_line(line_number, "not a rollout")
        records = b"".join(rows)
    earlier.records, earlier.rows = records, len(records) // _ROW.size
    return earlier


def _read_key_file(output: Path, by_task: bool) -> bytes | None:
    """The rows of the keys file; None if there is none, or if it is out of date."""
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
    """The number of rollouts in a file."""
    if not path.is_file():
        return 0
    return sum(key_in(line) is not None for _, line in read_lines(path, lost=lambda *_: None))


def keys_path(output: Path) -> Path:
    """The path of an output's keys file."""
    return beside(output, "keys")


class KeyFile:
    """Writes the keys file of an output. If the disk refuses it, the next resume reads the output."""

    def __init__(self, output: Path, earlier: Earlier, size: int, mtime: int, *, by_task: bool = True) -> None:
        self._fd = -1
        self._by_task, self._rows = by_task, earlier.rows
        self._unwritten: list[bytes] = []
        if output.suffix == ".zst":
            return
        path = keys_path(output)
        with suppress(StorageError, OSError):
            write_whole(path, _header(size, mtime, self._rows, by_task) + earlier.records)
            self._fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)

    def add(self, entry: Entry) -> None:
        """Add the entry of a row that was appended to the output."""
        if self._fd >= 0:
            self._unwritten.append(_row(entry))

    def seal(self, size: int, mtime: int) -> None:
        """Write the entries so far, then the header with the size and time of the output."""
        if self._fd < 0 or not self._unwritten:
            return
        rows, self._unwritten = b"".join(self._unwritten), []
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
        """Close the file; later entries are ignored."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
