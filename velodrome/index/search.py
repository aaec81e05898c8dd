"""Full-text search over prompts and answers: built after the rows, from the same file.

Only the words are stored, not the texts (a contentless FTS5 table). The words of a failure that was tried again stay,
and lead to no entry.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from velodrome.index.answer_types import FAILED
from velodrome.index.database import transaction
from velodrome.index.followed_file import Place, PlainLines
from velodrome.index.parsed_lines import Line
from velodrome.index.store import FAILURES, read_progress, write_progress
from velodrome.index.zst_lines import ZstLines
from velodrome.records.conversation import text_of
from velodrome.records.facts import RowFacts
from velodrome.records.jsonl import loads

_CHUNK_BYTES = 1024 * 1024
_TEXT = 4096  # characters of a prompt and of an answer that can be searched

Texts = list[tuple[int, str, str]]


def read_texts(
    source: PlainLines | ZstLines, file: str, start: Place, end: Place
) -> Iterator[tuple[Place, Texts, Place]]:
    """The texts between two places, some at a time: from where, the texts, to where."""
    for lines, behind in source.lines(start, chunk=_CHUNK_BYTES):
        last = behind.line >= end.line
        yield start, _texts(lines, end.line, failed=file == FAILURES), end if last else behind
        if last:
            return
        start = behind


def _texts(lines: list[Line], last: int, *, failed: bool) -> Texts:
    texts: Texts = []
    for number, _, _, text in lines:
        if number > last or text is None:
            continue
        try:
            row = loads(text, finite=True)
        except ValueError:
            continue
        if isinstance(row, dict):
            texts.append((number + FAILED if failed else number, *_searched(RowFacts(row, failed=failed))))
    return texts


def _searched(facts: RowFacts) -> tuple[str, str]:
    """The start of the prompt, the user's messages first, and the end of the output."""
    said = [text_of(each.get("content")) for each in facts.messages if each.get("role") == "assistant"]
    said = said or [facts.answer]
    if facts.failed:
        said.append(str(facts.row.get("error") or ""))
    return "\n".join([*facts.questions, *facts.context])[:_TEXT], "\n".join(said)[-_TEXT:]


def add_texts(connection: sqlite3.Connection, file: str, start: Place, texts: Texts, end: Place) -> bool:
    """Make texts searchable. False: another process did, or the file was replaced meanwhile."""
    with transaction(connection):
        progress = read_progress(connection)
        if progress.searched[file] != start or progress.places[file].line < end.line:
            return False
        connection.executemany("INSERT INTO search (rowid, prompt, answer) VALUES (?, ?, ?)", texts)
        progress.searched[file] = end
        progress.searchable += len(texts)
        write_progress(connection, progress)
    return True
