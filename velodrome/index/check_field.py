"""Checks as a field of rollouts: `check:repetition` lists those that a check is about, `-check:*` those without any.

A finding about tasks is about all rollouts of these tasks.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velodrome.checks.check import Finding
from velodrome.checks.runner import CHECKS, read_checks
from velodrome.index.outside import OutsideField
from velodrome.records.rollout import beside

Json = dict[str, Any]
FoundLines = dict[str, NDArray[np.int64]]  # the lines that each check is about
FIELD = "check"


def as_json(findings: Iterable[Finding]) -> list[Json]:
    """Findings with `lines` as base64, how many `rollouts` these are, and the filter that lists them (`where`).

    Findings of one check, such as several tools that fail, have one filter and one number of rollouts.
    """
    lines: dict[str, set[int]] = {}
    all_findings = list(findings)
    for each in all_findings:
        lines.setdefault(each.name, set()).update(each.lines)
    packed = {name: b64encode(np.array(sorted(own), np.int64).tobytes()).decode() for name, own in lines.items()}
    return [
        each.as_json()
        | {"lines": packed[each.name], "rollouts": len(lines[each.name])}
        | {"where": f"{FIELD}={each.name}" if lines[each.name] else ""}
        for each in all_findings
    ]


def found_lines(findings: Iterable[Json]) -> FoundLines:
    """The lines of findings that were made by `as_json`."""
    return {each["name"]: np.frombuffer(b64decode(each["lines"]), np.int64) for each in findings if each["rollouts"]}


def check_field(
    values: Callable[[], FoundLines], version: Callable[[], Hashable], note: Callable[[], str | None] = lambda: None
) -> OutsideField:
    """The field, from what checks found."""
    return OutsideField(FIELD, "text", values, version, note, choices=tuple(CHECKS))


def file_checks(path: Path) -> OutsideField:
    """The field of a file, computed when a filter names it, and again when the file has changed."""

    def values() -> FoundLines:
        return found_lines(as_json(read_checks(path, keeps_lines=True).findings()))

    def version() -> Hashable:
        files = [each for each in (path, beside(path, "failures.jsonl")) if each.is_file()]
        return tuple((status.st_size, status.st_mtime_ns, status.st_ino) for status in map(Path.stat, files))

    return check_field(values, version)
