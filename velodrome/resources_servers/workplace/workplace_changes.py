"""What has changed in an office, and whether it is what was to change and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from velodrome.errors import TaskError

Json = dict[str, Any]

CHANGES = ("add", "change", "remove")


@dataclass(frozen=True)
class OfficeChange:
    """One record that is new, gone or different; `fields` are the new values."""

    change: str
    kind: str
    record_id: str
    fields: Json


def changes(before: dict[str, list[Json]], after: dict[str, list[Json]]) -> list[OfficeChange]:
    """Every difference between two offices."""
    found = []
    for kind, records in after.items():
        old = {each["id"]: each for each in before[kind]}
        new = {each["id"]: each for each in records}
        found += [OfficeChange("remove", kind, name, {}) for name in old if name not in new]
        found += [OfficeChange("add", kind, name, each) for name, each in new.items() if name not in old]
        for name in old.keys() & new.keys():
            different = {key: value for key, value in new[name].items() if old[name].get(key) != value}
            if different:
                found.append(OfficeChange("change", kind, name, different))
    return found


def unmet(expected: Any, made: list[OfficeChange]) -> tuple[int, int]:
    """How many expected changes were not made, and how many were made that nobody expected."""
    if not isinstance(expected, list) or not expected or not all(map(_is_expectation, expected)):
        raise TaskError('"expected_changes" must be a list of {change, kind, id or fields} (workplace/README.md)')
    left, missing = list(made), 0
    for each in expected:
        partner = next((change for change in left if _fits(each, change)), None)
        if partner is None:
            missing += 1
        else:
            left.remove(partner)
    return missing, len(left)


def _is_expectation(each: Any) -> bool:
    known = isinstance(each, dict) and each.get("change") in CHANGES and isinstance(each.get("kind"), str)
    return known and isinstance(each.get("fields", {}), dict) and (each["change"] == "add" or "id" in each)


def _fits(expected: Json, made: OfficeChange) -> bool:
    if (expected["change"], expected["kind"]) != (made.change, made.kind):
        return False
    fields = expected.get("fields", {})
    if made.change != "add" and expected["id"] != made.record_id:
        return False
    if made.change == "change" and fields.keys() != made.fields.keys():
        return False
    return all(_same(value, made.fields.get(name)) for name, value in fields.items())


def _same(expected: Any, value: Any) -> bool:
    """Texts without regard to case, lists in any order; `{"contains": […]}`: all of these are in the text."""
    if isinstance(expected, dict):
        return all(str(each).casefold() in str(value).casefold() for each in expected.get("contains", ()))
    if isinstance(expected, list):
        return isinstance(value, list) and sorted(map(_plain, expected)) == sorted(map(_plain, value))
    return _plain(expected) == _plain(value)


def _plain(value: Any) -> str:
    return " ".join(str(value).casefold().split())
