"""A filter as a mask over the entries. Names and words are looked up in SQL, numbers are compared as columns."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import orjson

from velodrome.index.answer_types import ANY, STATES
from velodrome.index.columns import Column, Columns, Mask, has_id
from velodrome.index.fields import EDGE, LONGEST_TEXT
from velodrome.index.outside import TextValues
from velodrome.index.query import Compared, Matched, Query, Term, Words, as_number

_COMPARE = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "=": np.equal,
    "!=": np.not_equal,
}
_PLACES = {  # texts that are not columns: the table, its column, and how its rows are named there
    "key": ("entry", "key", "number"),
    "error": ("failure", "message", "number"),
    "boundary": ("failure", "boundary", "number"),
    "task": ("task", "name", "id"),
}


def matching(columns: Columns, query: Query) -> Mask:
    """The entries a filter allows."""
    query.check(columns.names)
    mask = np.ones(len(columns), bool)
    for term in query.terms:
        mask &= _condition(columns, term)
    return mask


def _condition(columns: Columns, term: Term) -> Mask:
    """The entries one term allows."""
    if isinstance(term, Compared):
        mask = _compared(columns.field(term.field, f"filter, at {term.at}"), term)
    elif isinstance(term, Matched):
        number = as_number(term)
        if term.field not in columns.names.texts and number is not None:
            return _condition(columns, number)
        mask = _matched(columns, term)
    else:
        mask = _with_words(columns, term)
    return ~mask if term.negated else mask


def _compared(column: Column, term: Compared) -> Mask:
    """Where a number is within its bounds; without bounds, where there is no number."""
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
        mask |= _condition(columns, number)
    return ~mask if term.op == "!=" else mask


def _with_text(columns: Columns, term: Matched) -> Mask:
    if (values := columns.outside_texts(term.field)) is not None:
        return _having(columns, values, term)
    if term.field == "state":
        everything = np.ones(len(columns), bool)
        return everything if term.op == ANY else columns["state"] == STATES.index(term.value)
    if term.field in _PLACES:
        table, column, rows = _PLACES[term.field]
        test, values_ = _test(term, column, term.value)
        query = f"SELECT json_group_array({rows}) FROM {table} WHERE {test}"
        ids = orjson.loads(columns.connection.execute(query, values_).fetchone()[0])
        return has_id(columns["task"], ids) if term.field == "task" else columns.mask(ids)
    if not term.value:  # no text, or any
        empty: Mask = columns.ids(term.field) == 0
        return empty if term.op == "=" else ~empty
    return columns.word_ids(term.field, *_test(term, "name", term.value[:LONGEST_TEXT]))


def _test(term: Matched, column: str, value: str) -> tuple[str, list[str]]:
    """The SQL condition of a term on a column of texts. `:` ignores the case of ASCII letters."""
    if term.op == ANY:
        return f"{column} != ''", []
    if term.op == "=":
        edged = "'" + EDGE + "'"
        whole = f"instr({edged} || {column} || {edged}, {edged} || ? || {edged})"
        return (whole if term.field == "tool" else f"{column} = ?"), [value]
    if "\0" in value:  # LIKE ends at one
        return f"instr({column}, ?)", [value]
    part = re.sub("[%_^]", r"^\g<0>", value)
    return f"{column} LIKE ? ESCAPE '^'", [f"%{part}%"]


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


def _with_words(columns: Columns, term: Words) -> Mask:
    """The entries that contain a phrase."""
    # In FTS5's own language: always one quoted phrase.
    phrase = '"' + term.words.replace('"', '""').replace("\x00", " ") + '"' + ("*" if term.prefix else "")
    numbers = "SELECT json_group_array(rowid) FROM search WHERE search MATCH ?"
    return columns.mask(orjson.loads(columns.connection.execute(numbers, (phrase,)).fetchone()[0]))
