"""`metrics`, `compare` and `check`: what the rollouts of a run come to, from files or from memory."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from velodrome.api.reading import PathLike, Rows, rollout_files
from velodrome.checks import CHECKS, Finding, known_checks, read_checks, worst
from velodrome.errors import InputError
from velodrome.records.views import Rollout
from velodrome.settings.model import Settings
from velodrome.settings.values import Count, Text
from velodrome.stats.compare import compare as compare_files
from velodrome.stats.group import Settings as Measures
from velodrome.stats.groups import read_groups
from velodrome.stats.metrics import PASS_REWARD, Tally, read_metrics
from velodrome.stats.shards import read_shards

Json = dict[str, Any]
Rollouts = PathLike | Rows | Iterable[PathLike] | Iterable[Rollout | Json]

log = logging.getLogger(__name__)


def _split(value: Any) -> Any:
    """`"a,b"` on a command line is `["a", "b"]`."""
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        return value if not isinstance(value, list) else tuple(value)
    names = tuple(name.strip() for word in words for name in word.split(","))
    if not all(names):
        raise ValueError(f"expected names with commas between them, not {','.join(words)!r:.40}")
    return names


def _level(value: float) -> float:
    if value and not 0.5 <= value <= 0.999:
        raise ValueError(f"expected a share from 0.5 to 0.999, such as 0.95, or 0 for none, not {value!r:.40}")
    return value


Names = Annotated[tuple[Text, ...], BeforeValidator(_split)]
Sizes = Annotated[tuple[Count, ...], BeforeValidator(_split)]


class MeasureOptions(Settings):
    """How `metrics` and `compare` compute their numbers."""

    by: Text | None = Field(
        None, title="FIELD", description="agent, task, or any field of the rows (info.level reaches inside)"
    )
    fields: Names | None = Field(None, title="NAMES", description="only these numbers, and the reward (reward,tokens)")
    k: Sizes | None = Field(
        None,
        title="1,2,4",
        description="the k of pass@k, pass^k, majority@k [1, 2, 4, … and the largest that half of the tasks have]",
    )
    pass_at: float = Field(PASS_REWARD, title="REWARD", description="the reward from which a rollout passes")
    ci: Annotated[float, AfterValidator(_level)] = Field(
        0.95, title="LEVEL", description="the level of confidence intervals, 0 for none"
    )

    @property
    def measures(self) -> Measures:
        """The options as `stats` takes them."""
        names = None if self.fields is None else frozenset(self.fields)
        return Measures(by=self.by, ks=self.k, pass_at=self.pass_at, level=self.ci, fields=names)

    @property
    def is_default(self) -> bool:
        """Whether nothing was asked for beyond the numbers that a collection prints."""
        return not self.model_fields_set & MeasureOptions.model_fields.keys()


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
    """What the checks report, the worst first; and how many rollouts they read."""

    def __init__(self, findings: Iterable[Finding], *, rollouts: int, failed: int) -> None:
        super().__init__(findings)
        self.rollouts = rollouts
        self.failed = failed

    @property
    def worst(self) -> str | None:
        """The highest severity: error, warning or info; None if there are no findings."""
        return worst(self)


def metrics(
    rollouts: Rollouts,
    *,
    by: str | None = None,
    fields: Sequence[str] | None = None,
    k: Sequence[int] | None = None,
    pass_at: float | None = None,
    ci: float | None = None,
) -> Json:
    """The numbers of rollouts. Without an option: those that a collection prints, as one dict.

    With any option: `run` (every number with its spread, interval and pass rates) and `groups`, one per value of `by`
    (`"agent"`, `"task"`, or any field). `rollouts` is a file, several, `read(…)`, or rollouts in memory.
    """
    options = MeasureOptions.read({"by": by, "fields": fields, "k": k, "pass_at": pass_at, "ci": ci}, "metrics")
    with rollout_files(rollouts) as files:
        if not options.is_default:
            return read_groups(files, options.measures)
        numbers, notes = run_metrics(files)
    for note in notes:
        log.warning("%s", note)
    return numbers


def run_metrics(files: Sequence[Path]) -> tuple[Json, list[str]]:
    """The numbers that a collection of these files prints, and notes on what is in none of them."""
    if len(files) == 1:
        numbers, notes = read_metrics(files[0])
    else:
        tally = Tally()
        taken = read_shards(files, tally.add)
        numbers, notes = tally.metrics(failed=len(taken.failed)), [*taken.notes, *tally.notes()]
    if notes and not numbers["rollouts/kept"] and not numbers["rollouts/failed"]:
        raise InputError(f"{files[0]}: no rollouts in it", *notes[:1])
    return numbers, notes


def compare(
    a: Rollouts,
    b: Rollouts,
    *,
    by: str | None = None,
    fields: Sequence[str] | None = None,
    k: Sequence[int] | None = None,
    pass_at: float | None = None,
    ci: float | None = None,
) -> Json:
    """Run A and run B side by side: what differs, which tasks flipped, and a `verdict` on whether B is better."""
    options = MeasureOptions.read({"by": by, "fields": fields, "k": k, "pass_at": pass_at, "ci": ci}, "compare")
    with rollout_files(a) as before, rollout_files(b) as after:
        return compare_files(before, after, options.measures)


def check(rollouts: Rollouts, *, only: Sequence[str] | None = None, skip: Sequence[str] = ()) -> Findings:
    """What is wrong with rollouts: rewards, answers, tools, tasks, times, the file itself.

    A list of findings, the worst first, each with `name`, `severity`, `message`, `advice` and line numbers.
    """
    names = CheckOptions.read({"only": only, "skip": skip}, "check").names()
    with rollout_files(rollouts) as files:
        checks = read_checks(*files, only=names)
        return Findings(checks.findings(), rollouts=checks.rollouts, failed=checks.failed)
