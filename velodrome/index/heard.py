"""Which entries hold some words: asked of the full-text index once, then remembered as a sorted list.

Looking a frequent word up for one entry takes long, listing all its entries does not; so a condition on words becomes
a look into the list.
"""

from __future__ import annotations

import sqlite3
from array import array
from bisect import bisect_left
from collections import OrderedDict
from threading import Lock

import orjson

from velodrome.index.query import Words
from velodrome.index.store import read_progress

_MOST_KEPT = 12


class Heard:
    """The lists that were asked for last. One for an index; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._lists: OrderedDict[tuple[str, str], array[int]] = OrderedDict()

    def numbers(self, connection: sqlite3.Connection, term: Words) -> array[int]:
        """The numbers of the entries that hold the words, rising; some may be of failures that were tried again."""
        progress = read_progress(connection)
        known = (match(term), f"{progress.rebuilt_at} {sorted(progress.searched.items())}")
        with self._lock:
            found = self._lists.get(known)
            if found is not None:
                self._lists.move_to_end(known)
                return found
        found = _listed(connection, known[0])
        with self._lock:
            self._lists[known] = found
            while len(self._lists) > _MOST_KEPT:
                self._lists.popitem(last=False)
        return found


def _listed(connection: sqlite3.Connection, words: str) -> array[int]:
    asked = "SELECT json_group_array(rowid) FROM search WHERE search MATCH ?"
    return array("I", orjson.loads(connection.execute(asked, (words,)).fetchone()[0]))


def match(term: Words) -> str:
    """The words in FTS5's own language: always one quoted phrase."""
    return '"' + term.words.replace('"', '""').replace("\x00", " ") + '"' + ("*" if term.prefix else "")


def holds(numbers: array[int], number: int) -> bool:
    """Whether a number is in a list."""
    place = bisect_left(numbers, number)
    return place < len(numbers) and numbers[place] == number
