"""The files of a task, put into a sandbox of its own: `files` is an object with the text of each by its path."""

from __future__ import annotations

from typing import Any

from velodrome.environments.sandbox import Sandbox, Sandboxes
from velodrome.errors import TaskError


def texts_by_path(holder: dict[str, Any]) -> dict[str, str]:
    """The `files` of a task or of a part of it, or a `TaskError`."""
    files = holder.get("files") or {}
    if not isinstance(files, dict) or not all(isinstance(text, str) for text in files.values()):
        raise TaskError('"files" must be an object: the text of each file by its path')
    return files


async def open_with_files(boxes: Sandboxes, task: dict[str, Any]) -> Sandbox:
    """A sandbox with the task's files."""
    try:
        return await boxes.open(files=texts_by_path(task))
    except OSError as error:
        raise TaskError(f'"files": "{error.filename}" cannot be written: {error.strerror}') from error
