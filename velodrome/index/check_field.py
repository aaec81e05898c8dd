"""Checks as a field of rollouts: `check:repetition` lists those that a check is about, `-check:*` those without any.

A finding about tasks is about all rollouts of these tasks. The lines are kept as differences, compressed, which for a
million rollouts is some kilobytes where they are regular and a quarter of a megabyte where they are not.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from zlib import compress, decompress

import numpy as np
from numpy.typing import NDArray

from velodrome.checks.check import Finding
from velodrome.checks.runner import CHECKS, read_checks
from velodrome.index.outside import OutsideField
from velodrome.records.rollout import beside

Json = dict[str, Any]
FIELD = "check"
_QUICK = 1  # the level of compression


class FoundLines(Mapping[str, NDArray[np.int64]]):
    """The lines that each check is about, unpacked when they are asked for."""

    def __init__(self, packed: Mapping[str, str]) -> None:
        self._packed = packed

    def __getitem__(self, name: str) -> NDArray[np.int64]:
        steps = np.frombuffer(decompress(b64decode(self._packed[name])), np.uint32)
        return np.cumsum(steps, dtype=np.int64)

    def __iter__(self) -> Iterator[str]:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)


def as_json(findings: Iterable[Finding]) -> list[Json]:
    """Findings with `lines` packed, how many `rollouts` these are, and the filter that lists them (`where`).

    Findings of one check, such as several tools that fail, have one filter and one number of rollouts.
    """
    all_findings = list(findings)
    lines = {each.name: np.zeros(0, np.int64) for each in all_findings}
    for each in all_findings:
        lines[each.name] = np.union1d(lines[each.name], np.array(each.lines, np.int64))
    packed = {name: _packed(each) for name, each in lines.items()}
    return [
        each.as_json()
        | {"lines": packed[each.name], "rollouts": len(lines[each.name])}
        | {"where": f"{FIELD}={each.name}" if len(lines[each.name]) else ""}
        for each in all_findings
    ]


def _packed(lines: NDArray[np.int64]) -> str:
    steps = np.diff(lines, prepend=0).astype(np.uint32)
    return b64encode(compress(steps.tobytes(), _QUICK)).decode()


def found_lines(findings: Iterable[Json]) -> FoundLines:
    """The lines of findings that were made by `as_json`."""
    return FoundLines({each["name"]: each["lines"] for each in findings if each["rollouts"]})


def check_field(
    values: Callable[[], FoundLines], version: Callable[[], Hashable], note: Callable[[], str | None] = lambda: None
) -> OutsideField:
    """The field, from what checks found."""
    return OutsideField(FIELD, "text", lambda numbers_of: values(), version, note, choices=tuple(CHECKS))


def file_checks(path: Path) -> OutsideField:
    """The field of a file, computed when a filter names it, and again when the file has changed."""

    def values() -> FoundLines:
        return found_lines(as_json(read_checks(path, keeps_lines=True).findings()))

    def version() -> Hashable:
        files = [each for each in (path, beside(path, "failures.jsonl")) if each.is_file()]
        return tuple((status.st_size, status.st_mtime_ns, status.st_ino) for status in map(Path.stat, files))

    return check_field(values, version)
