"""A training run as the viewer knows it: its metrics, thinned, its settings, checkpoints and episodes.

Reading is bounded: of a long file of metrics some thousand lines are read, evenly spread; evaluations, of which there
are few, are looked for some hundred megabytes at a time.
"""

from __future__ import annotations

import os
import re
import threading
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from velodrome.records.jsonl import open_regular
from velodrome.viewer.runs.folder import METRICS, SETTINGS
from velodrome.viewer.runs.run_summary import parsed_object, tail_lines

Json = dict[str, Any]

WHOLE_BYTES = 6_000_000  # up to here every line is read
SAMPLES = 3_000  # lines of a longer file
MOST_EVALUATIONS = 2_000
_LINE_BYTES = 16_384
_SCAN_BYTES = 256_000_000  # looked through for evaluations at once
_CHUNK_BYTES = 4_000_000
_MOST_FILES = 2_000
_MOST_SETTINGS_BYTES = 1_000_000
_EVALUATION = b'"evaluation":{'
_CHECKPOINT = re.compile(r"checkpoint_(\d+)\.pt")
_EPISODES = re.compile(r"episodes\w*\.jsonl(\.zst)?")
_TRACE = re.compile(r"profiler_trace_\d+\.json")


@dataclass(frozen=True, slots=True)
class FolderFile:
    """A file in the folder of a run; of a checkpoint also the step."""

    name: str
    size: int
    at: float
    step: int = 0


@dataclass(frozen=True, slots=True)
class TrainingData:
    """What the files of a run say. `sampled`: only some of the epochs are here. `scanned` bytes of `size` were read."""

    epochs: list[Json] = field(default_factory=list)
    evaluations: list[Json] = field(default_factory=list)
    sampled: bool = False
    scanned: int = 0
    size: int = 0
    settings: Json = field(default_factory=dict)
    checkpoints: list[FolderFile] = field(default_factory=list)
    episodes: list[FolderFile] = field(default_factory=list)
    traces: list[FolderFile] = field(default_factory=list)


class TrainingRun:
    """The folder of a run, read again when its metrics have changed."""

    def __init__(self, folder: Path, slug: str, name: str) -> None:
        self.path = folder
        self.slug = slug
        self.name = name
        self._lock = threading.Lock()
        self._evaluations: list[Json] = []
        self._scanned = 0
        self._every = 1  # of so many evaluations one is kept
        self._seen = 0
        self._inode = 0
        self._read: tuple[object, list[Json], bool] = (None, [], False)

    @property
    def version(self) -> str:
        """Changes whenever a page about this run would."""
        stamps = [_stamp(self.path / name) for name in (METRICS, SETTINGS, ".")]
        return blake2b(repr((stamps, self._scanned)).encode(), digest_size=8).hexdigest()

    def read(self) -> TrainingData:
        """What is known now. A file that cannot be read is empty."""
        files = _files(self.path)
        settings: Json = {}
        try:
            with open_regular(self.path / SETTINGS) as file:
                settings = parsed_object(file.read(_MOST_SETTINGS_BYTES))
        except OSError:
            pass
        with self._lock:
            epochs, sampled, size = self._epochs()
            return TrainingData(
                epochs,
                list(self._evaluations),
                sampled,
                self._scanned,
                size,
                settings,
                _matching(files, _CHECKPOINT),
                _matching(files, _EPISODES),
                _matching(files, _TRACE),
            )

    def _epochs(self) -> tuple[list[Json], bool, int]:
        try:
            file = open_regular(self.path / METRICS)
        except OSError:
            return [], False, 0
        with file:
            fd = file.fileno()
            status = os.fstat(fd)
            stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
            if self._read[0] != stamp:
                sampled = status.st_size > WHOLE_BYTES
                lines = _samples(fd, status.st_size) if sampled else _lines(os.pread(fd, status.st_size, 0))
                lines += tail_lines(self.path / METRICS) if sampled else []
                by_step = {line["step"]: line for line in lines if "phase" in line and _is_step(line.get("step"))}
                self._read = (stamp, [by_step[step] for step in sorted(by_step)], sampled)
            self._scan(fd, status)
            return self._read[1], self._read[2], status.st_size

    def _scan(self, fd: int, status: os.stat_result) -> None:
        """Look for evaluations in what was added. A run that resumes cuts its file back: then everything is read."""
        if status.st_ino != self._inode or status.st_size < self._scanned:
            self._evaluations, self._scanned, self._every, self._seen = [], 0, 1, 0
        self._inode = status.st_ino
        until = min(status.st_size, self._scanned + _SCAN_BYTES)
        while self._scanned < until:
            data = os.pread(fd, _CHUNK_BYTES, self._scanned)
            end = data.rfind(b"\n") + 1
            if not end:
                break
            place = data.find(_EVALUATION, 0, end)
            while place >= 0:
                start, stop = data.rfind(b"\n", 0, place) + 1, data.find(b"\n", place)
                self._keep(parsed_object(data[start:stop]))
                place = data.find(_EVALUATION, stop, end)
            self._scanned += end

    def _keep(self, line: Json) -> None:
        """Of very many evaluations every second is kept, then every fourth, and so on."""
        if not (isinstance(line.get("evaluation"), dict) and _is_step(line.get("step"))):
            return
        if self._evaluations and line["step"] < self._evaluations[-1]["step"]:
            self._evaluations = [each for each in self._evaluations if each["step"] < line["step"]]
        if self._seen % self._every == 0:
            self._evaluations.append(line)
        self._seen += 1
        if len(self._evaluations) > MOST_EVALUATIONS:
            self._evaluations, self._every = self._evaluations[::2], 2 * self._every


def _is_step(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62


def _lines(data: bytes) -> list[Json]:
    return [line for text in data.split(b"\n")[:-1] if (line := parsed_object(text))]


def _samples(fd: int, size: int) -> list[Json]:
    """Lines at places evenly spread over the file."""
    lines = []
    for place in range(SAMPLES):
        data = os.pread(fd, _LINE_BYTES, place * size // SAMPLES)
        start = data.find(b"\n") + 1 if place else 0
        end = data.find(b"\n", start)
        if end > start and (line := parsed_object(data[start:end])):
            lines.append(line)
    return lines


def _files(folder: Path) -> list[FolderFile]:
    result = []
    try:
        with os.scandir(folder) as entries:
            for count, entry in enumerate(entries):
                if count >= _MOST_FILES:
                    break
                if entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    step = _CHECKPOINT.fullmatch(entry.name)
                    result.append(FolderFile(entry.name, status.st_size, status.st_mtime, int(step[1]) if step else 0))
    except OSError:
        pass
    return sorted(result, key=lambda file: file.name)


def _matching(files: list[FolderFile], pattern: re.Pattern[str]) -> list[FolderFile]:
    return [file for file in files if pattern.fullmatch(file.name)]


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0, 0
    return status.st_ino, status.st_size, status.st_mtime_ns
