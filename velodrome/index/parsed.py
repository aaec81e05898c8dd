"""Lines of a file as rows of the index: what a list shows, the columns, and the texts to search."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from velodrome.index.answer_types import DEFERRED_STATE, FAILED, FAILED_STATE, KEPT_STATE, STATES
from velodrome.index.fields import FIELDS, extra_numbers, row_texts
from velodrome.index.lines import Line
from velodrome.records.conversation import text_of
from velodrome.records.facts import RowFacts
from velodrome.records.jsonl import MAX_LINE_BYTES, loads
from velodrome.records.other_files import FOREIGN, is_foreign
from velodrome.records.rows import Notes

_EXCERPT = 200  # characters of a prompt's start and an answer's end
_SEARCHED = 4096  # characters of a prompt, of the answers, of the reasoning and of the tools that can be searched
_SEARCHED_OF_CALL = 512  # characters of the arguments of a call, and of a result
_LONGEST_NAME = 1000
_LONGEST_ERROR = 2000
_KEPT, _DEFERRED, _FAILED = (STATES.index(state) for state in (KEPT_STATE, DEFERRED_STATE, FAILED_STATE))
_ID = re.compile(
    r"0[xX][0-9a-fA-F]+|(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{6,}"
    r"|(?<![A-Za-z_\d.])(?![45]\d\d(?: [A-Z]|:|$))\d+(?:\.\d+)*"  # a number, but not an HTTP status
)


class ParsedRow(NamedTuple):
    """One rollout. `entry` is its row of the table `entry`, without the ids; `values` are in order of FIELDS."""

    entry: tuple[Any, ...]
    key: str
    task: str
    state: int
    values: list[float | None]
    extra: dict[str, float]
    texts: dict[str, str]  # as columns store them
    error: str  # only for failures: "boundary: message"
    searched: tuple[str, str, str, str]  # prompt, answers, reasoning, tools


@dataclass(slots=True)
class ParsedLines:
    """The rows of some lines; notes and counts are of all lines."""

    rows: list[ParsedRow] = field(default_factory=list)
    notes: Notes = field(default_factory=Notes)  # each "<line>: what is wrong"; the first ones
    flaws: int = 0
    unreadable: int = 0

    def note(self, line: int, what: str) -> None:
        """Note a problem with a line."""
        self.flaws += 1
        self.notes.add(f"{line}: {what}")


def parse(lines: Iterable[Line], *, failed: bool) -> ParsedLines:
    """Parse lines of a rollouts file, or of a failures file. Blank lines are ignored."""
    parsed = ParsedLines()
    readers = [each.read for each in FIELDS]
    for line, offset, within, text in lines:
        row = _object(parsed, line, offset, within, text)
        if row is None or text is None:
            continue
        facts = RowFacts(row, line=line, failed=failed)
        if failed and facts.key is None:
            parsed.note(line, "no key that is a text; the failure belongs to no rollout and is not counted")
            continue
        key, task = _names(parsed, facts)
        number = line + FAILED if failed else line
        prompt, answer = _start(facts.prompt), _end(facts.answer)
        values, extra = [read(facts) for read in readers], extra_numbers(facts)
        numbers = orjson.dumps([values, extra]).decode()
        entry = (number, offset, within, len(text), key, prompt, answer, numbers)
        state = _FAILED if failed else _DEFERRED if facts.deferred and facts.reward is None else _KEPT
        error = facts.error[:_LONGEST_ERROR].strip() if failed else ""
        searched = _searched(facts)
        parsed.rows.append(ParsedRow(entry, key, task, state, values, extra, row_texts(facts), error, searched))
    return parsed


def _object(parsed: ParsedLines, line: int, offset: int, within: int, text: bytes | None) -> dict[str, Any] | None:
    """The object of a line; None, and a note, if it is not one."""
    problem = "not a rollout"
    if within < 0:
        problem = f"{-within:,} bytes from byte {offset:,} cannot be decompressed"
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
    """The key and the task of a row; without a usable key, `line N`."""
    if facts.task and facts.agent and not facts.wrong and len(facts.task) < _LONGEST_NAME - 20:  # the usual case
        return facts.key or "", facts.task
    wrong = [name for name in facts.wrong if facts.key is None or not name.endswith("key")]
    key, task = facts.key, facts.task
    if key is None or len(key) > _LONGEST_NAME:
        key, task = f"line {facts.line}", None if key else facts.task
        if task is None:
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
    """The message with `#` for numbers and ids, so that failures of one kind look the same."""
    return _ID.sub("#", message[: 2 * _EXCERPT])[:_EXCERPT]


def _searched(facts: RowFacts) -> tuple[str, str, str, str]:
    """The start of the prompt, the user's messages first; the end of the answers; both ends of the rest."""
    answers, reasoning, tools = [], [], []
    for message in facts.messages:
        role = message.get("role")
        if role == "assistant":
            answers.append(text_of(message.get("content")))
            if thought := message.get("reasoning_content"):
                reasoning.append(text_of(thought))
        elif role == "tool":
            tools.append(_both_ends(text_of(message.get("content")), _SEARCHED_OF_CALL))
    for _, arguments in facts.calls:
        tools.append(_both_ends(arguments if type(arguments) is str else repr(arguments), _SEARCHED_OF_CALL))
    tools.insert(0, " ".join({str(name): None for name, _ in facts.calls}))
    answers = answers or [facts.answer]
    if facts.failed:
        answers.append(str(facts.row.get("error") or ""))
    prompt = "\n".join([*facts.questions, *facts.context])[:_SEARCHED]
    return (
        prompt,
        "\n".join(answers)[-_SEARCHED:],
        _both_ends("\n".join(reasoning), _SEARCHED),
        _both_ends("\n".join(tools), 2 * _SEARCHED),
    )


def _both_ends(text: str, most: int) -> str:
    """The start and the end of a text that is longer than this."""
    return text if len(text) <= most else f"{text[: most // 2]}\n{text[-most // 2 :]}"
