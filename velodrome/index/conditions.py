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
_PLACES = {  # texts that are not columns: the table, its column with the text, its column with the id
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
        numeric = as_number(term)
        if term.field not in columns.names.texts and numeric is not None:
            return _condition(columns, numeric)
        mask = _matched(columns, term)
    else:
        mask = _with_words(columns, term)
    return ~mask if term.negated else mask


def _compared(column: Column, term: Compared) -> Mask:
    """Where a number is within its bounds; if there are no bounds, where the number is missing."""
    absent: Mask = np.isnan(column)
    if not term.bounds:
        return absent
    mask: Mask = ~absent
    for op, bound in term.bounds:
        mask &= _COMPARE[op](column, bound)
    return mask


def _matched(columns: Columns, term: Matched) -> Mask:
    """Where a text, or a number under the same name, fulfils a term."""
    equal = replace(term, op="=" if term.op == "!=" else term.op, negated=False)
    mask = _with_text(columns, equal)
    numeric = as_number(equal) if term.field in columns.names.numbers else None
    if numeric is not None and (numeric.bounds or numeric.negated):  # a text in some rollouts, a number in others
        mask |= _condition(columns, numeric)
    return ~mask if term.op == "!=" else mask


def _with_text(columns: Columns, term: Matched) -> Mask:
    """The entries whose text equals or contains the value of a term."""
    if (values := columns.outside_texts(term.field)) is not None:
        return _with_outside_text(columns, values, term)
    if term.field == "state":
        return np.ones(len(columns), bool) if term.op == ANY else columns["state"] == STATES.index(term.value)
    if term.field in _PLACES:
        table, column, id_column = _PLACES[term.field]
        test, parameters = _test(term, column, term.value)
        query = f"SELECT json_group_array({id_column}) FROM {table} WHERE {test}"
        ids = orjson.loads(columns.connection.execute(query, parameters).fetchone()[0])
        return has_id(columns["task"], ids) if term.field == "task" else columns.mask(ids)
    if not term.value:  # `=""`: no text; `:""`: any text
        empty: Mask = columns.ids(term.field) == 0
        return empty if term.op == "=" else ~empty
    return columns.word_ids(term.field, *_test(term, "name", term.value[:LONGEST_TEXT]))


def _test(term: Matched, column: str, value: str) -> tuple[str, list[str]]:
    """The SQL condition of a term on a column of texts. `:` ignores the case of ASCII letters."""
    if term.op == ANY:
        return f"{column} != ''", []
    if term.op == "=":
        edge = "'" + EDGE + "'"
        one_of_several = f"instr({edge} || {column} || {edge}, {edge} || ? || {edge})"
        return (one_of_several if term.field == "tool" else f"{column} = ?"), [value]
    if "\0" in value:  # LIKE stops at a null character
        return f"instr({column}, ?)", [value]
    part = re.sub("[%_^]", r"^\g<0>", value)
    return f"{column} LIKE ? ESCAPE '^'", [f"%{part}%"]


def _with_outside_text(columns: Columns, values: TextValues, term: Matched) -> Mask:
    """The entries with an outside value that fulfils a term."""
    part = _folded(term.value)
    mask = np.zeros(len(columns), bool)
    for text in values:
        if term.op == ANY or (text == term.value if term.op == "=" else part in _folded(text)):
            mask[columns.positions(values[text])] = True
    return mask


def _folded(text: str) -> str:
    """The text with ASCII letters in lower case."""
    return text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


def _with_words(columns: Columns, term: Words) -> Mask:
    """The entries that contain a phrase."""
    # One quoted phrase, in the syntax of FTS5.
    phrase = '"' + term.words.replace('"', '""').replace("\x00", " ") + '"' + ("*" if term.prefix else "")
    numbers = "SELECT json_group_array(rowid) FROM search WHERE search MATCH ?"
    return columns.mask(orjson.loads(columns.connection.execute(numbers, (phrase,)).fetchone()[0]))
