"""People's judgements of rollouts: tags, a note and a rating, in `rollouts.notes.jsonl` beside the file.

One line per change, appended whole or not at all. The last line of a person about a rollout counts; a line without
tags, note and rating withdraws the judgement. A rollout is identified by its key and finish time, because `overwrite`
reuses keys. Lines that are not judgements are kept, reported, and otherwise ignored.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from itertools import combinations, islice
from pathlib import Path
from typing import Any

import orjson

from velodrome.errors import InputError, VelodromeError
from velodrome.records.appender import Appender
from velodrome.records.jsonl import loads, open_regular, read_lines
from velodrome.records.mending import LATEST_S
from velodrome.records.rollout import beside

RATINGS = range(1, 6)
LONGEST_NOTE, LONGEST_NAME, MOST_TAGS = 10_000, 60, 20  # characters, characters of a person or a tag, tags
_LONGEST_LINE = 128 * 1024
_MOST_NAMED = 5
_FIRST_LINES = 20
_SAME_TIME_S = 1e-3


@dataclass(frozen=True, slots=True)
class Judgement:
    """One person's judgement of one rollout. `at` is its time, `finished_at` the time the rollout finished."""

    key: str
    by: str
    at: float
    tags: tuple[str, ...] = ()
    note: str = ""
    rating: int | None = None
    finished_at: float | None = None

    @property
    def empty(self) -> bool:
        """Whether it withdraws an earlier judgement."""
        return not (self.tags or self.note or self.rating)

    def words(self) -> dict[str, Any]:
        """The judgement without its rollout."""
        return {"by": self.by, "at": self.at, "rating": self.rating, "tags": list(self.tags), "note": self.note}

    def is_of(self, finished_at: float | None) -> bool:
        """Whether it is about the rollout of its key that finished then. If a time is missing, the key is enough."""
        if self.finished_at is None or finished_at is None:
            return True
        return abs(self.finished_at - finished_at) < _SAME_TIME_S


_FIELDS = tuple(each.name for each in fields(Judgement))


def notes_file(rollouts: Path) -> Path:
    """The file with the judgements of a rollouts file."""
    return beside(rollouts, "notes.jsonl")


def make_judgement(
    key: str, by: str, *, tags: str | Iterable[str] = (), note: str = "", rating: Any = None, finished_at: Any = None
) -> Judgement:
    """A judgement at the current time. `tags` may be one text, separated by commas or spaces."""
    by, note = " ".join(by.split()), note.replace("\r\n", "\n").strip()
    words = tags.replace(",", " ").split() if isinstance(tags, str) else [" ".join(tag.split()) for tag in tags]
    tags = tuple(dict.fromkeys(filter(None, words)))
    if not by:
        raise InputError("by: no name; say who judges")
    for name, text in (("by", by), *(("tags", tag) for tag in tags)):
        if len(text) > LONGEST_NAME:
            raise InputError(f"{name}: {text:.20}… is longer than {LONGEST_NAME} characters")
    if len(tags) > MOST_TAGS:
        raise InputError(f"tags: {len(tags)} of them; a rollout has at most {MOST_TAGS}")
    if len(note) > LONGEST_NOTE:
        raise InputError(f"note: {len(note):,} characters; a note has at most {LONGEST_NOTE:,}")
    if rating is not None and (isinstance(rating, bool) or rating not in RATINGS):
        raise InputError(f"rating: {rating!r:.20} is not one of {', '.join(map(str, RATINGS))}")
    return Judgement(key, by, round(time.time(), 3), tags, note, rating, finished_at)


def save_judgement(rollouts: Path, judgement: Judgement) -> None:
    """Append a judgement and flush it to disk. Waits for other writers; removes an incomplete last line."""
    path = notes_file(rollouts)
    line = orjson.dumps(asdict(judgement), option=orjson.OPT_APPEND_NEWLINE)
    if not rollouts.exists():
        raise InputError(f"{rollouts}: the file no longer exists; the judgement was not saved")
    try:
        _refuse_other(path)
        appender = Appender(path, wait=True)
        try:
            appender.append(line)
        finally:
            appender.close()
    except VelodromeError as error:
        cause = error.__cause__
        reason = cause.strerror if isinstance(cause, OSError) else str(error).removeprefix(f"{path}: ")
        raise InputError(f"{path}: not saved: {reason}") from error


def _refuse_other(path: Path) -> None:
    """Refuse a file without a judgement in its first lines: another program wrote it."""
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: it is not a file; move it away")
    lines = [line for _, line in islice(read_lines(path, lost=lambda *_: None), _FIRST_LINES)] if path.exists() else []
    if lines and not any(map(read_judgement, lines)):
        raise InputError(f"{path}: there is something else in it; move it away")


