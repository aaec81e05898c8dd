"""A filter as SQL conditions on `rollout r`. Values are always parameters; names are looked up, never written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from velodrome.index.answers import DEFERRED_STATE, FAILED, FAILED_STATE, STATES
from velodrome.index.extract import hashed, key_of
from velodrome.index.fields import Fields
from velodrome.index.query import TASK_FIELDS, Compared, Matched, Query, Words

_TASK = "(SELECT lower(task.name) FROM task WHERE task.id = r.task)"
_TEXTS = {
    "task": _TASK,
    "key": f"{_TASK} || coalesce('/' || r.repeat, '')",
}
_NAMED = (
    "IN (SELECT word.id FROM word WHERE instr(lower(word.text), ?))"  # few names: looked through once, not row by row
)
_ERROR = "(SELECT failure.message FROM failure WHERE failure.number = r.number)"
_OPS = {"<": "<", "<=": "<=", ">": ">", ">=": ">=", "=": "=", "!=": "<>"}


@dataclass(frozen=True, slots=True)
class Clause:
    """A piece of SQL with its parameters."""

    sql: str
    values: tuple[Any, ...] = ()


def joined(clauses: Iterable[Clause]) -> Clause:
    """All of these at once."""
    found = list(clauses)
    values = tuple(value for each in found for value in each.values)
    return Clause(" AND ".join(f"({each.sql})" for each in found) or "1", values)


def where(query: Query, fields: Fields, *, with_task: bool = False) -> Clause:
    """All terms as one condition, those on words last. `heard(place, number)` must know a list for each of these.

    `with_task`: the task of each rollout stands beside it as `t`, so that an SQL index of tasks serves what is asked.
    """
    words = [Clause(f"heard({place}, r.number)") for place, term in enumerate(query.words) if not term.negated]
    words += [Clause(f"NOT heard({place}, r.number)") for place, term in enumerate(query.words) if term.negated]
    others = [_clause(term, fields, with_task) for term in query.terms if not isinstance(term, Words)]
    return joined([*others, *words])


def _clause(term: Compared | Matched, fields: Fields, with_task: bool) -> Clause:
    found = _compared(term, fields, with_task) if isinstance(term, Compared) else _matched(term)
    return Clause(f"({found.sql}) IS NOT TRUE", found.values) if term.negated else found


def _compared(term: Compared, fields: Fields, with_task: bool) -> Clause:
    if term.field not in TASK_FIELDS:
        return bounds(term, f"r.{fields.column(term.field)}")
    if with_task:
        return bounds(term, f"t.{term.field}")
    test = bounds(term, f"k.{term.field}")
    return Clause(f"EXISTS (SELECT 1 FROM task k WHERE k.id = r.task AND {test.sql})", test.values)


def bounds(term: Compared, column: str) -> Clause:
    """A number within its bounds."""
    if not term.bounds:
        return Clause(f"{column} IS NULL")
    sql = " AND ".join(f"{column} {_OPS[op]} ?" for op, _ in term.bounds)
    return Clause(sql, tuple(value for _, value in term.bounds))


def _matched(term: Matched) -> Clause:
    if term.field == "state":
        # What failed has the highest numbers: a walk along the file can begin there.
        place = STATES.index(term.value)
        found = Clause(f"r.number > {FAILED}") if term.value == FAILED_STATE else Clause("r.state = ?", (place,))
    elif term.field == "error":
        part = Clause(f"instr(lower({_ERROR}), ?)", (folded(term.value),))
        test = part if term.op == ":" else Clause(f"{_ERROR} = ?", (term.value,))
        found = Clause(f"r.number > {FAILED} AND {test.sql}", test.values)
    elif term.op == ":" and term.field in ("agent", "status"):
        found = Clause(f"r.{term.field} {_NAMED}", (folded(term.value),))
    elif term.op == ":":
        found = Clause(f"instr({_TEXTS[term.field]}, ?)", (folded(term.value),))
    else:
        found = Clause(f"r.{term.field} = ?", (_hash(term.field, term.value),))
    return Clause(f"({found.sql}) IS NOT TRUE", found.values) if term.op == "!=" else found


def _hash(field: str, value: str) -> int:
    return key_of(value) if field == "key" else hashed(value)


def held(column: str, exact: bool) -> str:
    """A text that is, or holds, one parameter."""
    return f"{column} = ?" if exact else f"instr(lower({column}), ?)"


def folded(text: str) -> str:
    """Lower case as SQLite's `lower` knows it: ASCII alone."""
    return "".join(chr(ord(letter) + 32) if "A" <= letter <= "Z" else letter for letter in text)


