"""`velo check`: what is wrong with rollouts, before anybody learns from them."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from velodrome.checks import CHECKS, SEVERITIES, Checks, Finding, known_checks, read_checks, worst
from velodrome.cli.page import reassured
from velodrome.cli.parsing import Parser
from velodrome.errors import InputError
from velodrome.records.other_files import other_file
from velodrome.timing.invisible import escaped, printed_json
from velodrome.timing.report import counted, padded, speaks_unicode

FOUND = 3  # the exit code for findings, as for failed rollouts: finished, and not all is well
NARROWEST, WIDEST = 60, 120

EXAMPLES = """examples:
  velo check rollouts.jsonl
  velo check rollouts.jsonl --only all-zero,empty-answers
  velo check shard-*.jsonl --skip deferred --fail-on warning
  velo check rollouts.jsonl --json | jq '.findings[].name'
  velo check --list

exit code: 0 nothing as bad as --fail-on, 2 a mistake in the input, 3 findings as bad as --fail-on or worse

docs/checks.md says of each check what it looks for, why it matters, and what to do."""


def run(argv: Sequence[str]) -> int:
    """Read the files, print what the checks find."""
    given = _parser().parse_args(argv)
    if given.list:
        print("\n".join(_listed()))
        return 0
    files = rollouts_files(given.files)
    only = asked(given.only, given.skip)
    with reassured(f"reading {', '.join(map(str, files))}"):
        checks = read_checks(*files, only=only)
        findings = checks.findings()
    if given.json:
        print(printed_json(_told(files, checks, findings)))
    else:
        width = min(max(shutil.get_terminal_size().columns, NARROWEST), WIDEST)
        text = "\n".join(report(files, checks, findings, width=width, ran=len(only)))
        print(text if speaks_unicode(sys.stdout) else text.encode("ascii", "backslashreplace").decode())
    bad = worst(findings)
    if bad is None or given.fail_on == "never":
        return 0
    return FOUND if SEVERITIES.index(bad) >= SEVERITIES.index(given.fail_on) else 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="velo check",
        usage="velo check ROLLOUTS [ROLLOUTS …] [--json] [--fail-on LEVEL] [--only A,B] [--skip A,B] [--list]",
        description="What is wrong with rollouts: rewards, answers, tools, tasks, times, the file itself.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("files", nargs="*", metavar="ROLLOUTS", help="rollouts files (.jsonl or .jsonl.zst)")
    parser.add_argument("--json", action="store_true", help="the findings as JSON, and nothing else")
    parser.add_argument(
        "--fail-on",
        choices=("error", "warning", "info", "never"),
        default="error",
        help="from which severity on the exit code is 3 [error]",
    )
    parser.add_argument("--only", action="append", default=[], metavar="A,B", help="these checks and no others")
    parser.add_argument("--skip", action="append", default=[], metavar="A,B", help="all checks but these")
    parser.add_argument(
        "--list", action="store_true", help="name every check, the worst it can say, and what it is about"
    )
    return parser


def rollouts_files(words: Sequence[str]) -> list[Path]:
    """The files to read, or every mistake in them."""
    if not words:
        raise InputError("no rollouts: give a file, as in velo check rollouts.jsonl (see velo check --help)")
    problems = []
    for word in words:
        if not Path(word).is_file():
            problems.append(f"{word}: {'not a regular file' if Path(word).exists() else 'no such file'}")
        elif word.endswith((".failures.jsonl", ".failures.jsonl.zst")):
            problems.append(f"{word}: give the rollouts file; the failures beside it are checked with it")
        elif (problem := other_file(Path(word))) is not None:
            problems.append(problem)
    seen = [Path(word).resolve() for word in words]
    twice = [word for at, word in enumerate(words) if seen[at] in seen[:at]]
    problems += [f"{word}: named twice" for word in dict.fromkeys(twice)]
    if problems:
        raise InputError(*problems)
    return [Path(word) for word in words]


def asked(only: Sequence[str], skip: Sequence[str]) -> list[str]:
    """The names of the checks to run."""
    wanted, unwanted = _names(only, "--only"), _names(skip, "--skip")
    known_checks([*wanted, *unwanted])
    found = [name for name in wanted or CHECKS if name not in unwanted]
    if not found:
        raise InputError("no check is left to run; give fewer to --skip")
    return found


def _names(given: Sequence[str], flag: str) -> list[str]:
    names = [name.strip() for words in given for name in words.split(",")]
    if not all(names):
        raise InputError(
            f"{flag}: names with commas between them, not {','.join(given)!r:.40}; velo check --list has them"
        )
    return names


def _listed() -> Iterator[str]:
    width = max(map(len, CHECKS))
    for name, check in CHECKS.items():
        yield f"{name:<{width}}  {check.severity:<7}  {check.about}"


def _told(files: Sequence[Path], checks: Checks, findings: Sequence[Finding]) -> dict[str, object]:
    return {
        "files": [str(path) for path in files],
        "rollouts": checks.rollouts,
        "failed": checks.failed,
        "worst": worst(findings),
        "findings": [finding.as_json() for finding in findings],
    }


def report(
    files: Sequence[Path], checks: Checks, findings: Sequence[Finding], *, width: int, ran: int
) -> Iterator[str]:
    """A table of the findings: severity, check, and below each other what, where, and what to do."""
    name = str(files[0]) if len(files) == 1 else f"{len(files)} files"
    failed = f", {checks.failed:,} failed" if checks.failed else ""
    yield f"{escaped(name)}: {counted(checks.rollouts, 'rollout')}{failed}: {_summary(findings, ran)}"
    column = max((len(finding.name) for finding in findings), default=0)
    for finding in findings:
        yield ""
        head = f"{finding.severity:<7}  {padded(finding.name, column)}  "
        text = [finding.message, _places(finding, many=len(files) > 1), finding.advice]
        lines = [line for part in text if part for line in textwrap.wrap(part, width - len(head))]
        yield from (f"{head if not index else ' ' * len(head)}{line}" for index, line in enumerate(lines))


def _summary(findings: Sequence[Finding], ran: int) -> str:
    counts = [(sum(each.severity == kind for each in findings), kind) for kind in reversed(SEVERITIES)]
    names = {"error": "error", "warning": "warning", "info": "note"}
    told = [f"{count} {names[kind]}{'s' if count > 1 else ''}" for count, kind in counts if count]
    return ", ".join(told) or f"nothing found by {ran} check{'s' if ran > 1 else ''}"


def _places(finding: Finding, *, many: bool) -> str:
    if not finding.examples:
        return ""
    more = "" if len(finding.examples) >= finding.count else ", …"
    if many:
        pairs = zip(finding.files, finding.examples, strict=True)
        return ", ".join(f"{escaped(file)}:{line}" for file, line in pairs) + more
    return f"line{'s' if len(finding.examples) > 1 else ''} {', '.join(map(str, finding.examples))}{more}"
