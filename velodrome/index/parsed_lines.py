"""Some lines of a file, made ready for the index: rows of tables and columns of numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import orjson

from velodrome.index.answer_types import DEFERRED_STATE, FAILED, FAILED_STATE, KEPT_STATE, STATES
from velodrome.index.fields import FIELDS, extra_numbers
from velodrome.records.facts import RowFacts
from velodrome.records.jsonl import DAMAGED, MAX_LINE_BYTES, loads
from velodrome.records.other_files import FOREIGN, is_foreign

# Number from 1, byte offset, place within the text of its zstd frame, the bytes. The bytes are None for a line that is
# too long, and for damaged bytes, of which the place is how many there are, as a negative number.
Line = tuple[int, int, int, bytes | None]

MOST_NOTES = 20
_EXCERPT = 200  # characters of a prompt's start and an answer's end
_LONGEST_NAME = 1000
_LONGEST_ERROR = 2000
_KEPT, _DEFERRED, _FAILED = (STATES.index(state) for state in (KEPT_STATE, DEFERRED_STATE, FAILED_STATE))
_ID = re.compile(
    r"0[xX][0-9a-fA-F]+|(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{6,}"
    r"|(?<![A-Za-z_\d.])(?![45]\d\d(?: [A-Z]|:|$))\d+(?:\.\d+)*"  # a number, but not an HTTP status
)


@dataclass(slots=True)
class ParsedLines:
    """One item per row in each list; notes and counts are of all lines."""

    entries: list[tuple[Any, ...]] = field(default_factory=list)  # rows of the table of that name, without ids
    states: list[int] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)
    agents: list[str] = field(default_factory=list)
    statuses: list[str] = field(default_factory=list)
    values: list[list[float | None]] = field(default_factory=list)  # in the order of FIELDS
    extras: list[dict[str, float]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)  # of failures alone: "boundary: message"
    notes: list[str] = field(default_factory=list)  # each "<line>: what is wrong"; the first ones
    flaws: int = 0
    unreadable: int = 0

    def note(self, line: int, what: str) -> None:
        """Say what is wrong with a line."""
        self.flaws += 1
        if len(self.notes) < MOST_NOTES:
            self.notes.append(f"{line}: {what}")


def parse(lines: Iterable[Line], *, failed: bool = False) -> ParsedLines:
    """Parse lines of a rollouts file, or of a failures file. Blank ones count nowhere."""
    parsed = ParsedLines()
    prompts: dict[str, int] = {}
    readers = [each.read for each in FIELDS]
    for line, offset, within, text in lines:
        row = _parse_line(parsed, line, offset, within, text)
        if row is None or text is None:
            continue
        facts = RowFacts(row, line=line, failed=failed)
        if failed and facts.key is None:
            parsed.note(line, "no key that is a text; the failure belongs to no rollout and is not counted")
            continue
        key, task = _names(parsed, facts)
        number = line + FAILED if failed else line
        prompt, answer = _start(facts.prompt), _end(facts.answer)
        first = number if failed else prompts.setdefault(prompt, number)
        values, extra = [read(facts) for read in readers], extra_numbers(facts)
        place = (number, offset, within, len(text), crc32(text))
        own_prompt = prompt if first == number else first
        parsed.entries.append((*place, key, own_prompt, answer, orjson.dumps([values, extra]).decode()))
        deferred = facts.deferred and facts.reward is None
        parsed.states.append(_FAILED if failed else _DEFERRED if deferred else _KEPT)
        parsed.tasks.append(task)
        parsed.agents.append(facts.agent[:_LONGEST_NAME])
        parsed.statuses.append(facts.status[:_LONGEST_NAME])
        parsed.values.append(values)
        parsed.extras.append(extra)
        if failed:
            parsed.errors.append(facts.error[:_LONGEST_ERROR].strip())
    return parsed


def _parse_line(parsed: ParsedLines, line: int, offset: int, within: int, text: bytes | None) -> dict[str, Any] | None:
    """The object of a line; None, and a note, if it is not one."""
    problem = "not a rollout"
    if within < 0:
        problem = f"{-within:,} bytes from byte {offset:,} {DAMAGED}"
    elif text is None:
        problem = f"longer than {MAX_LINE_BYTES // 2**20} MiB"
    else:
        try:
            row = loads(text, finite=True)
        except ValueError:
            row = None
        if isinstance(row, dict) and not is_foreign(row):
            return row
        if not text.strip():
            return None
        problem = FOREIGN if is_foreign(row) else problem
    parsed.unreadable += 1
    parsed.note(line, f"{problem}; it is not shown")
    return None


def _names(parsed: ParsedLines, facts: RowFacts) -> tuple[str, str]:
    """The key and the task of a row; by its line where it has no usable key."""
    wrong = [name for name in facts.wrong if facts.key is None or not name.endswith("key")]
    key, task = facts.key, facts.task
    if key is None or len(key) > _LONGEST_NAME:
        key, task = f"line {facts.line}", None
        wrong.append("key" if facts.failed else "meta.key")
    if type(facts.meta.get("agent", "")) is not str:
        wrong.append("agent" if facts.failed else "meta.agent")
    if wrong:
        parsed.note(facts.line, f"no usable {', '.join(dict.fromkeys(wrong))}; shown without")
    return key, task or key


def _start(text: str) -> str:
    """The start of a text, on one line."""
    start = text[:_EXCERPT]
    return start if start.isprintable() else " ".join(text[: 2 * _EXCERPT].split())[:_EXCERPT]


def _end(text: str) -> str:
    """The end of a text, on one line."""
    end = text[-_EXCERPT:]
    return end if end.isprintable() else " ".join(text[-2 * _EXCERPT :].split())[-_EXCERPT:]


def pattern(message: str) -> str:
    """The message with numbers and ids folded, so that failures of one kind look the same."""
    return _ID.sub("#", message[: 2 * _EXCERPT])[:_EXCERPT]
