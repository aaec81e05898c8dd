"""Merges several outputs into one that `velo collect` can continue. Nothing is overwritten or left half done.

Only whole lines are merged. The first rollout of each key is kept; later ones are left out and counted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import Field

from velodrome.collector.keys import digest_bits, entry_of
from velodrome.collector.runfile import RunFile, refuse_mixing
from velodrome.errors import InputError
from velodrome.records.jsonl import loads, read_lines
from velodrome.records.other_files import other_file
from velodrome.records.outfile import OutFile, side_file_problem
from velodrome.records.rollout import SIDECARS, beside
from velodrome.records.rows import Notes
from velodrome.records.task import hashed
from velodrome.settings.files import file_problem, find_inputs, is_pattern
from velodrome.settings.model import Settings
from velodrome.settings.values import FilePath


class MergeOptions(Settings):
    """The files to merge, and the output."""

    out: FilePath = Field(description="the new file; nothing is overwritten")
    files: tuple[FilePath, ...] = Field((), description="rollouts files (.jsonl or .jsonl.zst)")
    allow_mixed: bool = Field(False, description="merge rollouts made with different settings")


@dataclass
class MergeResult:
    """The counts of a merge. `repeated` counts rollouts with an earlier key, `left_out` other lines."""

    rollouts: int = 0
    repeated: int = 0
    failures: int = 0
    left_out: int = 0
    notes: Notes = field(default_factory=Notes)

    def leave_out(self, path: Path, line_number: int, reason: str) -> None:
        """Count a line that is not merged."""
        self.left_out += 1
        self.notes.add(f"{path}:{line_number}: {reason}; left out")


def merge(options: MergeOptions) -> MergeResult:
    """Write the rollouts, failures and runs of these outputs as one. Nothing is written if anything is wrong."""
    out, paths = options.out, _files(options.files)
    _check(out, paths)
    run = RunFile(out)
    for path in paths:
        problems = run.add(RunFile(path), path.name)
        if not options.allow_mixed:
            refuse_mixing(problems, path)
    result = MergeResult()
    with ExitStack() as stack:
        files = (out, *(beside(out, kind) for kind in ("failures.jsonl", "notes.jsonl")))
        output, failures, notes = (stack.enter_context(OutFile(file)) for file in files)
        _merge_rows(output, paths, result)
        _merge_failures(failures, paths, result)
        judgements = _merge_notes(notes, paths)
        if result.failures:
            failures.commit()
        if judgements:
            notes.commit()
            result.notes.append(f"{notes.path}: {judgements} line{'s' * (judgements > 1)} of people's judgement")
        if any(beside(path, "run.json").exists() for path in paths):
            run.save()
        output.commit()
    return result


def _merge_rows(output: OutFile, paths: Sequence[Path], result: MergeResult) -> None:
    """Write the first rollout of every key."""
    keys: set[int] = set()
    tasks: dict[int, int] = {}  # the digest of each task's content
    for path in paths:
        rollouts = others = 0
        for line_number, line in _whole_lines(path, result):
            entry = entry_of(line)
            if entry is None:
                result.leave_out(path, line_number, "not a rollout")
                others += line.endswith(b"\n")  # the last line of a killed run may be torn
                continue
            rollouts += 1
            task, repeat, digest = entry
            bits = digest_bits(digest)
            if bits and tasks.setdefault(hashed(task), bits) != bits:
                raise InputError(
                    f"{path}:{line_number}: the id {task!r} is that of another task before it (docs/rollouts.md#keys)"
                )
            key = hashed(f"{task}/{repeat}")
            if key in keys:
                result.repeated += 1
            else:
                keys.add(key)
                result.rollouts += 1
                output.write(line.rstrip(b"\r\n") + b"\n")
        if others and not rollouts:
            raise InputError(f"{path}: no rollout in it, but {others} other lines; leave it out")
    if not keys:
        raise InputError(f"no rollout in {', '.join(map(str, paths))}; nothing was written", *result.notes)
    if result.repeated:
        result.notes.append(f"{result.repeated:,} rollouts have the key of one before them; the first is kept")


def _files(paths: Sequence[Path]) -> list[Path]:
    """The rollouts files of these paths and patterns, without the files beside them."""
    files = [file for path in paths for file in (find_inputs(path) if is_pattern(path) else [path])]
    beside_them = {beside(path, kind) for path in files for kind in SIDECARS}
    return [path for path in files if path not in beside_them]


def _check(out: Path, paths: Sequence[Path]) -> None:
    problems = [] if out.name.endswith((".jsonl", ".jsonl.zst")) else [f"{out}: an output ends in .jsonl or .jsonl.zst"]
    if (problem := side_file_problem(out)) is not None:
        problems.append(problem)
    if not paths:
        problems.append("no files to merge: give at least one")
    for path in paths:
        if (problem := file_problem(path) or other_file(path)) is not None:
            problems.append(problem)
    if problems:
        raise InputError(*problems)
    for path in (out, *(beside(out, kind) for kind in SIDECARS)):
        if os.path.lexists(path):
            raise InputError(f"{path}: there already; nothing is overwritten, so give another output")


def _whole_lines(path: Path, result: MergeResult) -> Iterator[tuple[int, bytes]]:
    """The readable lines of a file; the others are counted."""
    return read_lines(path, lost=lambda lost: result.leave_out(path, lost.number, lost.reason))


def _merge_failures(failures: OutFile, paths: Sequence[Path], result: MergeResult) -> None:
    """Write every failed attempt once."""
    seen: set[int] = set()
    for path in (beside(path, "failures.jsonl") for path in paths):
        for line_number, line in _whole_lines(path, result) if path.exists() else ():
            line = line.rstrip(b"\r\n")
            if entry_of(b'{"meta":' + line + b"}") is None:
                result.leave_out(path, line_number, "not a failed attempt")
            elif (line_hash := hashed(line)) not in seen:
                seen.add(line_hash)
                failures.write(line + b"\n")
                result.failures += 1


def _merge_notes(notes: OutFile, paths: Sequence[Path]) -> int:
    """Write people's judgements once each, oldest first, because the last judgement of a person counts."""
    times: dict[bytes, float] = {}
    for file in filter(Path.exists, (beside(path, "notes.jsonl") for path in paths)):
        for _, line in _whole_lines(file, MergeResult()):
            with suppress(ValueError, TypeError, LookupError):
                times[line.rstrip(b"\r\n")] = float(loads(line)["at"])
    for line in sorted(times, key=lambda line: times[line]):
        notes.write(line + b"\n")
    return len(times)
