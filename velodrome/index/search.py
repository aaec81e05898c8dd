"""Full-text search over prompts and answers: made after the rows, at its own pace, from the same file.

Only the words are kept, not the texts (a contentless FTS5 table); a failure that was tried again leaves its words
behind, which point nowhere.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from velodrome.index.answers import FAILED
from velodrome.index.batch import Line
from velodrome.index.extract import HOSTILE, texts
from velodrome.index.packed import Frames
from velodrome.index.source import Lines, Place
from velodrome.index.store import FAILURES, read_progress, transaction, write_progress
from velodrome.records.lenient import loads

_CHUNK_BYTES = 1024 * 1024

Words = list[tuple[int, str, str]]


def pieces(source: Lines | Frames, file: str, start: Place, end: Place) -> Iterator[tuple[Place, Words, Place]]:
    """What can be searched for in the lines between two places, some at a time: from where, the words, to where."""
    for lines, behind in source.lines(start, chunk=_CHUNK_BYTES):
        last = behind.line >= end.line
        yield start, _words(lines, end.line, failed=file == FAILURES), end if last else behind
        if last:
            return
        start = behind


def _words(lines: list[Line], last: int, *, failed: bool) -> Words:
    found: Words = []
    for number, _, _, text in lines:
        if number > last or text is None:
            continue
        try:
            row = loads(text, finite=True)
            if isinstance(row, dict):
                found.append((number + FAILED if failed else number, *texts(row, failed=failed)))
        except HOSTILE:
            continue  # said when the rows were read
    return found


def add(connection: sqlite3.Connection, file: str, start: Place, words: Words, end: Place) -> bool:
    """Make these words searchable. False: somebody else did, or the file was read anew meanwhile."""
    with transaction(connection):
        progress = read_progress(connection)
        if progress.searched[file] != start or progress.places[file].line < end.line:
            return False
        connection.executemany("INSERT INTO search (rowid, prompt, answer) VALUES (?, ?, ?)", words)
        progress.searched[file] = end
        progress.searchable += len(words)
        write_progress(connection, progress)
    return True
