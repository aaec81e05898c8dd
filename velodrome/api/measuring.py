"""`metrics`, `compare`, `check` and `profile`: the numbers of rollouts, from files or from memory."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from velodrome.api.call import public_call
from velodrome.api.reading import PathLike, Rows, rollout_files
from velodrome.checks import CHECKS, Finding, known_checks, read_checks, worst
from velodrome.collector.result import RunMetrics
from velodrome.errors import InputError
from velodrome.records.views import Rollout
from velodrome.settings.model import Settings
from velodrome.settings.values import Names
from velodrome.stats.compare import compare as compare_files
from velodrome.stats.group import MetricsSettings
from velodrome.stats.groups import read_groups
from velodrome.stats.metrics import read_metrics

Json = dict[str, Any]
Rollouts = PathLike | Rows | Iterable[PathLike] | Iterable[Rollout | Json]

log = logging.getLogger(__name__)


class CheckOptions(Settings):
    """Which checks run."""

    only: Names | None = Field(None, title="A,B", description="these checks and no others")
    skip: Names = Field((), title="A,B", description="all checks but these")

    def names(self) -> list[str]:
        """The checks to run, or an `InputError` for a name that is not a check."""
        known_checks([*(self.only or ()), *self.skip])
        names = [name for name in self.only or CHECKS if name not in self.skip]
        if not names:
            raise InputError("no check is left to run; skip fewer")
        return names


class Findings(list[Finding]):
    """The findings of the checks, the worst first, and how many rollouts they read."""

    def __init__(self, findings: Iterable[Finding], *, rollouts: int, failed: int) -> None:
        super().__init__(findings)
        self.rollouts = rollouts
        self.failed = failed

    @property
    def worst(self) -> str | None:
        """The highest severity: error, warning or info; None if there are no findings."""
        return worst(self)


@public_call
def metrics(
    rollouts: Rollouts,
    *,
    by: str | None = None,
    fields: Sequence[str] | None = None,
    k: int | Sequence[int] | None = None,
    pass_at: float | None = None,
    ci: float | None = None,
) -> Json:
    """The numbers of rollouts. Without an option: those that a collection prints, as one dict.

    With any option: `run` (every number with its spread, interval and pass rates) and `groups`, one per value of `by`
    (`"agent"`, `"task"`, or any field). `rollouts` is a file, several, `read(…)`, or rollouts in memory.
    """
    settings = MetricsSettings.read({"by": by, "fields": fields, "k": k, "pass_at": pass_at, "ci": ci}, "metrics")
    with rollout_files(rollouts) as files:
        if settings.model_fields_set:
            return _noted(read_groups(files, settings))
        numbers, notes = run_metrics(files)
    for note in notes:
        log.warning("%s", note)
    failed = f": no rollout was kept, {numbers['rollouts/failed']} failed"
    return RunMetrics(numbers, "" if numbers["rollouts/kept"] else failed)


def _noted(result: Json) -> Json:
    """Log the notes of a result, which the command line prints."""
    for note in result["notes"]:
        log.warning("%s", note)
    return result


def run_metrics(files: Sequence[Path]) -> tuple[Json, list[str]]:
    """The numbers of these files, as a collection prints them, and notes on lines that were not counted."""
    numbers, notes = read_metrics(*files)
    if notes and not numbers["rollouts/kept"] and not numbers["rollouts/failed"]:
        raise InputError(f"{files[0]}: no rollouts in it", *notes[:1])
    return numbers, notes


@public_call
def compare(
    a: Rollouts,
    b: Rollouts,
    *,
    by: str | None = None,
    fields: Sequence[str] | None = None,
    k: int | Sequence[int] | None = None,
    pass_at: float | None = None,
    ci: float | None = None,
) -> Json:
    """Run A and run B side by side: what differs, which tasks flipped, and a `verdict` on whether B is better."""
    settings = MetricsSettings.read({"by": by, "fields": fields, "k": k, "pass_at": pass_at, "ci": ci}, "compare")
    with rollout_files(a) as before, rollout_files(b) as after:
        return _noted(compare_files(before, after, settings))


@public_call
def profile(rollouts: Rollouts) -> Json:
    """Where the time of rollouts went: `tree`, `verdict` (what bounded throughput and what to change) and more.

    The same as `velo profile --json` prints (docs/profiling.md).
    """
    from velodrome.profiling.profile import read_profile

    with rollout_files(rollouts) as files:
        report = read_profile(*files)
    if not report["rows"] and not report["failed"]:
        raise InputError(*report["notes"][:1], f"{files[0]}: no rollouts in it; a collection writes them")
    return report


@public_call
def check(rollouts: Rollouts, *, only: Sequence[str] | None = None, skip: Sequence[str] = ()) -> Findings:
    """What is wrong with rollouts: rewards, answers, tools, tasks, times, the file itself.

    A list of findings, the worst first, each with `name`, `severity`, `message`, `advice` and line numbers.
    """
    names = CheckOptions.read({"only": only, "skip": skip}, "check").names()
    with rollout_files(rollouts) as files:
        checks = read_checks(*files, only=names)
        return Findings(checks.findings(), rollouts=checks.rollouts, failed=checks.failed)
