"""What people say of rollouts: tags, a note and a rating, in `rollouts.notes.jsonl` beside the file.

One line per change, appended whole or not at all. The last line of a rollout and a person counts; one without tags,
note and rating takes the judgement back. A rollout is a key and the time it finished: after an `overwrite` the key is
that of another rollout. Lines that are not judgements are kept, named, and otherwise ignored.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from itertools import combinations
from pathlib import Path
from typing import Any

import orjson

from velodrome.errors import InputError, VelodromeError
from velodrome.records.appender import Appender
from velodrome.records.jsonl import loads, open_regular
from velodrome.records.mending import LATEST_S
from velodrome.records.rollout import beside

RATINGS = range(1, 6)
LONGEST_NOTE, LONGEST_NAME, MOST_TAGS = 10_000, 60, 20  # characters, characters of a person or a tag, tags
_LONGEST_LINE = 128 * 1024
_MOST_NAMED = 5
_SAME_TIME_S = 1e-3


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one person says of one rollout. `at` is when, `finished_at` the rollout's own time."""

    key: str
    by: str
    at: float
    tags: tuple[str, ...] = ()
    note: str = ""
    rating: int | None = None
    finished_at: float | None = None

    @property
    def empty(self) -> bool:
        """Whether it takes back what was said before."""
        return not (self.tags or self.note or self.rating)

    def words(self) -> dict[str, Any]:
        """Who says what, and when; without the rollout it is about."""
        return {"by": self.by, "at": self.at, "rating": self.rating, "tags": list(self.tags), "note": self.note}

    def is_of(self, finished_at: float | None) -> bool:
        """Whether it is about the rollout of its key that finished then; where a time is missing, the key decides."""
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
    """A judgement of now. Tags may be one text, with commas or spaces between them. A mistake is an `InputError`."""
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
    """Append a judgement and wait until the disk has it. Other writers are waited for; a torn last line is cut."""
    path = notes_file(rollouts)
    line = orjson.dumps(asdict(judgement), option=orjson.OPT_APPEND_NEWLINE)
    if not rollouts.exists():
        raise InputError(f"{rollouts}: it is gone, so nothing is noted beside it")
    try:
        appender = Appender(path, wait=True)
        try:
            appender.append(line)
        finally:
            appender.close()
    except VelodromeError as error:
        cause = error.__cause__
        reason = cause.strerror if isinstance(cause, OSError) else str(error).removeprefix(f"{path}: ")
        raise InputError(f"{path}: not saved: {reason}") from error


class Judgements:
    """The judgements in a file, read again when it has changed. Safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: tuple[int, int, int] | None = None
        self._problem = ""  # why it cannot be read
        self._read(b"")

    @property
    def version(self) -> int:
        """Changes whenever what is known changes."""
        return hash((self._stamp, self.known))

    @property
    def notes(self) -> list[str]:
        """What is in the file besides judgements, for its reader."""
        if not self.foreign:
            return [*filter(None, [self._problem])]
        places = ", ".join(map(str, self.foreign[:_MOST_NAMED]))
        more = f" and {len(self.foreign) - _MOST_NAMED} more" if len(self.foreign) > _MOST_NAMED else ""
        lines = "line" if len(self.foreign) == 1 else "lines"
        return [f"{self.path.name}: {lines} {places}{more}: not a judgement; kept and not read"]

    def refresh(self) -> Judgements:
        """Read the file if it has changed; one that is gone has nothing."""
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
        """The last word of each person on each rollout. What is behind the last line end is torn, or on its way."""
        said: dict[str, dict[tuple[float | None, str], Judgement]] = {}
        known, foreign = 0, []
        for number, line in enumerate(data.split(b"\n")[:-1], 1):
            judgement = read_judgement(line) if line.strip() else None
            if judgement is not None:
                known += 1
                people = said.setdefault(judgement.key, {})
                people.pop(own := (judgement.finished_at, judgement.by), None)
                if not judgement.empty:
                    people[own] = judgement
            elif line.strip():
                foreign.append(number)
        self._said = said
        self.known = known  # lines that are judgements
        self.foreign = foreign  # lines that are not

    def __iter__(self) -> Iterator[Judgement]:
        """Every judgement that counts, in the order of the rollouts that were judged first."""
        return (judgement for people in self._said.values() for judgement in people.values())

    def keys(self) -> list[str]:
        """The keys that have judgements."""
        return list(self._said)

    def of(self, key: str) -> list[Judgement]:
        """The judgements under a key, the latest first; `Judgement.is_of` tells of which rollout each is."""
        return sorted(self._said.get(key, {}).values(), key=lambda each: -each.at)

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
        known = {name: row[name] for name in _FIELDS if name in row}
        judgement = Judgement(**{**known, "tags": tuple(row.get("tags") or ())})
    except (ValueError, TypeError, AttributeError):
        return None
    texts = (judgement.key, judgement.by, judgement.note, *judgement.tags)
    whole = all(isinstance(text, str) for text in texts) and judgement.by and len(judgement.tags) <= MOST_TAGS
    rated = judgement.rating is None or (type(judgement.rating) is int and judgement.rating in RATINGS)
    timed = _is_time(judgement.at) and (judgement.finished_at is None or _is_time(judgement.finished_at))
    return judgement if whole and rated and timed else None


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < LATEST_S


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far two people rate alike: of the rollouts both rated, how many the same, and how far apart on average."""

    people: tuple[str, str]
    both: int
    same: int
    mean_difference: float


def agreements(judgements: Iterable[Judgement]) -> list[Agreement]:
    """Every two people who rated a rollout both, those with most in common first."""
    rated: dict[tuple[str, float | None], dict[str, int]] = {}
    for each in judgements:
        if each.rating is not None:
            rated.setdefault((each.key, each.finished_at), {})[each.by] = each.rating
    gaps: dict[tuple[str, str], list[int]] = {}
    for people in rated.values():
        for one, other in combinations(sorted(people), 2):
            gaps.setdefault((one, other), []).append(abs(people[one] - people[other]))
    made = [Agreement(pair, len(all_), all_.count(0), sum(all_) / len(all_)) for pair, all_ in gaps.items()]
    return sorted(made, key=lambda each: (-each.both, each.people))