class Judgements:
    """The judgements in a file, read again when it has changed. Safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: tuple[int, int, int] | None = None
        self._problem = ""  # why the file cannot be read
        self._read(b"")

    @property
    def version(self) -> int:
        """Changes whenever the judgements change."""
        return hash((self._stamp, self.known))

    @property
    def notes(self) -> list[str]:
        """Notes for the page: lines that are not judgements, or why the file cannot be read."""
        if not self.foreign:
            return [*filter(None, [self._problem])]
        places = ", ".join(map(str, self.foreign[:_MOST_NAMED]))
        rest = f" and {len(self.foreign) - _MOST_NAMED} more" if len(self.foreign) > _MOST_NAMED else ""
        lines = "line" if len(self.foreign) == 1 else "lines"
        return [f"{self.path.name}: {lines} {places}{rest}: not a judgement; kept and not read"]

    def refresh(self) -> Judgements:
        """Read the file if it has changed. A missing file has no judgements."""
        stamp, self._problem = None, ""
        try:
            with open_regular(self.path) as stream:
                status = os.fstat(stream.fileno())
                stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
                if stamp != self._stamp:
                    self._read(stream.read())
        except OSError as error:
            self._read(b"")
            if not isinstance(error, FileNotFoundError):
                self._problem = f"{self.path.name}: cannot be read: {error.strerror or error}"
        self._stamp = stamp
        return self

    def _read(self, data: bytes) -> None:
        """Keep the last judgement of each person on each rollout. Text after the last line end is incomplete."""
        by_key: dict[str, dict[tuple[float | None, str], Judgement]] = {}
        known, foreign = 0, []
        for number, line in enumerate(data.split(b"\n")[:-1], 1):
            judgement = read_judgement(line) if line.strip() else None
            if judgement is not None:
                known += 1
                people = by_key.setdefault(judgement.key, {})
                people.pop(person := (judgement.finished_at, judgement.by), None)
                if not judgement.empty:
                    people[person] = judgement
            elif line.strip():
                foreign.append(number)
        self._by_key = by_key
        self.known = known  # lines that are judgements
        self.foreign = foreign  # lines that are not

    def __iter__(self) -> Iterator[Judgement]:
        """Every judgement that counts, in the order of the rollouts that were judged first."""
        return (judgement for people in self._by_key.values() for judgement in people.values())

    def keys(self) -> list[str]:
        """The keys that have judgements."""
        return list(self._by_key)

    def of(self, key: str) -> list[Judgement]:
        """The judgements under a key, the latest first; `Judgement.is_of` checks the rollout."""
        return sorted(self._by_key.get(key, {}).values(), key=lambda each: -each.at)

    def tags(self) -> list[str]:
        """The tags in use, the most frequent first."""
        counts = Counter(tag for judgement in self for tag in judgement.tags)
        return sorted(counts, key=lambda tag: (-counts[tag], tag))


def read_judgement(line: bytes) -> Judgement | None:
    """The judgement of a line, or None if it is not one."""
    if len(line) > _LONGEST_LINE:
        return None
    try:
        row = loads(line, finite=True)
        values = {name: row[name] for name in _FIELDS if name in row}
        judgement = Judgement(**{**values, "tags": tuple(row.get("tags") or ())})
    except (ValueError, TypeError, AttributeError):
        return None
    texts = (judgement.key, judgement.by, judgement.note, *judgement.tags)
    texts_valid = all(isinstance(text, str) for text in texts) and judgement.by and len(judgement.tags) <= MOST_TAGS
    rating_valid = judgement.rating is None or (type(judgement.rating) is int and judgement.rating in RATINGS)
    times_valid = _is_time(judgement.at) and (judgement.finished_at is None or _is_time(judgement.finished_at))
    return judgement if texts_valid and rating_valid and times_valid else None


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < LATEST_S


@dataclass(frozen=True, slots=True)
class Agreement:
    """How two people agree: rollouts that both rated, how many the same, and the mean difference."""

    people: tuple[str, str]
    both: int
    same: int
    mean_difference: float


def agreements(judgements: Iterable[Judgement]) -> list[Agreement]:
    """Each pair of people who rated the same rollout, the pairs with most common rollouts first."""
    ratings: dict[tuple[str, float | None], dict[str, int]] = {}
    for each in judgements:
        if each.rating is not None:
            ratings.setdefault((each.key, each.finished_at), {})[each.by] = each.rating
    gaps: dict[tuple[str, str], list[int]] = {}
    for people in ratings.values():
        for a, b in combinations(sorted(people), 2):
            gaps.setdefault((a, b), []).append(abs(people[a] - people[b]))
    pairs = [Agreement(pair, len(each), each.count(0), sum(each) / len(each)) for pair, each in gaps.items()]
    return sorted(pairs, key=lambda each: (-each.both, each.people))
