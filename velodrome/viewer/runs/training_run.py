"""A training run in the viewer: its metrics, thinned, its settings, checkpoints and episodes."""

from __future__ import annotations

import os
import re
import threading
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from velodrome.records.jsonl import open_regular
from velodrome.viewer.measurements import stamp
from velodrome.viewer.runs.folder import METRICS, SETTINGS
from velodrome.viewer.runs.run_summary import parsed_object, read_object

Json = dict[str, Any]

MOST_LINES = 500  # most epochs, and most evaluations, on a page
_CHUNK_BYTES = 4_000_000
_MOST_FILES = 2_000
_CHECKPOINT = re.compile(r"checkpoint_(\d+)\.pt")
_EPISODES = re.compile(r"episodes\w*\.jsonl(\.zst)?")
_TRACE = re.compile(r"profiler_trace_\d+\.json")


@dataclass(frozen=True, slots=True)
class FolderFile:
    """A file in the folder of a run. A checkpoint also has a step."""

    name: str
    size: int
    at: float
    step: int = 0


@dataclass(frozen=True, slots=True)
class TrainingData:
    """The data in the files of a run. Of many epochs only every `every`-th is included."""

    epochs: list[Json] = field(default_factory=list)
    evaluations: list[Json] = field(default_factory=list)
    every: int = 1
    settings: Json = field(default_factory=dict)
    checkpoints: list[FolderFile] = field(default_factory=list)
    episodes: list[FolderFile] = field(default_factory=list)
    traces: list[FolderFile] = field(default_factory=list)


class ThinnedLines:
    """Lines by step. If there are too many, every second is kept, then every fourth, and so on."""

    def __init__(self) -> None:
        self.lines: list[Json] = []
        self.every = 1
        self._seen = 0

    def add(self, line: Json) -> None:
        """Add a line. A resumed run returns to an earlier step: the lines after that step are dropped."""
        while self.lines and self.lines[-1]["step"] >= line["step"]:
            self.lines.pop()
        if self._seen % self.every == 0:
            self.lines.append(line)
        self._seen += 1
        if len(self.lines) > MOST_LINES:
            self.lines, self.every = self.lines[::2], 2 * self.every


class TrainingRun:
    """The folder of a run. New lines of its metrics are read; if the file was cut, it is read from the start."""

    def __init__(self, folder: Path, slug: str, name: str) -> None:
        self.path = folder
        self.slug = slug
        self.name = name
        self._lock = threading.Lock()
        self._reset()

    def _reset(self) -> None:
        self._epochs, self._evaluations = ThinnedLines(), ThinnedLines()
        self._last: Json | None = None  # the newest epoch, which thinning may leave out
        self._inode = self._end = 0

    @property
    def version(self) -> str:
        """Changes whenever a page about this run would change."""
        stamps = [stamp(self.path / name) for name in (METRICS, SETTINGS, ".")]
        return blake2b(repr(stamps).encode(), digest_size=8).hexdigest()

    def read(self) -> TrainingData:
        """The current data. A file that cannot be read counts as empty."""
        files = _files(self.path)
        with self._lock:
            self._read_new_lines()
            epochs = self._epochs.lines
            return TrainingData(
                epochs + ([self._last] if self._last and epochs[-1:] != [self._last] else []),
                list(self._evaluations.lines),
                self._epochs.every,
                read_object(self.path / SETTINGS),
                _matching(files, _CHECKPOINT),
                _matching(files, _EPISODES),
                _matching(files, _TRACE),
            )

    def _read_new_lines(self) -> None:
        """Read the new whole lines. A resumed run cuts its file: then all lines are read again."""
        try:
            with open_regular(self.path / METRICS) as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self._inode or status.st_size < self._end:
                    self._reset()
                self._inode = status.st_ino
                while data := os.pread(file.fileno(), _CHUNK_BYTES, self._end):
                    end = data.rfind(b"\n") + 1
                    if not end:
                        break
                    for text in data[:end].splitlines():
                        self._add(parsed_object(text))
                    self._end += end
        except OSError:
            self._reset()

    def _add(self, line: Json) -> None:
        if not _is_step(line.get("step")):
            return
        if isinstance(line.get("evaluation"), dict):
            self._evaluations.add(line)
        elif "phase" in line:
            self._epochs.add(line)
            self._last = line


def _is_step(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62


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
