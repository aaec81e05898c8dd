"""The profile of rollouts files, the same for any order of their rows.

A collection writes its rows in the order they were finished in, and those are read in one pass. Rows in any other
order are put into that one first, through a temporary file.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from velodrome.profiling.config_blocks import read_config
from velodrome.profiling.profile import Profile
from velodrome.records.facts import RowFacts
from velodrome.records.rows import Unread, read_attempts

Json = dict[str, Any]
Attempts = Iterator[tuple[str, RowFacts]]  # each with the name of its file

_READ = ("meta", "reward")  # what a profile reads of a rollout


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
    attempts = (
        (str(each), facts) for each, lost in zip(files, unread, strict=True) for facts in read_attempts(each, lost)
    )
    for profile.where, facts in attempts if in_order else _sorted(attempts):
        profile.add(facts)
        if in_order and not profile.ordered:
            return profile
    for note in (note for each in unread for note in each.notes):
        profile.note(note)
    return profile


def _sorted(attempts: Attempts) -> Attempts:
    """The same attempts in the order they were finished in; memory holds their places, not their rows."""
    places: list[tuple[float, bool, str, int, int]] = []
    with tempfile.TemporaryFile(prefix="velodrome-profile-") as kept:
        for where, facts in attempts:
            row = facts.row if facts.failed else {name: facts.row.get(name) for name in _READ}
            data = json.dumps([where, row, facts.line, facts.size, facts.failed]).encode()  # NaN and broken text too
            places.append((facts.finished_at or 0.0, not facts.failed, facts.key or "", kept.tell(), len(data)))
            kept.write(data)
        for *_, at, size in sorted(places):
            kept.seek(at)
            where, row, line, length, failed = json.loads(kept.read(size))
            yield where, RowFacts(row, line=line, size=length, failed=failed)
