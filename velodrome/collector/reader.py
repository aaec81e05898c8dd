"""The rows of a run with workers are read in a process of their own: metrics, checks and profile cost no rollout.

The parent passes the lines on as it writes them. A reader that is lost or falls far behind is given up, and the output
is read once at the end.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson

from velodrome.children import ChildProcess, ParentChannel, spawn
from velodrome.collector.attempt import Attempt
from velodrome.collector.readings import NotReadYet, Readings, RowReader, RunReport
from velodrome.profiling.profile_file import make_profile
from velodrome.records.facts import RowFacts

Json = dict[str, Any]

_MAIN = "velodrome.collector.reader:main"
_AT_ONCE = 256 * 1024  # bytes in a frame
_ANSWER_S = 120.0  # for its report; then the output is read here
_FAR_BEHIND = 256 << 20  # bytes that wait for it
_OUT_OF_ORDER = 4096  # rows that are held back, because workers finish side by side
_ROWS, _TREE, _REPORT = b"r", b"t", b"e"
_KEPT, _FAILED = b"+", b"-"


@asynccontextmanager
async def make_reader(where: str, *, by_task: bool, profiled: bool) -> AsyncIterator[RowReader]:
    """A process that reads rows for as long as the block runs."""
    init = {"where": where, "by_task": by_task, "profiled": profiled}
    reader: ReaderProcess | NotReadYet
    try:
        reader = ReaderProcess(await spawn(_MAIN, orjson.dumps(init)))
    except OSError:  # no more processes, or no more files
        reader = NotReadYet()
    try:
        yield reader
    finally:
        await reader.aclose()


class ReaderProcess:
    """The parent's side."""

    def __init__(self, child: ChildProcess) -> None:
        self._child = child
        self._lines: list[bytes] = []
        self._size = 0
        self._lost = False

    def keep(self, attempt: Attempt) -> None:
        """One kept rollout."""
        if attempt.line is not None:
            self._add(_KEPT, attempt.line)

    def fail(self, failure: Json) -> None:
        """One failed attempt."""
        self._add(_FAILED, orjson.dumps(failure))

    def show_tree(self, show: Callable[[str], None]) -> None:
        """Nothing: the rows are elsewhere, and the report at the end has the tree."""

    async def report(self, config: Json, output: Path | None, *, failed: int) -> RunReport | None:
        """What the rows say; None if the reader was lost."""
        request = {"config": config, "output": None if output is None else str(output), "failed": failed}
        self._send()
        self._child.send(_REPORT + orjson.dumps(request))
        if self._lost:
            return None
        try:
            answer = await asyncio.wait_for(self._child.receive(), _ANSWER_S)
        except TimeoutError:
            return None
        return None if answer is None else RunReport(**orjson.loads(answer))

    async def aclose(self) -> None:
        """No more rows come."""
        self._lost = True
        await self._child.close(grace_s=1.0)

    def _add(self, kind: bytes, line: bytes) -> None:
        self._lines += (kind, line.rstrip(b"\n"), b"\n")
        self._size += len(line)
        if self._size >= _AT_ONCE:
            self._send()

    def _send(self) -> None:
        if self._lines and not self._lost:
            self._child.send(_ROWS + b"".join(self._lines))
            if self._child.unsent > _FAR_BEHIND:
                self._lost = True
                self._child.kill()
        self._lines.clear()
        self._size = 0


def main(channel: ParentChannel) -> None:
    """Read rows until the parent wants the report, or is gone."""
    init = channel.receive()
    if init is None:
        return
    rows = _OrderedRows(Readings(**orjson.loads(init)))
    while (frame := channel.receive()) is not None:
        if frame[:1] == _ROWS:
            for line in frame[1:].splitlines():
                rows.add(RowFacts(orjson.loads(line[1:]), size=len(line), failed=line[:1] == _FAILED))
        else:
            channel.send(orjson.dumps(rows.report(orjson.loads(frame[1:]))))


class _OrderedRows:
    """Readings of rows in the order they finished in: what comes a little late is put in its place."""

    def __init__(self, readings: Readings) -> None:
        self._readings = readings
        self._held: list[tuple[float, int, RowFacts]] = []
        self._count = 0

    def add(self, facts: RowFacts) -> None:
        self._count += 1
        heapq.heappush(self._held, (facts.finished_at or 0.0, self._count, facts))
        if len(self._held) > _OUT_OF_ORDER:
            self._readings.add(heapq.heappop(self._held)[2])

    def report(self, request: Json) -> Json:
        while self._held:
            self._readings.add(heapq.heappop(self._held)[2])
        readings, output = self._readings.up_to_date(), request["output"]
        profile = readings.profile
        if profile is not None and not profile.ordered and output is not None:
            profile = make_profile(Path(output))
        return {
            "metrics": readings.tally.metrics(failed=request["failed"]),
            "findings": readings.findings(None if output is None else Path(output)),
            "profile": None if profile is None else profile.report(request["config"]),
        }
