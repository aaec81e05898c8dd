"""The rollouts of several files as one: every key once, failures counted over all of them, and notes on the rest.

A key that an earlier file has is passed over in a later one. Memory grows with tasks, not with rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from velodrome.errors import InputError
from velodrome.records.facts import RowFacts
from velodrome.records.other_files import other_file
from velodrome.records.rollout import split_key
from velodrome.records.rows import Unread, read_facts
from velodrome.stats.metrics import failed_keys

Json = dict[str, Any]

_MOST_BITS = 4096


@dataclass
class Taken:
    """What came of reading: keys that only failed, and notes on what was not counted."""

    failed: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)


class Keys:
    """A set of keys that takes one entry a task."""

    def __init__(self) -> None:
        self._repeats: dict[str, int] = {}  # of each task, as bits
        self._others: set[str] = set()

    def add(self, key: str) -> None:
        task, repeat = _parts(key)
        if 0 <= repeat < _MOST_BITS:
            self._repeats[task] = self._repeats.get(task, 0) | 1 << repeat
        else:
            self._others.add(key)

    def __contains__(self, key: str) -> bool:
        task, repeat = _parts(key)
        if 0 <= repeat < _MOST_BITS:
            return bool(self._repeats.get(task, 0) >> repeat & 1)
        return key in self._others

    def update(self, others: Keys) -> None:
        for task, bits in others._repeats.items():
            self._repeats[task] = self._repeats.get(task, 0) | bits
        self._others |= others._others


def _parts(key: str) -> tuple[str, int]:
    try:
        return split_key(key)
    except ValueError:
        return key, -1


def read_shards(paths: Sequence[Path], take: Callable[[RowFacts], object]) -> Taken:
    """Give every rollout of the files to `take`."""
    found = Taken()
    for path in paths:
        found.failed.update(failed_keys(path))
    before: Keys | None = None
    for path in paths:
        own = Keys() if len(paths) > 1 else None
        _read(path, take, found, before, own)
        if own is not None:
            before = before or Keys()
            before.update(own)
    return found


def _read(path: Path, take: Callable[[RowFacts], object], found: Taken, before: Keys | None, own: Keys | None) -> None:
    unread = Unread(path)
    rows = again = 0
    for facts in read_facts(path, unread):
        rows += 1
        key = facts.key
        if before is not None and key is not None and key in before:
            again += 1
            continue
        take(facts)
        if key is not None:
            found.failed.discard(key)
            if own is not None:
                own.add(key)
    found.notes += unread.notes
    if again:
        found.notes.append(
            f"{path}: {again} of its {rows} rollouts have keys that an earlier file has; each key is counted once, "
            "from the file named first (velo compare sets two runs side by side)"
        )


def rollouts_files(paths: Sequence[Path]) -> list[Path]:
    """The files to read, or every mistake in them."""
    problems = []
    for path in paths:
        if path.name.endswith((".failures.jsonl", ".failures.jsonl.zst")):
            problems.append(f"{path}: a failures file has no metrics; velo show {path} reads it")
        elif not path.is_file():
            problems.append(f"{path}: {'not a regular file' if path.exists() else 'no such file'}")
        elif (problem := other_file(path)) is not None:
            problems.append(problem)
    twice = {path for path in paths if sum(path == other for other in paths) > 1}
    problems += [f"{path}: named twice" for path in sorted(twice)]
    if problems:
        raise InputError(*problems)
    return list(paths)
