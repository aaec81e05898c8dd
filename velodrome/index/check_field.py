"""Checks as a field of rollouts: `check:repetition` lists the rollouts with that finding, `-check:*` those without any.

A finding about tasks covers all rollouts of these tasks.
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
LinesByCheck = dict[str, NDArray[np.int64]]  # the lines of each check, by its name
FIELD = "check"


def as_json(findings: Iterable[Finding]) -> list[Json]:
    """Findings with `lines` as base64, the number of `rollouts`, and the filter that lists them (`where`).

    Findings of one check, such as several tools that fail, have one filter and one number of rollouts.
    """
    lines: dict[str, set[int]] = {}
    all_findings = list(findings)
    for each in all_findings:
        lines.setdefault(each.name, set()).update(each.lines)
    packed = {
        name: b64encode(np.array(sorted(numbers), np.int64).tobytes()).decode() for name, numbers in lines.items()
    }
    return [
        each.as_json()
        | {"lines": packed[each.name], "rollouts": len(lines[each.name])}
        | {"where": f"{FIELD}={each.name}" if lines[each.name] else ""}
        for each in all_findings
    ]


def lines_by_check(findings: Iterable[Json]) -> LinesByCheck:
    """The lines of findings from `as_json`."""
    return {each["name"]: np.frombuffer(b64decode(each["lines"]), np.int64) for each in findings if each["rollouts"]}


def check_field(
    values: Callable[[], LinesByCheck], version: Callable[[], Hashable], note: Callable[[], str | None] = lambda: None
) -> OutsideField:
    """The field, from the lines of each check."""
    return OutsideField(FIELD, "text", values, version, note, choices=tuple(CHECKS))


def file_checks(path: Path) -> OutsideField:
    """The field of a file, computed when a filter names it, and again when the file has changed."""

    def values() -> LinesByCheck:
        return lines_by_check(as_json(read_checks(path, keeps_lines=True).findings()))

    def version() -> Hashable:
        files = [each for each in (path, beside(path, "failures.jsonl")) if each.is_file()]
        return tuple((status.st_size, status.st_mtime_ns, status.st_ino) for status in map(Path.stat, files))

    return check_field(values, version)
