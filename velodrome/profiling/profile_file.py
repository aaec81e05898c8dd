"""The profile of rollouts files, the same for any order of their rows.

A collection writes its rows in the order they were finished in, and those are read in one pass. Rows in any other
order are put into that one first, through a temporary file.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from velodrome.profiling.config_blocks import read_config
from velodrome.profiling.profile import Profile
from velodrome.records.mending import LATEST_S
from velodrome.records.rollout import beside
from velodrome.records.rows import Unread, read_rows

Json = dict[str, Any]

_READ = ("meta", "reward")  # what a profile reads of a row


class _Attempt(NamedTuple):
    """One row, or one failed attempt (with no line)."""

    where: str
    line: int
    size: int
    row: Json

    def add_to(self, profile: Profile) -> None:
        profile.where = self.where
        if self.line:
            profile.add(self.row, line=self.line, size=self.size)
        else:
            profile.fail(self.row)

    def order(self) -> tuple[float, int, str]:
        """When it was finished; the key tells apart what was finished at once."""
        meta = self.row.get("meta") if self.line else self.row
        key = meta.get("key") if isinstance(meta, dict) else None
        end = ended(meta)
        return end if 0 <= end < LATEST_S else 0.0, min(self.line, 1), str(key)


def read_profile(path: Path, *more: Path) -> Json:
    """The profile of one rollouts file, or of several as if they were one, with what stands beside them."""
    files = (path, *more)
    profile = make_profile(*files)
    configs = [config for config in map(read_config, files) if config]
    return profile.report(configs[-1] if configs else None)


def make_profile(*files: Path) -> Profile:
    """A profile that has all attempts of these files, in the order they were finished in."""
    profile = _fed(files, in_order=True)
    return profile if profile.ordered else _fed(files, in_order=False)


def _fed(files: tuple[Path, ...], *, in_order: bool) -> Profile:
    profile = Profile()
    unread = [Unread(each) for each in files]
    attempts = (attempt for each, lost in zip(files, unread, strict=True) for attempt in _attempts(each, lost))
    for attempt in attempts if in_order else _sorted(attempts):
        attempt.add_to(profile)
        if in_order and not profile.ordered:
            return profile
    for note in (note for each in unread for note in each.notes):
        profile.note(note)
    return profile


def _attempts(path: Path, unread: Unread) -> Iterator[_Attempt]:
    """The rows of a file and the failed attempts beside it, each before the first row that was finished after it."""
    where, failures = str(path), failures_of(path)
    failure = next(failures, None)
    for number, row, size in read_rows(path, unread):
        while failure is not None and ended(failure) <= ended(row.get("meta")):
            yield _Attempt(where, 0, 0, failure)
            failure = next(failures, None)
        yield _Attempt(where, number, size, row)
    for late in () if failure is None else (failure, *failures):
        yield _Attempt(where, 0, 0, late)


def _sorted(attempts: Iterator[_Attempt]) -> Iterator[_Attempt]:
    """The same attempts in the order they were finished in; memory holds their places, not their rows."""
    places: list[tuple[tuple[float, int, str], int, int]] = []
    with tempfile.TemporaryFile(prefix="velodrome-profile-") as kept:
        for attempt in attempts:
            row = {name: attempt.row.get(name) for name in _READ} if attempt.line else attempt.row
            data = json.dumps(attempt._replace(row=row)).encode()  # NaN and broken text too
            places.append((attempt.order(), kept.tell(), len(data)))
            kept.write(data)
        for _, at, size in sorted(places):
            kept.seek(at)
            yield _Attempt(*json.loads(kept.read(size)))


def failures_of(rollouts: Path) -> Iterator[Json]:
    """The failed attempts beside a rollouts file."""
    path = beside(rollouts, "failures.jsonl")
    if path.exists():
        for _, failure, _ in read_rows(path, Unread(path)):
            yield failure


def ended(meta: Any) -> float:
    """When an attempt was over; 0 if it does not say."""
    end = meta.get("finished_at") if isinstance(meta, dict) else None
    return end if isinstance(end, int | float) else 0.0
