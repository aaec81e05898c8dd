"""`rollouts.plan`: the tasks of a large input that an earlier run has checked, so that a resume need not.

It holds the hash of the name and the digest of the content of every task, and a digest of the bytes they were read
from. Only an input that begins with exactly these bytes is taken as checked; what follows them is checked as usual.
"""

from __future__ import annotations

import hashlib
from array import array
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from velodrome.collector.plan import Plan, TaskSelection
from velodrome.collector.planning.task_sources import Start, TaskFile
from velodrome.errors import StorageError
from velodrome.records.outfile import write_whole
from velodrome.records.rollout import beside

Json = dict[str, Any]

FEWEST = 20_000  # tasks; fewer are checked in no time
_VERSION = 1
_CHUNK_BYTES = 1024 * 1024


def known_tasks(tasks: TaskFile, selection: TaskSelection, output: Path) -> Plan | None:
    """The first tasks of the input as an earlier run left them; None if there are none to rely on."""
    try:
        head, _, data = beside(output, "plan").read_bytes().partition(b"\n")
        saved: Json = orjson.loads(head)
        count, lines, size = saved["tasks"], saved["lines"], saved["bytes"]
        expected = [_VERSION, _agents(selection), len(data), tasks.path.suffix != ".zst"]
        if [saved["version"], saved["agents_known"], 16 * count, True] != expected:
            return None
        if selection.limit is not None and selection.limit < count:
            return None
        hashed = hashlib.blake2b(digest_size=16)
        if _update(hashed, tasks.path, 0, size) or hashed.hexdigest() != saved["digest"]:
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    plan = Plan(selection.repeats, repeated=selection.repeats > 1)
    plan.names, plan.digests = array("Q", data[: 8 * count]), array("Q", data[8 * count :])
    plan.done = bytearray(count * selection.repeats)
    plan.suffixes = {int(index): suffix for index, suffix in saved["suffixes"].items()}
    plan.agents = set(saved["agents"])
    plan.surveyed, plan.surveyed_hash = Start(count, lines, size), hashed
    return plan


def save_known(tasks: TaskFile, selection: TaskSelection, plan: Plan, output: Path) -> None:
    """Keep a survey for the next run, if it is long and not kept yet. A disk that refuses it costs only time."""
    renamed = any("@" in suffix for suffix in plan.suffixes.values())
    if plan.tasks < FEWEST or plan.tasks == plan.surveyed.tasks or renamed or tasks.path.suffix == ".zst":
        return
    with suppress(StorageError, OSError):
        start = plan.surveyed
        size = start.offset + _size(tasks.path, start.offset, plan.lines - start.line)
        hashed = plan.surveyed_hash or hashlib.blake2b(digest_size=16)
        _update(hashed, tasks.path, start.offset, size)
        head = {
            "version": _VERSION,
            "tasks": plan.tasks,
            "lines": plan.lines,
            "bytes": size,
            "digest": hashed.hexdigest(),
            "agents": sorted(plan.agents),
            "agents_known": _agents(selection),
            "suffixes": {str(index): suffix for index, suffix in plan.suffixes.items()},
        }
        data = orjson.dumps(head) + b"\n" + plan.names.tobytes() + plan.digests.tobytes()
        write_whole(beside(output, "plan"), data)


def _agents(selection: TaskSelection) -> list[Any]:
    """What decides which agent runs a row."""
    return [selection.agent, selection.default, sorted(selection.agents)]


def _size(path: Path, start: int, left: int) -> int:
    """How many bytes the next lines take."""
    size = 0
    with path.open("rb", buffering=0) as stream:
        stream.seek(start)
        while left and (data := stream.read(_CHUNK_BYTES)):
            lines = data.count(b"\n")
            if lines >= left:
                place = -1
                for _ in range(left):
                    place = data.index(b"\n", place + 1)
                return size + place + 1
            left -= lines
            size += len(data)
    return size


def _update(hashed: hashlib.blake2b, path: Path, start: int, end: int) -> int:
    """Add bytes of a file to a hash; how many are missing."""
    with path.open("rb", buffering=0) as stream:
        stream.seek(start)
        while start < end and (data := stream.read(min(_CHUNK_BYTES, end - start))):
            hashed.update(data)
            start += len(data)
    return end - start
