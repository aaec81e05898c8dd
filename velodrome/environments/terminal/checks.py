"""The typed checks of a task, on the files at the end of a rollout.

Files are read from outside, without following links. A command that is a check runs in a sandbox of its own over a
copy of the files, so nothing of the rollout runs beside it; what it must print is never in that sandbox.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from velodrome.environments.code_gen.cases import same_value
from velodrome.environments.sandbox import Sandbox, SandboxEnded, Sandboxes
from velodrome.environments.sandbox.pool import texts_by_path
from velodrome.errors import TaskError

Json = dict[str, Any]

MAX_FILE = 1 << 20
MAX_COPY = 1 << 24  # bytes of all files together that are copied for a command; a file counts as 8 KB more
MAX_FILES = 2000
MAX_NAMES = 1 << 19  # bytes of their paths together: a longer list may not be all of it
UNLOCK = ["chmod", "-R", "u+rwX", "."]  # what cannot be read is there all the same


@dataclass(frozen=True)
class Left:
    """The files at the end of a rollout, and the sandboxes in which a check may run a command."""

    box: Sandbox
    boxes: Sandboxes
    given: Json  # the files the task began with

    async def text(self, path: str) -> str | None:
        """The text of a file; None if it is no regular file, too large, or not text."""
        data = await self.box.read(path, limit=MAX_FILE + 1)
        try:
            return None if data is None or len(data) > MAX_FILE else data.decode("utf-8")
        except UnicodeDecodeError:
            return None


async def _file_equals(left: Left, check: Json) -> bool:
    text = await left.text(check["path"])
    return text is not None and lines_of(text) == lines_of(check["text"])


async def _file_contains(left: Left, check: Json) -> bool:
    text = await left.text(check["path"])
    return text is not None and check["text"] in text


async def _file_lacks(left: Left, check: Json) -> bool:
    text = await left.text(check["path"])
    return text is not None and check["text"] not in text


async def _file_exists(left: Left, check: Json) -> bool:
    return await left.box.read(check["path"], limit=1) is not None


async def _file_absent(left: Left, check: Json) -> bool:
    """Whether nothing has this name: no folder, link, pipe or unreadable file."""
    await left.box.run(UNLOCK)
    ran = await left.box.run(["sh", "-c", 'test ! -e "$1" && test ! -L "$1"', "sh", f"./{check['path']}"])
    return not ran.stopped and ran.exit_code == 0


async def _file_unchanged(left: Left, check: Json) -> bool:
    return await left.text(check["path"]) == left.given.get(check["path"])


async def _json_equals(left: Left, check: Json) -> bool:
    try:
        return same_value(json.loads(await left.text(check["path"]) or ""), check["value"], tolerance=0.0)
    except (ValueError, RecursionError):
        return False


async def _sorted_lines(left: Left, check: Json) -> bool:
    text = await left.text(check["path"])
    return text is not None and sorted(filter(None, lines_of(text))) == sorted(check["lines"])


async def _command_output(left: Left, check: Json) -> bool:
    box = await _copy(left, texts_by_path(check))
    if box is None:
        return False
    try:
        ran = await box.run(["bash", "-c", check["command"]], stdin=check.get("stdin", ""))
    finally:
        await box.close()
    return not ran.stopped and ran.exit_code == 0 and lines_of(ran.stdout) == lines_of(check["text"])


async def _copy(left: Left, more: dict[str, str]) -> Sandbox | None:
    """A new sandbox with the rollout's files and some more; None if they are too many or conflict."""
    await left.box.run(UNLOCK)
    names = await left.box.files()
    files: dict[str, bytes | str] = {}
    if sum(len(os.fsencode(name)) for name in names) > MAX_NAMES:
        return None
    size = len(names) * (MAX_COPY // MAX_FILES)
    for name in names if size <= MAX_COPY else ():
        files[name] = data = await left.box.read(name, limit=MAX_COPY + 1) or b""
        size += len(data)
        if size > MAX_COPY:
            break
    if size > MAX_COPY:
        return None
    try:
        return await left.boxes.open(files=files | more)
    except OSError:
        return None


CHECKS: dict[str, tuple[Callable[[Left, Json], Awaitable[bool]], dict[str, type]]] = {
    "file_equals": (_file_equals, {"path": str, "text": str}),
    "file_contains": (_file_contains, {"path": str, "text": str}),
    "file_lacks": (_file_lacks, {"path": str, "text": str}),
    "file_exists": (_file_exists, {"path": str}),
    "file_absent": (_file_absent, {"path": str}),
    "file_unchanged": (_file_unchanged, {"path": str}),
    "json_equals": (_json_equals, {"path": str, "value": object}),
    "sorted_lines": (_sorted_lines, {"path": str, "lines": list}),
    "command_output": (_command_output, {"command": str, "text": str}),
}


def lines_of(text: str) -> list[str]:
    """The text without spaces at the ends of lines and empty lines at its end."""
    return [line.rstrip() for line in text.rstrip().split("\n")]


def read_checks(task: Json) -> list[Json]:
    """The checks of a task. Raises a `TaskError` that describes the problem."""
    checks = task.get("checks")
    if not isinstance(checks, list) or not all(isinstance(check, dict) for check in checks):
        raise TaskError('no "checks" in the task: a list of objects, each with a "type"')
    for at, check in enumerate(checks):
        kind = check.get("type")
        if kind not in CHECKS:
            raise TaskError(f'"checks"[{at}]: no type {kind!r:.40}; there are: {", ".join(CHECKS)}')
        for name, wanted in CHECKS[kind][1].items():
            if name not in check or not isinstance(check[name], wanted):
                raise TaskError(f'"checks"[{at}] ({kind}): no "{name}", or it is not of its type')
        if not isinstance(check.get("stdin", ""), str):
            raise TaskError(f'"checks"[{at}] ({kind}): "stdin" must be a text')
        texts_by_path(check)
    return checks


async def holds(left: Left, check: Json) -> bool:
    """Whether a check holds. If the sandbox and its files were lost, no check holds."""
    try:
        return await CHECKS[check["type"]][0](left, check)
    except SandboxEnded:
        return False


async def held_before(left: Left, checks: list[Json], commands: bool) -> list[bool]:
    """The checks that hold at the start. Checks that run commands are only run on request."""
    held = [(commands or check["type"] != "command_output") and await holds(left, check) for check in checks]
    if all(held):
        raise TaskError('"checks": all of them hold before anything is done')
    return held
