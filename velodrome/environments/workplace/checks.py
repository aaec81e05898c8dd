"""Whether a text says what a task wants and not everything else too, and whether an office changed as the task says.

A phrase counts as whole words; `cancel*` is any word that begins so. Numbers, times, dates and phone numbers are
values: a text that must state one may state no other of its kind, but for those that the task allows.

A wanted change is `{"table": "mail", "add": {…}}`, `{"table": …, "id": …, "set": {…}}` or
`{"table": …, "id": …, "remove": true}`. A field `x_includes` lists phrases that field `x` must contain; any other
field must be equal: texts but for case and space, lists but for order. Of an added record only the fields that the
task names count; of a changed one, no other field may change."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from velodrome.environments.workplace.office import TABLES, OfficeChange
from velodrome.errors import TaskError

_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}\b\.?"
_NO_WORD_BEFORE = r"(?<!\w)(?<![^\W\d]-)"  # the number of `HM-7741` is a part of a name
_VALUE = re.compile(
    rf"{_NO_WORD_BEFORE}(?:(?P<phone>\+\d(?:[ ()/-]{{0,2}}\d){{6,14}})|(?P<time>\d{{1,2}}:\d\d)"
    rf"|(?P<date>\d{{4}}-\d\d-\d\d|\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {_MONTH}|{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?)"
    r"|(?P<number>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?))(?!\w)"
)

Value = tuple[str, str | float]


def says(text: Any, includes: Sequence[str], excludes: Sequence[str] = (), allows: Sequence[str] = ()) -> bool:
    """Whether a text has all of `includes`, nothing of `excludes`, and no other value of the included kinds."""
    said = plain(text)
    stated, wanted = values(said), _values_of(includes)
    kinds = {kind for kind, _ in wanted}
    others = {value for value in stated - wanted - _values_of(allows) if value[0] in kinds}
    return (
        not others
        and all(_is_said(phrase, said, stated) for phrase in includes)
        and not any(_is_said(phrase, said, stated) for phrase in excludes)
    )


def plain(value: Any) -> str:
    """A text without regard to case, space and form."""
    return " ".join(unicodedata.normalize("NFKC", str(value)).casefold().split())


def values(text: str) -> set[Value]:
    """The values in a plain text, by kind: `1,184` and `1184` are the same number."""
    return {_value(match) for match in _VALUE.finditer(text)}


def _value(match: re.Match[str]) -> Value:
    kind, text = str(match.lastgroup), match.group()
    if kind == "number":
        return kind, float(text.replace(",", ""))
    return kind, text.zfill(5) if kind == "time" else re.sub(r"[^\w:]", "", text)


def _values_of(phrases: Iterable[str]) -> set[Value]:
    return {value for phrase in phrases for value in values(plain(phrase))}


def _is_said(phrase: str, text: str, stated: set[Value]) -> bool:
    phrase = plain(phrase)
    value = _VALUE.fullmatch(phrase)
    return _value(value) in stated if value else _pattern(phrase).search(text) is not None


@lru_cache(maxsize=1024)
def _pattern(phrase: str) -> re.Pattern[str]:
    start = _NO_WORD_BEFORE if phrase[:1].isalnum() else ""
    end = r"(?!\w)" if phrase[-1:].isalnum() else ""
    words = phrase.removesuffix("*")
    return re.compile(start + re.escape(words) + end)


Json = dict[str, Any]

INCLUDES, EXCLUDES, ALLOWS = "_includes", "_excludes", "_allows"


def wanted_changes(task: Json) -> list[Json]:
    """The task's `changes`. Raises a `TaskError` that describes the problem."""
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
    """The number of expected changes that were made, and of other changes."""
    left = list(seen)
    made = 0
    for change in wanted:
        match = next((each for each in left if is_wanted(change, each)), None)
        if match is not None:
            left.remove(match)
            made += 1
    return made, len(left)


def is_wanted(change: Json, seen: OfficeChange) -> bool:
    """Whether a change is the expected one."""
    if change["table"] != seen.table:
        return False
    if "add" in change:
        return seen.before is None and seen.after is not None and _fits(change["add"], seen.after)
    if seen.name != change["id"] or seen.before is None:
        return False
    if "remove" in change:
        return seen.after is None
    named = set(map(_field, change["set"]))
    return seen.after is not None and set(seen.fields) <= named and _fits(change["set"], seen.after)


def is_said(wanted: Json, name: str, text: Any) -> bool:
    """Whether a text fits `name_includes`, `name_excludes` and `name_allows` of the task or of a change."""
    phrases = [wanted.get(name + ending, []) for ending in (INCLUDES, EXCLUDES, ALLOWS)]
    for ending, each in zip((INCLUDES, EXCLUDES, ALLOWS), phrases, strict=True):
        if not isinstance(each, list):
            raise TaskError(f'"{name}{ending}" must be a list of phrases')
    return says(text, *phrases)


def _field(name: str) -> str:
    return name.removesuffix(INCLUDES).removesuffix(EXCLUDES).removesuffix(ALLOWS)


def _fits(wanted: Json, record: Json) -> bool:
    return all(_holds(name, value, wanted, record) for name, value in wanted.items())


def _holds(name: str, value: Any, wanted: Json, record: Json) -> bool:
    field = _field(name)
    there = record.get(field)
    if field != name:
        return is_said(wanted, field, there)
    if isinstance(value, list) and isinstance(there, list):
        return sorted(map(plain, value)) == sorted(map(plain, there))
    return plain(value) == plain(there)
