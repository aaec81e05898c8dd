"""Measure whole files, in this process or in a child process, so that the viewer can still answer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from velodrome.children import Child, ParentChannel, spawn
from velodrome.errors import InputError, VelodromeError, blame
from velodrome.records.jsonl import LostLine

Json = dict[str, Any]

_MAIN = "velodrome.viewer.measure:main"


def measure_files(kind: str, paths: Sequence[Path]) -> Any:
    """The measurement of this kind. An error caused by a file is an `InputError`."""
    with blame(InputError, f"{', '.join(path.name for path in paths)}"):
        if kind == "compare":
            from velodrome.stats.compare import compare

            return compare([paths[0]], [paths[1]])
        if kind == "several":
            from velodrome.stats.several import compare_several

            return compare_several(paths)
        return scan(paths[0])


def scan(path: Path) -> Json:
    """The metrics, the profile, the findings of the checks and the tool use of a file, in one pass."""
    from velodrome.checks import Checks
    from velodrome.index.check_field import as_json
    from velodrome.profiling.config_blocks import read_config
    from velodrome.profiling.profile import Profile, make_profile
    from velodrome.records.rows import Unread, read_attempts
    from velodrome.stats.metrics import Tally, failed_keys
    from velodrome.viewer.parts.tool_use import ToolTally

    tally, profile, checks, tools = Tally(), Profile(str(path)), Checks(keeps_lines=True), ToolTally()
    unread, failed = Unread(path), {*failed_keys(path)}
    checks.begin(str(path))

    def lost(line: LostLine) -> None:
        unread(line)
        checks.lost(line)

    for facts in read_attempts(path, lost):
        profile.add(facts)
        if facts.failed:
            checks.fail(facts)
            continue
        failed.discard(facts.key or "")
        for reader in (tally, checks, tools):
            reader.add(facts)
    if not profile.ordered:
        profile = make_profile(path)
    else:
        for note in unread.notes:
            profile.note(note)
    return {
        "metrics": tally.metrics(failed=len(failed)),
        "profile": profile.report(read_config(path)),
        "checks": as_json(checks.findings()),
        "tools": tools.report(),
    }


def measure_in_child(kind: str, paths: Sequence[Path], started: Callable[[Child], None]) -> Any:
    """Like `measure_files`, in a child process at low priority. `started` gets the child, so that it can be killed."""
    return asyncio.run(_measure_in_child(kind, paths, started))


async def _measure_in_child(kind: str, paths: Sequence[Path], started: Callable[[Child], None]) -> Any:
    child = await spawn(_MAIN, orjson.dumps([kind, *map(str, paths)]))
    started(child)
    try:
        answer = await child.receive()
    finally:
        await child.close(0.0)
    if answer is None:
        raise InputError(f"the process that reads {paths[0].name} ended with {child.ending}")
    result = orjson.loads(answer)
    if "error" in result:
        raise InputError(result["error"])
    return result["value"]


def main(channel: ParentChannel) -> None:
    """One measurement in a child process."""
    kind, *names = orjson.loads(channel.receive() or b"")
    with suppress(OSError):
        os.nice(10)
    try:
        result = {"value": measure_files(kind, [Path(name) for name in names])}
    except VelodromeError as error:
        result = {"error": str(error).splitlines()[0]}
    channel.send(orjson.dumps(result, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY))
