"""Rollouts as other projects write them: they are not misread as ours, and the way in is named.

NeMo Gym's rollout has the conversation as Response items in `response.output` and the tokens in `response.usage`. Read
as one of ours it would have no words, no tool calls and no tokens. `velo import` converts such a file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from velodrome.errors import InputError
from velodrome.records.jsonl import read_lines
from velodrome.records.lenient import loads

FOREIGN = "a rollout of NeMo Gym, with the conversation in response.output; velo import nemo_gym converts it"


def is_foreign(row: Any) -> bool:
    """Whether this is a rollout in NeMo Gym's shape; a `response` of ours has no `output`."""
    response = row.get("response") if isinstance(row, dict) else None
    return isinstance(response, dict) and isinstance(response.get("output"), list)


def foreign_file(path: Path) -> str | None:
    """Why this file is not read, if its first row is such a rollout. Nothing is said of a file that cannot be read."""
    try:
        for number, line in read_lines(path, lost=lambda *_: None):
            return where(path, number) if is_foreign(_parsed(line)) else None
    except InputError:
        pass
    return None


def where(path: Path, line: int) -> str:
    """The mistake with its place and the way out."""
    return f"{path}:{line}: {FOREIGN} (velo import nemo_gym {path} --to imported.jsonl)"


def _parsed(line: bytes) -> Any:
    try:
        return loads(line)
    except ValueError:
        return None
