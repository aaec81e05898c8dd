"""Some lines, made ready for the database: tuples to insert and sums to add. Pure, so that another process can do it.

A batch is told as plain lists and dicts (`marshal` carries it between processes); the writer alone knows the tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from velodrome.index.answers import DEFERRED_STATE, FAILED, STATES
from velodrome.index.extract import Numbers, facts, hashed, hashed_key
from velodrome.index.query import MEASURES
from velodrome.records.foreign import FOREIGN, is_foreign
from velodrome.records.jsonl import DAMAGED, MAX_LINE_BYTES
from velodrome.records.lenient import loads

# Number from 1, byte offset, place within the text of its zstd frame, the bytes; None: too long to be taken, or, where
# the place is negative, so many damaged bytes.
Line = tuple[int, int, int, bytes | memoryview | None]

PASS_REWARD = 1.0  # as in read.metrics
COLUMNS = ("number", *MEASURES, "state", "agent", "status", "task", "key", "offset", "within", "size", "crc")
MOST_NOTES = 20
_DEFERRED = STATES.index(DEFERRED_STATE)
_FINISHED = MEASURES.index("finished_at")
_TOKENS = MEASURES.index("tokens")
_REPEAT = MEASURES.index("repeat")
_LATEST_S = 1e11


@dataclass(slots=True)
class Batch:
    """`rows` hold COLUMNS, then one value for each of `names`; the rest is keyed by name, hash or second."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    # Number, key, prompt, answer. A prompt that another row of the batch has is that row's number.
    said: list[tuple[int, str, str | int, str]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    tasks: dict[str, list[Any]] = field(default_factory=dict)  # hash, rows, scored, passed, sum of rewards, first
    words: dict[int, str] = field(default_factory=dict)  # agents and statuses
    errors: dict[int, str] = field(default_factory=dict)  # number: "boundary: message"
    seconds: dict[int, list[float]] = field(default_factory=dict)  # kept, failed, tokens, scored, sum of rewards
    notes: list[str] = field(default_factory=list)  # each "<line>: what"; the first ones
    flaws: int = 0
    unreadable: int = 0
    deferred: int = 0

    def told(self) -> tuple[Any, ...]:
        """The same as a plain value; `Batch(*told)` is the way back."""
        return tuple(getattr(self, name) for name in self.__slots__)

    def note(self, line: int, what: str) -> None:
        """Say what is wrong with a line."""
        self.flaws += 1
        if len(self.notes) < MOST_NOTES:
            self.notes.append(f"{line}: {what}")


def parse(lines: Iterable[Line], *, failed: bool = False) -> Batch:
    """The batch of these lines. Blank ones count nowhere."""
    batch = Batch()
    rows, said, words = batch.rows, batch.said, _Words(batch)
    extras: list[dict[str, float | int]] = []
    prompts: dict[str, int] = {}
    for line, offset, within, text in lines:
        if within < 0:
            batch.unreadable += 1
            batch.note(line, f"{-within:,} bytes from byte {offset:,} on {DAMAGED}; what stood there is not shown")
            continue
        row = _object(batch, line, text)
        if row is None or text is None:
            continue
        if failed and type(row.get("key")) is not str:
            batch.note(line, "no key that is a text; whose failure it is cannot be told, and it is not counted")
            continue
        found, flaw = facts(row, line, failed=failed)
        if flaw is not None:
            batch.note(line, flaw)
        key, name, agent, status, state, error, measures, extra, prompt, answer = found
        number = line + FAILED if failed else line
        task = _add_sums(batch, measures, number, name, failed)
        place = (state, words[agent], words[status], task, hashed_key(task, measures[_REPEAT]))  # type: ignore[arg-type]
        rows.append((number,) + measures + place + (offset, within, len(text), crc32(text)))  # noqa: RUF005 - far faster
        first = prompts.setdefault(prompt, number)
        said.append((number, key, prompt if first == number or failed else first, answer))
        extras.append(extra)
        if error is not None:
            batch.errors[number] = error
        elif state == _DEFERRED:
            batch.deferred += 1
    _add_extras(batch, extras)
    return batch


def _object(batch: Batch, line: int, text: bytes | memoryview | None) -> dict[str, Any] | None:
    """The object of a line; None, and a note, if it is none."""
    if text is None:
        batch.unreadable += 1
        batch.note(line, f"longer than {MAX_LINE_BYTES // 2**20} MiB; it is not shown")
        return None
    try:
        row = loads(text, finite=True)
    except ValueError:
        row = None
    if isinstance(row, dict) and not is_foreign(row):
        return row
    if bytes(text).strip():
        batch.unreadable += 1
        batch.note(line, f"{FOREIGN if is_foreign(row) else 'not a rollout'}; it is not shown")
    return None


class _Words(dict[str, int]):
    """The hashes of agents and statuses; a new one is put into the batch."""

    def __init__(self, batch: Batch) -> None:
        super().__init__()
        self._batch = batch

    def __missing__(self, word: str) -> int:
        found = self[word] = hashed(word)
        self._batch.words[found] = word
        return found


def _add_sums(batch: Batch, measures: Numbers, number: int, name: str, failed: bool) -> int:
    """Count a row for its task and its second. Gives the task's hash."""
    reward, finished = measures[0], measures[_FINISHED]
    sums = batch.tasks.get(name)
    if sums is None:
        sums = batch.tasks[name] = [hashed(name), 0, 0, 0, 0.0, number]
    sums[1] += 1
    if reward is not None:
        sums[2] += 1
        sums[3] += reward >= PASS_REWARD
        sums[4] += reward
    if finished is not None and 0 <= finished < _LATEST_S:
        at = int(finished)
        second = batch.seconds.get(at)
        if second is None:
            second = batch.seconds[at] = [0, 0, 0, 0, 0.0]
        second[failed] += 1
        second[2] += measures[_TOKENS] or 0
        if reward is not None:
            second[3] += 1
            second[4] += reward
    task: int = sums[0]
    return task


def _add_extras(batch: Batch, extras: list[dict[str, float | int]]) -> None:
    """One more column for each other number that any of the rows has."""
    names = list(dict.fromkeys(name for extra in extras for name in extra))
    if names:
        batch.names = names
        rows = zip(batch.rows, extras, strict=True)
        batch.rows[:] = [row + tuple(map(extra.get, names)) for row, extra in rows]
