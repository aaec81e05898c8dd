"""The runs below a folder: rollouts files and training runs, recognised by their content.

A file is opened when it is new or was replaced. Links are not followed, hidden folders are left out, and the search is
bounded: a note names the bound that was reached.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from velodrome.records.other_files import first_row
from velodrome.records.rollout import beside

DEEPEST = 8  # levels of folders
MOST_RUNS = 5_000
MOST_NAMES = 200_000  # files and folders that are visited
METRICS, SETTINGS = "metrics.jsonl", "settings.json"  # of a training run
_ENDS = (".jsonl", ".jsonl.zst")
_NEVER = frozenset(("node_modules", "__pycache__", "site-packages"))
_TEXT = 120  # characters of a name


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run: a rollouts file, or the folder of a training run. `model` and `agent` are those of its first row."""

    path: Path
    name: str
    kind: str  # rollouts, training
    model: str = ""
    agent: str = ""


class RunFolder:
    """A folder that is searched for runs repeatedly."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.note: str | None = None  # what was left out
        self._kinds: dict[str, tuple[tuple[int, int, int], FoundRun | None]] = {}

    def runs(self) -> list[FoundRun]:
        """Every run below the folder, by path."""
        self.note, runs, names = None, list[FoundRun](), 0
        for folder, folders, files in os.walk(self.path):
            names += len(folders) + len(files)
            folders[:] = sorted(name for name in folders if name not in _NEVER and name[0] != ".")
            if len(runs) >= MOST_RUNS or names > MOST_NAMES:
                self.note = f"{self.path}: too much is below it; the first {len(runs):,} runs are listed"
                break
            if folders and folder.count(os.sep) - str(self.path).count(os.sep) >= DEEPEST:
                self.note = f"{self.path}: folders more than {DEEPEST} levels below it are not searched"
                folders.clear()
            if SETTINGS in files and METRICS in files:
                runs.append(FoundRun(Path(folder), self._name(folder), "training"))
            rollouts = (f"{folder}/{name}" for name in sorted(files) if name.endswith(_ENDS))
            runs += filter(None, (self._run(path) for path in rollouts if not os.path.islink(path)))
        return runs[:MOST_RUNS]

    def _run(self, path: str) -> FoundRun | None:
        """The run in a file, or None. A run is checked again only when its file is replaced."""
        try:
            status = os.stat(path)
        except OSError:
            return None
        version = (status.st_ino, status.st_size, status.st_mtime_ns)
        cached = self._kinds.get(path)
        if cached and (cached[0] == version or (cached[1] and cached[0][0] == version[0])):
            return cached[1]
        file = Path(path)
        kind, row = first_row(file) if status.st_size else (None, None)
        is_started = not status.st_size and beside(file, "run.json").exists()
        run = (
            FoundRun(file, self._name(path), "rollouts", *_model_and_agent(row))
            if kind == "rollout" or is_started
            else None
        )
        self._kinds[path] = ((version[0], version[1], version[2]) if status.st_size else (0, 0, 0), run)
        return run

    def _name(self, path: str) -> str:
        """The path relative to the folder; for the folder itself its name."""
        return os.path.relpath(path, self.path) if path != str(self.path) else self.path.name or path


def file_run(path: Path, name: str) -> FoundRun:
    """A rollouts file named on the command line."""
    return FoundRun(path, name, "rollouts", *_model_and_agent(first_row(path)[1]))


def _model_and_agent(row: Any) -> tuple[str, str]:
    """The names of the model and the agent in a row."""
    values = []
    for part, name in (("response", "model"), ("meta", "agent")):
        container = row.get(part) if isinstance(row, dict) else None
        value = container.get(name) if isinstance(container, dict) else None
        values.append(value[:_TEXT] if isinstance(value, str) else "")
    return values[0], values[1]
