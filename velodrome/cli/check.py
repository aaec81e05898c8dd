"""`velo check`: what is wrong with rollouts, before anybody learns from them."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from velodrome.api.measuring import CheckOptions, Findings, check
from velodrome.api.reading import checked_files
from velodrome.checks import CHECKS, SEVERITIES, Finding, worst
from velodrome.cli.streams import still_working
from velodrome.cli.tables import ink, print_lines, print_text
from velodrome.cli.verb import Verb, argument, read_flags
from velodrome.errors import InputError
from velodrome.settings.values import FilePath
from velodrome.timing.figures import counted
from velodrome.timing.invisible import escaped, printed_json
from velodrome.timing.screen import padded, screen_width

FOUND = 3  # the exit code for findings, as for failed rollouts: finished, and not all is well
NARROW, WIDEST = 70, 120  # below NARROW the text of a finding is below its name
MARKS = {"error": "red", "warning": "yellow", "info": "accent"}


class CheckFlags(CheckOptions):
    """The flags of `velo check`."""

    files: tuple[FilePath, ...] = argument((), title="ROLLOUTS", description="rollouts files (.jsonl or .jsonl.zst)")
    as_json: bool = Field(False, alias="json", description="print the findings as JSON")
    fail_on: Literal["error", "warning", "info", "never"] = Field(
        "error", description="the least severity for which the exit code is 3"
    )
    listed: bool = Field(False, alias="list", description="list every check with its severity and subject")


VERB = Verb(
    usage="velo check ROLLOUTS [ROLLOUTS …] [flags]\nvelo check --list",
    about="What is wrong with rollouts: rewards, answers, tools, tasks, times, the file itself.",
    settings={"flags": CheckFlags},
    more="""exit code: 0 nothing as bad as --fail-on, 2 a mistake in the input, 3 findings as bad as --fail-on or worse

docs/checks.md says of each check what it looks for, why it matters, and what to do.

examples:
  velo check rollouts.jsonl
  velo check rollouts.jsonl --only all-zero,empty-answers
  velo check shard-*.jsonl --skip deferred --fail-on warning
  velo check rollouts.jsonl --json | jq '.findings[].name'""",
)


def run(argv: Sequence[str]) -> int:
    flags = read_flags(CheckFlags, argv, "velo check")
    if flags.listed:
        print_text("\n".join(_list()))
        return 0
    if not flags.files:
        raise InputError("no rollouts: give a file, as in velo check rollouts.jsonl (see velo check --help)")
    files = checked_files(flags.files)
    names = flags.names()
    with still_working(f"reading {', '.join(map(str, files))}"):
        findings = check(files, only=names)
    if flags.as_json:
        print_lines(printed_json(_report_json(files, findings)))
    else:
        width = min(screen_width(sys.stdout), WIDEST)
        print_text("\n".join(report(files, findings, width=width, ran=len(names))))
    bad = worst(findings)
    if bad is None or flags.fail_on == "never":
        return 0
    return FOUND if SEVERITIES.index(bad) >= SEVERITIES.index(flags.fail_on) else 0


def _list() -> Iterator[str]:
    width = max(map(len, CHECKS))
    for name, each in CHECKS.items():
        yield f"{name:<{width}}  {each.severity:<7}  {each.about}"


def _report_json(files: Sequence[Path], findings: Findings) -> dict[str, object]:
    return {
        "files": [str(path) for path in files],
        "rollouts": findings.rollouts,
        "failed": findings.failed,
        "worst": worst(findings),
        "findings": [finding.as_json() for finding in findings],
    }


def report(files: Sequence[Path], findings: Findings, *, width: int, ran: int) -> Iterator[str]:
    """A table of the findings: severity, check, and below each other what, where, and what to do."""
    name = str(files[0]) if len(files) == 1 else f"{len(files)} files"
    failed = f", {findings.failed:,} failed" if findings.failed else ""
    yield f"{escaped(name)}: {counted(findings.rollouts, 'rollout')}{failed}: {_summary(findings, ran)}"
    column = max((len(finding.name) for finding in findings), default=0)
    for finding in findings:
        yield ""
        head = f"{ink(f'{finding.severity:<7}', MARKS[finding.severity])}  {padded(finding.name, column)}  "
        indent = 11 + column if width >= NARROW else 9
        text = [finding.message, _places(finding, many=len(files) > 1), finding.advice]
        lines = [line for part in text if part for line in textwrap.wrap(part, width - indent)]
        if width >= NARROW:
            head += lines.pop(0)
        yield head.rstrip()
        yield from (" " * indent + line for line in lines)


def _summary(findings: Sequence[Finding], ran: int) -> str:
    counts = [(sum(each.severity == kind for each in findings), kind) for kind in reversed(SEVERITIES)]
    names = {"error": "error", "warning": "warning", "info": "note"}
    parts = [f"{count} {names[kind]}{'s' if count > 1 else ''}" for count, kind in counts if count]
    return ", ".join(parts) or f"nothing found by {ran} check{'s' if ran > 1 else ''}"


def _places(finding: Finding, *, many: bool) -> str:
    if not finding.examples:
        return ""
    more = "" if len(finding.examples) >= finding.count else ", …"
    if many:
        pairs = zip(finding.files, finding.examples, strict=True)
        return ", ".join(f"{escaped(file)}:{line}" for file, line in pairs) + more
    return f"line{'s' if len(finding.examples) > 1 else ''} {', '.join(map(str, finding.examples))}{more}"
