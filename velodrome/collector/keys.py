"""`rollouts.keys`: which rollouts an output has, so that a resume need not read them.

The file is a cache. Each record is 32 bytes: a row (hash of the task's name, digest of its content, repeat) or a seal
(size, change time and checksum of the output, and a checksum of this file, all up to that point). A batch of rows
is sealed after the rows are in the output. On resume everything up to the last good seal counts if the output is the
one that was sealed: same size and time, or else the same bytes. The time is `ctime`, which no program can set, so an
edit that restores the modification time is noticed. Rows that the output has beyond the seal are read from the output.
In any other case the output is read whole, and the file is rewritten.

An output in `.zst` has no such file.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from velodrome.errors import StorageError
from velodrome.records.jsonl import LostLine, read_lines
from velodrome.records.outfile import write_whole
from velodrome.records.rollout import beside, key_in, meta_in

if TYPE_CHECKING:
    import numpy as np

Entry = tuple[str, int, str | None]  # a task's name, the repeat, the digest of its content if there is one

_HEADER = b"velodrome keys 1"  # 16 bytes, then what the rows are named by
_NAMED = {True: b" by task        ", False: b" by key         "}
_TRIES = 3  # seals to look at, from the end
_ROW = struct.Struct("<QQqII")  # name, digest, repeat (-1: none), kind, unused
_SEAL = struct.Struct("<QqIIII")  # size, ctime, checksum of the output, checksum of this file, kind, unused
_KIND = struct.Struct("<I")
_ROW_KIND, _SEAL_KIND = 1, 2
_CHUNK_BYTES = 4 * 1024 * 1024
_TAIL_BYTES = 1024 * 1024
_MOST_NOTES = 20


def name_hash(name: str) -> int:
    """64 bits that stand for a name, the same in every process."""
    return int.from_bytes(hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest(), "little")


def content_number(content: str | None) -> int:
    """A digest as 64 bits; 0 for none."""
    try:
        return int(content or "0", 16) & (2**64 - 1)
    except ValueError:
        return name_hash(content or "")


def entry_of(line: bytes) -> Entry | None:
    """The name, repeat and digest of a line of the output; None if it is not a rollout."""
    meta = meta_in(line)
    if meta is None:
        return None
    name, _, repeat = meta["key"].rpartition("/")
    content = meta.get("task_digest")
    number = int(repeat) if repeat.isdecimal() and len(repeat) < 10 else -1
    return name, number, content if isinstance(content, str) else None


def _row(entry: Entry) -> bytes:
    name, repeat, content = entry
    return _ROW.pack(name_hash(name), content_number(content), repeat, _ROW_KIND, 0)


@dataclass
class Earlier:
    """The rollouts that an output has before a run. `notes` are about lines that are not rollouts."""

    output: Path | None = None
    size: int = 0
    rows: int = 0
    notes: list[str] = field(default_factory=list)
    records: bytes = b""  # of the rows
    sealed: tuple[int, int] = (0, 0)  # how much of the output has a known checksum, and that
    _lines_before: int | None = None  # in the sealed part
    _done: set[tuple[int, int]] | None = None
    _contents: dict[int, set[int]] = field(default_factory=dict)

    def columns(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Names, digests and repeats of all rows."""
        import numpy as np

        table = np.frombuffer(self.records, dtype=_columns())
        return table["name"], table["digest"], table["repeat"]

    def has(self, name: str, repeat: int) -> bool:
        """Whether this rollout is there."""
        return (name_hash(name), repeat) in self._looked_up()

    def taken(self, name: str, content: str) -> bool:
        """Whether rollouts of this name have other content."""
        self._looked_up()
        return bool(self._contents.get(name_hash(name), set()) - {0, content_number(content)})

    def _looked_up(self) -> set[tuple[int, int]]:
        if self._done is None:
            self._done = set()
            for name, digest, repeat, _, _ in _ROW.iter_unpack(self.records):
                self._done.add((name, repeat))
                self._contents.setdefault(name, set()).add(digest)
        return self._done

    def add(self, entry: Entry) -> None:
        """One rollout."""
        self.records += _row(entry)
        self.rows += 1

    def note(self, text: str) -> None:
        """Keep one of the first notes."""
        if len(self.notes) < _MOST_NOTES:
            self.notes.append(text)

    def lost(self, lost: LostLine) -> None:
        """Note what cannot be read. A torn last line is left to the writer, which cuts it."""
        if lost.damaged:
            self.note(f"{self.output}: {lost.reason}; the rollouts there count as not run")
        elif not lost.torn:
            self.left_alone(lost.number, lost.reason)

    def left_alone(self, number: int, reason: str) -> None:
        """Note a line that is not a rollout, by its number after the sealed part."""
        if self.output is not None and len(self.notes) < _MOST_NOTES:
            if self._lines_before is None:
                self._lines_before = _count_lines(self.output, self.sealed[0])
            self.note(f"{self.output}:{self._lines_before + number}: {reason}; it is left alone and counts as not run")


def _columns() -> list[tuple[str, str]]:
    return [("name", "<u8"), ("digest", "<u8"), ("repeat", "<i8"), ("kind", "<u4"), ("unused", "<u4")]


