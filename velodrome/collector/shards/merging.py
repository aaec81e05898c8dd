"""Several outputs as one, which `velo collect` can continue. Nothing is overwritten, and nothing is half done.

A line is taken whole or not at all, and a key once: equal lines are one rollout, and two different rollouts under one
key are an error, because only the user can say which is right. Of a row 40 bytes are kept in memory.
"""

from __future__ import annotations

import hashlib
import os
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from pydantic import Field

from velodrome.collector.keys import content_number, entry_of, name_hash
from velodrome.collector.runfile import RunFile, refuse_mixing
from velodrome.collector.watch.live_state import lives, read_live_state
from velodrome.errors import InputError
from velodrome.records.jsonl import LostLine, read_lines
from velodrome.records.other_files import other_file
from velodrome.records.outfile import OutFile
from velodrome.records.people.judgements import notes_file, read_judgement
from velodrome.records.rollout import beside
from velodrome.settings.files import file_problem, find_inputs, is_pattern
from velodrome.settings.model import Settings
from velodrome.settings.values import FilePath

if TYPE_CHECKING:
    import numpy as np

_MOST_NOTES = 20
_BESIDE = ("failures.jsonl", "notes.jsonl", "run.json", "metrics.json", "profile.json", "progress.json", "keys", "plan")


class MergeOptions(Settings):
    """What is merged, and into what."""

    out: FilePath = Field(description="the new file; nothing is overwritten")
    files: tuple[FilePath, ...] = Field((), description="rollouts files (.jsonl or .jsonl.zst)")
    allow_mixed: bool = Field(False, description="merge rollouts made with different settings")


@dataclass
class MergeResult:
    """What was merged. `left_out` counts lines that are not rollouts, or not whole."""

    rollouts: int = 0
    repeated: int = 0
    failures: int = 0
    left_out: int = 0
    notes: list[str] = field(default_factory=list)

    def leave_out(self, path: Path, number: int, reason: str) -> None:
        """Count a line that is not taken."""
        self.left_out += 1
        if len(self.notes) < _MOST_NOTES:
            self.notes.append(f"{path}:{number}: {reason}; left out")


class MergedRows:
    """The rows of all files in their order, as numbers."""

    def __init__(self) -> None:
        self.keys = array("Q")
        self.tasks = array("Q")
        self.digests = array("Q")
        self.contents = array("Q")
        self.lines = array("Q")
        self.ends: list[int] = []  # how many rows there are up to the end of each file

    def add(self, number: int, line: bytes) -> bool:
        """One line; False if it is not a rollout."""
        entry = entry_of(line)
        if entry is None:
            return False
        task, repeat, content = entry
        self.keys.append(name_hash(f"{task}/{repeat}"))
        self.tasks.append(name_hash(task))
        self.digests.append(content_number(content))
        self.contents.append(_content(line))
        self.lines.append(number)
        return True

    def repeated(self, paths: Sequence[Path]) -> np.ndarray[Any, Any]:
        """Which rows are there before. Raises if two rollouts, or two tasks, have one key."""
        import numpy as np

        keys, contents = np.frombuffer(self.keys, "<u8"), np.frombuffer(self.contents, "<u8")
        tasks, digests = np.frombuffer(self.tasks, "<u8"), np.frombuffer(self.digests, "<u8")
        again = np.zeros(len(keys), bool)
        order = np.argsort(keys, kind="stable")
        same = keys[order[1:]] == keys[order[:-1]]
        other = same & (contents[order[1:]] != contents[order[:-1]])
        self._refuse(paths, order, other, "are two rollouts with the same key; merge one of these files, or remove one")
        again[order[1:][same]] = True
        known = np.flatnonzero(digests)
        order = known[np.argsort(tasks[known], kind="stable")]
        other = (tasks[order[1:]] == tasks[order[:-1]]) & (digests[order[1:]] != digests[order[:-1]])
        self._refuse(paths, order, other, "are rollouts of two tasks with the same id (docs/rollouts.md#keys)")
        return again

    def _refuse(self, paths: Sequence[Path], order: Any, wrong: Any, what: str) -> None:
        import numpy as np

        places = np.flatnonzero(wrong)
        if len(places):
            first = places[np.argmin(order[places + 1])]  # in the order of the files
            pair = (self._place(paths, int(order[first])), self._place(paths, int(order[first + 1])))
            more = f" (and {len(places) - 1} more like it)" if len(places) > 1 else ""
            raise InputError(f"{pair[0]} and {pair[1]} {what}{more}")

    def _place(self, paths: Sequence[Path], row: int) -> str:
        file = next(index for index, end in enumerate(self.ends) if row < end)
        return f"{paths[file]}:{self.lines[row]}"


