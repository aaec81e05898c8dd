"""A filter as a mask over the entries. Names and words are looked up in SQL, numbers are compared as columns."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import orjson

from velodrome.errors import InputError
from velodrome.index.answer_types import ANY, STATES
from velodrome.index.columns import INTEGERS, Column, Columns, Mask, Positions
from velodrome.index.database import searchable
from velodrome.index.outside import TextValues
from velodrome.index.paging import MANY_ROWS, Holds
from velodrome.index.query import Compared, Matched, Query, Term, Words, as_number

_COMPARE = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "=": np.equal,
    "!=": np.not_equal,
}
_MANY = 0.4  # share of the entries: of fewer all that contain a word are listed, which is quicker than looking it up
_FEW = 5_000  # entries with a word that are listed at once
_KEPT = 8  # lists of the entries with a word
_SAMPLE = 48  # entries that say how frequent a word is


def matching(columns: Columns, query: Query) -> tuple[Mask, Holds | None]:
    """The entries a filter allows, but for words that many contain: these are tested by `Holds`, for some entries.

    Listing every entry with a frequent word takes far longer than looking it up in the few that are shown.
    """
    _check(columns, query)
    frequent = [term for term in query.terms if isinstance(term, Words) and _is_frequent(columns, term)]
    mask = _all(columns, [term for term in query.terms if term not in frequent])
    listed = cache(lambda: _all(columns, frequent))
    return mask, (lambda rows: _with_words(columns, rows, frequent, listed)) if frequent else None


def all_matching(columns: Columns, query: Query) -> Mask:
    """The entries a filter allows."""
    _check(columns, query)
    return _all(columns, query.terms)


def _check(columns: Columns, query: Query) -> None:
    query.check(columns.names)
    if query.words and not searchable(columns.connection):
        raise InputError("filter: this Python's SQLite has no full-text search (FTS5); filter by fields")


def _all(columns: Columns, terms: Sequence[Term]) -> Mask:
    mask = np.ones(len(columns), bool)
    for term in terms:
        mask &= condition(columns, term)
    return mask


def condition(columns: Columns, term: Term) -> Mask:
    """The entries one term allows."""
    if isinstance(term, Compared):
        mask = _compared(columns.field(term.field, f"filter, at {term.at}"), term)
    elif isinstance(term, Matched):
        number = as_number(term)
        if term.field not in columns.names.texts and number is not None:
            return condition(columns, number)
        mask = _matched(columns, term)
    else:
        mask = _listed(columns, _phrase(term))
    return ~mask if term.negated else mask


def _listed(columns: Columns, phrase: str) -> Mask:
    """The entries that contain a phrase. The last lists are kept: the next page, and the count, ask for the same."""
    kept, key = columns.word_lists, (phrase, columns.searched)
    if key not in kept:
        numbers = "SELECT json_group_array(rowid) FROM search WHERE search MATCH ?"
        mask = columns.mask(orjson.loads(columns.connection.execute(numbers, (phrase,)).fetchone()[0]))
        mask.flags.writeable = False
        for old in list(kept)[: 1 - _KEPT]:
            kept.pop(old, None)
        kept[key] = mask
    return kept[key]


def _compared(column: Column, term: Compared) -> Mask:
    """Where a number is within its bounds, or without bounds, where there is none."""
    absent: Mask = np.isnan(column)
    if not term.bounds:
        return absent
    mask: Mask = ~absent
    for op, bound in term.bounds:
        mask &= _COMPARE[op](column, bound)
    return mask


def _matched(columns: Columns, term: Matched) -> Mask:
    equal = replace(term, op="=" if term.op == "!=" else term.op, negated=False)
    mask = _with_text(columns, equal)
    number = as_number(equal) if term.field in columns.names.numbers else None
    if number is not None and (number.bounds or number.negated):  # a text in some rollouts, a number in others
        mask |= condition(columns, number)
    return ~mask if term.op == "!=" else mask


def _with_text(columns: Columns, term: Matched) -> Mask:
    db = columns.connection
    mask: Mask
    if (values := columns.outside_texts(term.field)) is not None:
        mask = _having(columns, values, term)
    elif term.field == "state":
        mask = columns["state"] == STATES.index(term.value) if term.op != ANY else np.ones(len(columns), bool)
    elif term.field == "error":
        mask = columns.mask(_rows(db, "number", "failure", "message", term))
    elif term.field == "boundary":
        mask = columns.mask(_rows(db, "number", "failure", "boundary", term))
    elif term.field == "key":
        mask = columns.mask(_rows(db, "number", "entry", "key", term))
    elif term.field not in INTEGERS:
        mask = columns.having_text(term.field, term.op, term.value)
    else:
        ids = _rows(db, "id", "task" if term.field == "task" else "word", "name", term)
        mask = _has_id(columns[term.field], ids)
    return mask


def _having(columns: Columns, values: TextValues, term: Matched) -> Mask:
    """The entries that have a value that a term allows."""
    part = _folded(term.value)
    mask = np.zeros(len(columns), bool)
    for text in values:
        if term.op == ANY or (text == term.value if term.op == "=" else part in _folded(text)):
            mask[columns.positions(values[text])] = True
    return mask


def _folded(text: str) -> str:
    """A text in which ASCII letters have no case."""
    return text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


def _rows(db: sqlite3.Connection, wanted: str, table: str, column: str, term: Matched) -> list[int]:
    """Rows whose text is the value of a term, or contains it; the case of ASCII letters is ignored then."""
    value, test = term.value, f"{column} = ?"
    if term.op == ANY:
        test = f"{column} != ?"
    elif (
        term.op == ":" and table == "entry" and "\0" not in value
    ):  # the quickest over a million rows; it ends at a null
        part = re.sub("[%_^]", r"^\g<0>", value)
        value, test = f"%{part}%", f"{column} LIKE ? ESCAPE '^'"
    elif term.op == ":":
        value, test = _folded(value), f"instr(lower({column}), ?)"
    numbers = db.execute(f"SELECT json_group_array({wanted}) FROM {table} WHERE {test}", (value,)).fetchone()[0]
    rows: list[int] = orjson.loads(numbers)
    return rows


def _has_id(column: Column, ids: Sequence[int]) -> Mask:
    chosen = np.zeros(int(column.max(initial=0)) + 1, bool)
    chosen[[each for each in ids if each < len(chosen)]] = True
    mask: Mask = chosen[column]
    return mask


def _is_frequent(columns: Columns, term: Words) -> bool:
    """Whether many entries contain it, judged by a few of them: counting all would take as long as listing them."""
    if term.prefix:  # finding all words that begin so takes as long for one entry as for all
        return False
    if (_phrase(term), columns.searched) in columns.word_lists:
        return False
    some = "SELECT count(*) FROM (SELECT 1 FROM search WHERE search MATCH ? LIMIT ?)"
    if columns.connection.execute(some, (_phrase(term), _FEW)).fetchone()[0] < _FEW:
        return False
    sample = np.linspace(0, len(columns) - 1, _SAMPLE).astype(np.intp)
    return bool(_looked_up(columns, sample, term).mean() > _MANY)


def _with_words(columns: Columns, rows: Positions, terms: Sequence[Words], listed: Callable[[], Mask]) -> Mask:
    """Which of these entries fulfil all terms on words: a few are looked up one by one, many in the list of all."""
    if len(rows) > MANY_ROWS:
        return listed()[rows]
    mask = np.ones(len(rows), bool)
    for term in terms:
        mask &= _looked_up(columns, rows, term) != term.negated
    return mask


def _looked_up(columns: Columns, rows: Positions, term: Words) -> Mask:
    """Which of these entries contain it."""
    lookup = "SELECT 1 FROM search WHERE search MATCH ? AND rowid = ?"
    phrase, numbers = _phrase(term), columns["number"][rows].tolist()
    hits = (columns.connection.execute(lookup, (phrase, number)).fetchone() is not None for number in numbers)
    return np.fromiter(hits, bool, len(numbers))


def _phrase(term: Words) -> str:
    """The words in FTS5's own language: always one quoted phrase."""
    return '"' + term.words.replace('"', '""').replace("\x00", " ") + '"' + ("*" if term.prefix else "")