def read_earlier(
    output: Path | None, read: Callable[[bytes], Entry | None] = entry_of, *, by_task: bool = True
) -> Earlier:
    """What the output has, by its keys file if that is good; nothing if there is no output."""
    if output is None or not output.exists():
        return Earlier(output)
    earlier = _sealed(output, read, by_task) or Earlier(output)
    earlier.size = output.stat().st_size
    parts, rows = [earlier.records], 0
    for number, line in read_lines(output, start=earlier.sealed[0], lost=earlier.lost):
        entry = read(line)
        if entry is not None:
            parts.append(_row(entry))
            rows += 1
        elif line.endswith(b"\n"):  # else it may be torn: the writer looks at that one
            earlier.left_alone(number, "not a rollout")
    earlier.records = b"".join(parts)
    earlier.rows += rows
    return earlier


def _sealed(output: Path, read: Callable[[bytes], Entry | None], by_task: bool) -> Earlier | None:
    """What the keys file says of the output; None if it cannot be trusted."""
    header = _HEADER + _NAMED[by_task]
    try:
        content = keys_path(output).read_bytes()
        state = output.stat()
    except OSError:
        return None
    if output.suffix == ".zst" or not content.startswith(header):
        return None
    data = memoryview(content)[len(header) :]
    good = [place for place in _seals(data) if _is_good(data, place, state.st_size)]
    if not good:
        return None
    place = good[0]
    size, ctime, checksum, *_ = _SEAL.unpack_from(data, place)
    records = _rows(data[:place])
    same = (size, ctime) == (state.st_size, state.st_ctime_ns) and _ends_with(output, size, read, records[-32:])
    if not same and _checksum(output, 0, size, 0) != checksum:
        return None
    return Earlier(output, rows=len(records) // _ROW.size, records=records, sealed=(size, checksum))


def _is_good(data: memoryview, place: int, size: int) -> bool:
    """Whether what is before a seal is intact, and the output is at least as large as it says."""
    sealed, _, _, own, *_ = _SEAL.unpack_from(data, place)
    return bool(own == zlib.crc32(data[:place]) and sealed <= size)


def _seals(data: memoryview) -> Iterator[int]:
    """The places of the last seals, from the end."""
    tries = 0
    for place in range(len(data) - len(data) % _ROW.size - _ROW.size, -1, -_ROW.size):
        if _KIND.unpack_from(data, place + 24)[0] == _SEAL_KIND:
            yield place
            tries += 1
            if tries == _TRIES:
                return


def _rows(data: memoryview) -> bytes:
    """The rows between the seals."""
    import numpy as np

    table = np.frombuffer(data, dtype=_columns())
    rows: bytes = table[table["kind"] == _ROW_KIND].tobytes()
    return rows


def _ends_with(output: Path, size: int, read: Callable[[bytes], Entry | None], record: bytes) -> bool:
    """Whether the last line of the output is the one that this record is of."""
    start = max(size - _TAIL_BYTES, 0)
    with output.open("rb") as stream:
        stream.seek(start)
        line = stream.read(size - start).rstrip(b"\n").rpartition(b"\n")[2]
    entry = read(line)
    return entry is not None and _row(entry) == record


def _count_lines(path: Path, end: int) -> int:
    lines = 0
    with path.open("rb", buffering=0) as stream:
        while end > 0 and (data := stream.read(min(_CHUNK_BYTES, end))):
            lines += data.count(b"\n")
            end -= len(data)
    return lines


def _checksum(path: Path, start: int, end: int, checksum: int) -> int:
    with path.open("rb", buffering=0) as stream:
        stream.seek(start)
        while start < end and (data := stream.read(min(_CHUNK_BYTES, end - start))):
            checksum = zlib.crc32(data, checksum)
            start += len(data)
    return checksum


def count_rollouts(path: Path) -> int:
    """How many rollouts a file has."""
    if not path.is_file():
        return 0
    return sum(key_in(line) is not None for _, line in read_lines(path, lost=lambda *_: None))


def keys_path(output: Path) -> Path:
    """Where the keys of an output are."""
    return beside(output, "keys")


class KeyFile:
    """The keys file of an output that is written to. If the disk refuses it, the next resume takes longer."""

    def __init__(self, output: Path, earlier: Earlier, size: int, ctime: int, *, by_task: bool = True) -> None:
        self._fd = -1
        self._waiting: list[bytes] = []
        if output.suffix == ".zst":
            return
        with suppress(StorageError, OSError):
            known, checksum = earlier.sealed
            self._output_checksum = _checksum(output, known, size, checksum)
            self._own = zlib.crc32(earlier.records)
            path = keys_path(output)
            write_whole(path, _HEADER + _NAMED[by_task] + earlier.records + self._seal(size, ctime))
            self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def add(self, entry: Entry, line: bytes) -> None:
        """One row that is in the output."""
        if self._fd >= 0:
            self._waiting.append(_row(entry))
            self._output_checksum = zlib.crc32(line, self._output_checksum)

    def seal(self, size: int, ctime: int) -> None:
        """The rows so far are those of an output of this size and time."""
        if self._fd < 0 or not self._waiting:
            return
        rows, self._waiting = b"".join(self._waiting), []
        self._own = zlib.crc32(rows, self._own)
        data = rows + self._seal(size, ctime)
        try:
            if os.write(self._fd, data) != len(data):
                self.close()
        except OSError:
            self.close()

    def _seal(self, size: int, ctime: int) -> bytes:
        seal = _SEAL.pack(size, ctime, self._output_checksum, self._own, _SEAL_KIND, 0)
        self._own = zlib.crc32(seal, self._own)
        return seal

    def close(self) -> None:
        """No more rows."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