def merge(options: MergeOptions) -> MergeResult:
    """Write the rollouts, failures and runs of these outputs as one. Nothing is written if anything is wrong."""
    out, paths = options.out, _without_sidecars(_matched(options.files))
    _check(out, paths)
    result, rows = MergeResult(), MergedRows()
    states = [_state(path) for path in paths]
    run = _merged_run(out, paths, allow_mixed=options.allow_mixed)
    for path in paths:
        before, others = len(rows.keys), 0
        for number, line in _whole_lines(path, result):
            if not rows.add(number, line):
                result.leave_out(path, number, "not a rollout")
                others += _is_whole(line)
        rows.ends.append(len(rows.keys))
        if others and len(rows.keys) == before:
            raise InputError(f"{path}: no rollout in it, but {others} other lines; leave it out")
    again = rows.repeated(paths)
    result.repeated = int(again.sum())
    result.rollouts = len(again) - result.repeated
    with ExitStack() as stack:
        output = stack.enter_context(OutFile(out))
        place = 0
        for path in paths:
            for _, line in _whole_lines(path, MergeResult()):
                if place < len(again) and rows.contents[place] == _content(line):
                    if not again[place]:
                        output.write(line.rstrip(b"\r\n") + b"\n")
                    place += 1
        failures = stack.enter_context(OutFile(beside(out, "failures.jsonl")))
        _merge_failures(failures, paths, result)
        notes = stack.enter_context(OutFile(notes_file(out)))
        judgements = _merge_notes(notes, paths)
        if place != len(again) or [_state(path) for path in paths] != states:
            raise InputError(f"{out}: a file was changed while it was read; run the command again")
        if result.failures:
            failures.commit()
        if judgements:
            notes.commit()
            result.notes.append(f"{notes.path}: {judgements} line{'s' * (judgements > 1)} of people's judgement")
        if any(beside(path, "run.json").exists() for path in paths):
            run.save()
        output.commit()
    return result


def _matched(paths: Sequence[Path]) -> list[Path]:
    """The files that these paths name; one with `*` that the shell left alone stands for several."""
    return [each for path in paths for each in (find_inputs(path) if is_pattern(path) else [path])]


def _without_sidecars(paths: Sequence[Path]) -> list[Path]:
    """A failures or notes file that a pattern found is merged with its rollouts file, and is not one itself."""
    known = {beside(path, kind) for path in paths for kind in ("failures.jsonl", "notes.jsonl")}
    return [path for path in paths if path not in known]


def _check(out: Path, paths: Sequence[Path]) -> None:
    problems = [] if out.name.endswith((".jsonl", ".jsonl.zst")) else [f"{out}: an output ends in .jsonl or .jsonl.zst"]
    if not paths:
        problems.append("no files to merge: give at least one")
    for path in paths:
        if (problem := file_problem(path) or other_file(path)) is not None:
            problems.append(problem)
        elif beside(path, "progress.json").exists():
            state = read_live_state(path)
            if "finished_at" not in state and lives(state):
                problems.append(f"{path}: process {state['pid']} is writing to it; wait for it, or stop it")
    if problems:
        raise InputError(*problems)
    for path in (out, *(beside(out, kind) for kind in _BESIDE)):
        if os.path.lexists(path):
            raise InputError(f"{path}: there already; nothing is overwritten, so give another output")


def _state(path: Path) -> tuple[int, int, int]:
    state = path.stat()
    return state.st_ino, state.st_size, state.st_mtime_ns


def _whole_lines(path: Path, result: MergeResult) -> Iterator[tuple[int, bytes]]:
    """The lines of a file; those that cannot be read are counted."""

    def lost(line: LostLine) -> None:
        result.leave_out(path, line.number, line.reason)

    return read_lines(path, lost=lost)


def _is_whole(line: bytes) -> bool:
    """Whether a line is JSON; the rest of a torn one is not."""
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return True


def _content(line: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(line.rstrip(b"\r\n"), digest_size=8).digest(), "little")


def _merge_failures(failures: OutFile, paths: Sequence[Path], result: MergeResult) -> None:
    """Every failed attempt once."""
    seen: set[int] = set()
    for path in (beside(path, "failures.jsonl") for path in paths):
        for number, line in _whole_lines(path, result) if path.exists() else ():
            if entry_of(b'{"meta":' + line.rstrip(b"\r\n") + b"}") is None:
                result.leave_out(path, number, "not a failed attempt")
            elif (content := _content(line)) not in seen:
                seen.add(content)
                failures.write(line.rstrip(b"\r\n") + b"\n")
                result.failures += 1


def _merge_notes(notes: OutFile, paths: Sequence[Path]) -> int:
    """What people said, each line once and by its time: the last of a person counts."""
    files = [file for file in map(notes_file, paths) if file.exists()]
    lines = dict.fromkeys(line.rstrip(b"\r\n") for file in files for _, line in _whole_lines(file, MergeResult()))
    for line in sorted(filter(_is_whole, lines), key=lambda line: at.at if (at := read_judgement(line)) else 0.0):
        notes.write(line + b"\n")
    return sum(map(_is_whole, lines))


def _merged_run(out: Path, paths: Sequence[Path], *, allow_mixed: bool) -> RunFile:
    """The run files as one. Rollouts of two kinds in one file are asked for, or an error."""
    run = RunFile(out)
    for path in paths:
        problems = run.add(RunFile(path), path.name)
        if not allow_mixed:
            refuse_mixing(problems, path)
    return run