@dataclass(frozen=True, slots=True)
class Source:
    """A statement that lists the numbers a term allows. `named`: it has to look at texts first, so asking costs.

    Not `exact`: it lists more, and the term itself must be asked of each.
    """

    clause: Clause
    named: bool = False
    exact: bool = True


def sources(query: Query, fields: Fields, there: frozenset[str]) -> list[Source]:
    """One for each term that an SQL index or a small table serves."""
    found: list[Source] = []
    for term in query.terms:
        if isinstance(term, Compared) and not term.negated:
            found += [Source(each) for each in _compared_source(term, fields, there)]
        elif isinstance(term, Matched) and not term.negated and term.op != "!=":
            exact = term.field != "key" or term.op == "=" or "/" not in term.value
            found += [Source(each, named=True, exact=exact) for each in _matched_source(term, there)]
    return found


def _compared_source(term: Compared, fields: Fields, there: frozenset[str]) -> list[Clause]:
    if any(op == "!=" for op, _ in term.bounds):
        return []
    if term.field in TASK_FIELDS:
        if not {"by_task", f"task_by_{term.field}"} <= there:
            return []
        test = bounds(term, f"t.{term.field}")
        tables = f"task t INDEXED BY task_by_{term.field} CROSS JOIN rollout d INDEXED BY by_task ON d.task = t.id"
        return [Clause(f"SELECT d.number FROM {tables} WHERE {test.sql}", test.values)]
    column = fields.column(term.field)
    if f"by_{column}" not in there:
        return []
    test = bounds(term, f"d.{column}")
    return [Clause(f"SELECT d.number FROM rollout d INDEXED BY by_{column} WHERE {test.sql}", test.values)]


def _matched_source(term: Matched, there: frozenset[str]) -> list[Clause]:
    exact, value = term.op != ":", term.value if term.op != ":" else folded(term.value)
    if term.field == "error":
        return [Clause(f"SELECT number FROM failure WHERE {held('message', exact)}", (value,))]
    if term.field == "state":
        if value == FAILED_STATE:
            return [Clause("SELECT number FROM failure")]
        state = f"d.state = {STATES.index(DEFERRED_STATE)}"
        usable = value == DEFERRED_STATE and "by_deferred" in there
        return [Clause(f"SELECT d.number FROM rollout d INDEXED BY by_deferred WHERE {state}")] if usable else []
    by = "task" if term.field == "key" and not exact else term.field
    if f"by_{by}" not in there or (term.field == "key" and value.isdecimal()):
        return []
    listed = f"SELECT d.number FROM rollout d INDEXED BY by_{by} WHERE d.{by}"
    if exact:
        return [Clause(f"{listed} = ?", (_hash(term.field, value),))]
    if term.field == "key":
        part, slash, _ = value.rpartition("/")
        named = "SELECT id FROM task WHERE instr(lower(name) || '/', ?)"
        return [Clause(f"{listed} IN ({named})", (part + slash or value,))]
    table, name = ("task", "name") if term.field == "task" else ("word", "text")
    return [Clause(f"{listed} IN (SELECT id FROM {table} WHERE {held(name, exact)})", (value,))]
