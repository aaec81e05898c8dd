"""Whether an office changed as the task says, and in no other way.

A wanted change is `{"table": "mail", "add": {…}}`, `{"table": …, "id": …, "set": {…}}` or
`{"table": …, "id": …, "remove": true}`. A field `x_includes` lists phrases that field `x` must contain; any other
field must be equal: texts but for case and space, lists but for order. Of an added record only the fields that the
task names count; of a changed one, no other field may change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from velodrome.errors import TaskError
from velodrome.resources_servers.workplace.workplace_office import TABLES, OfficeChange

Json = dict[str, Any]

INCLUDES, EXCLUDES = "_includes", "_excludes"


def wanted_changes(task: Json) -> list[Json]:
    """The task's `changes`, or a `TaskError` that names what is wrong."""
    changes = task.get("changes")
    if not isinstance(changes, list):
        raise TaskError('no "changes" in the task; it is a list of what must have changed, empty if nothing may')
    if not changes and not task.get("answer_includes"):
        raise TaskError('"changes" is empty and there is no "answer_includes": doing nothing would earn the reward')
    for change in changes:
        if not isinstance(change, dict) or change.get("table") not in TABLES:
            raise TaskError(f'"changes": each has a "table", one of {", ".join(TABLES)}, not {str(change)[:80]!r}')
        if sum(name in change for name in ("add", "set", "remove")) != 1:
            raise TaskError(f'"changes": each has one of "add", "set" and "remove", not {str(change)[:80]!r}')
        if "add" not in change and not isinstance(change.get("id"), str):
            raise TaskError(f'"changes": "set" and "remove" need an "id", not {str(change)[:80]!r}')
        if not isinstance(change.get("add", change.get("set", {})), dict):
            raise TaskError(f'"changes": "add" and "set" are objects of fields, not {str(change)[:80]!r}')
    return changes


def pair_up(wanted: Sequence[Json], seen: Sequence[OfficeChange]) -> tuple[int, int]:
    """How many wanted changes were made, and how many changes nobody wanted."""
    left = list(seen)
    made = 0
    for change in wanted:
        match = next((each for each in left if is_wanted(change, each)), None)
        if match is not None:
            left.remove(match)
            made += 1
    return made, len(left)


def is_wanted(change: Json, seen: OfficeChange) -> bool:
    """Whether this is the change that is wanted."""
    if change["table"] != seen.table:
        return False
    if "add" in change:
        return seen.before is None and seen.after is not None and _fits(change["add"], seen.after)
    if seen.name != change["id"] or seen.before is None:
        return False
    if "remove" in change:
        return seen.after is None
    named = {name.removesuffix(INCLUDES).removesuffix(EXCLUDES) for name in change["set"]}
    return seen.after is not None and set(seen.fields) <= named and _fits(change["set"], seen.after)


def _fits(wanted: Json, record: Json) -> bool:
    return all(_holds(name, value, record) for name, value in wanted.items())


def _holds(name: str, value: Any, record: Json) -> bool:
    if name.endswith(INCLUDES):
        text = plain(record.get(name.removesuffix(INCLUDES)))
        return all(plain(phrase) in text for phrase in value)
    if name.endswith(EXCLUDES):
        text = plain(record.get(name.removesuffix(EXCLUDES)))
        return not any(plain(phrase) in text for phrase in value)
    there = record.get(name)
    if isinstance(value, list) and isinstance(there, list):
        return sorted(map(plain, value)) == sorted(map(plain, there))
    return plain(value) == plain(there)


def plain(value: Any) -> str:
    """A text without regard to case and space."""
    return " ".join(str(value).casefold().split())
