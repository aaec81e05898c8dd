"""Recognizes files that are not rollouts, and names the command that reads them.

The fields of a row show its kind. A file is refused if its first rows of a known kind are all of one other kind. Rows
of unknown kind are ignored: foreign rollouts may have any field missing, and a file of tasks may have broken lines.
NeMo Gym's rollouts have the conversation as Response items in `response.output`; read as Velodrome's they would have no
text, no tool calls and no tokens. `velo import` converts such a file.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

from velodrome.errors import InputError
from velodrome.records.jsonl import loads, read_lines
from velodrome.records.task import check_task

Json = dict[str, Any]

_MOST_ROWS = 20
_MOST_ROWS_OF_MANY = 3  # of each file in a folder
_REPORTS = (".run.json", ".metrics.json", ".profile.json")
_ROLLOUT = frozenset(("output", "response", "reward", "usage", "meta", "episode"))
_EXPORT = frozenset(("chosen", "completions", "conversations"))
_KINDS = {
    "task": "a file of tasks, not of rollouts; velo data validate {path} reads it",
    "judgement": "what people said of rollouts, not rollouts; velo judgements reads it beside them",
    "failure": "a failures file, not rollouts; velo show {path} reads it",
    "chat": "chat messages, not rollouts; velo import openai_chat {path} --to rollouts.jsonl makes rollouts of them",
    "export": "training data, not rollouts; give the rollouts that it was exported from",
    "sample": "samples of a run, not rollouts; velo profile reads them beside its rollouts",
    "training": "the metrics of a training, not rollouts; velo profile {path} reads it",
}


def other_file(path: Path) -> str | None:
    """Why a file does not contain rollouts, and which command reads it; None if it may contain rollouts."""
    if path.name.endswith(_REPORTS):
        return f"{path}: made from rollouts, not a rollouts file; give the .jsonl beside it"
    if (problem := foreign_file(path)) is not None:
        return problem
    lines = (line for _, line in islice(read_lines(path, lost=lambda *_: None), _MOST_ROWS))
    kinds = {kind for line in lines if (kind := _kind(_parsed(line))) is not None}
    kind = kinds.pop() if len(kinds) == 1 else "rollout"
    return f"{path}: {_KINDS[kind].format(path=path)}" if kind in _KINDS else None


def refuse_other_file(path: Path, *, failures: bool = False) -> None:
    """Raise if a file does not contain rollouts; with `failures`, a failures file is accepted."""
    problem = other_file(path)
    if problem is not None and not (failures and _KINDS["failure"].format(path=path) in problem):
        raise InputError(problem)


def first_row(path: Path) -> tuple[str | None, Any]:
    """The kind of a file (`rollout`, or a name of `_KINDS`) and its first row of that kind; None if unknown."""
    try:
        for _, line in islice(read_lines(path, lost=lambda *_: None), _MOST_ROWS_OF_MANY):
            row = _parsed(line)
            if (kind := _kind(row)) is not None:
                return kind, row
    except InputError:
        pass
    return None, None


def _kind(row: Any) -> str | None:
    if not isinstance(row, dict):
        return None
    if not _ROLLOUT.isdisjoint(row):
        return "rollout"
    if {"boundary", "error", "key"} <= row.keys():
        return "failure"
    if {"key", "by", "at"} <= row.keys():
        return "judgement"
    if {"at", "in_flight", "limit"} <= row.keys():
        return "sample"
    if {"step", "epoch"} <= row.keys():
        return "training"
    if isinstance(row.get("messages"), list):
        return "chat"
    if not _EXPORT.isdisjoint(row):
        return "export"
    try:
        check_task(row)
    except ValueError:
        return None
    return "task"


FOREIGN = "a rollout of NeMo Gym, with the conversation in response.output; velo import nemo_gym converts it"


def is_foreign(row: Any) -> bool:
    """Whether this is a rollout of NeMo Gym; the `response` of a Velodrome rollout has no `output`."""
    response = row.get("response") if isinstance(row, dict) else None
    return isinstance(response, dict) and isinstance(response.get("output"), list)


def foreign_file(path: Path) -> str | None:
    """The problem if the first row of a file is a NeMo Gym rollout; None also if the file cannot be read."""
    try:
        for number, line in read_lines(path, lost=lambda *_: None):
            return foreign_problem(path, number) if is_foreign(_parsed(line)) else None
    except InputError:
        pass
    return None


def foreign_problem(path: Path, line: int) -> str:
    """The message for a NeMo Gym rollout at a line."""
    return f"{path}:{line}: {FOREIGN} (velo import nemo_gym {path} --to imported.jsonl)"


def _parsed(line: bytes) -> Any:
    try:
        return loads(line)
    except ValueError:
        return None
