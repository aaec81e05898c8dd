"""Other processes that parse, so that a long file is read as fast as the machine can.

Each is given slices of the file, by offset, and answers with batches; they come back in the order of the file. The
crew reads the very file that was opened here, whatever its name means by then. A process that dies ends the crew:
the caller reads on alone.
"""

from __future__ import annotations

import gc
import marshal
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import IO, Any

from velodrome.errors import ServerError
from velodrome.index.batch import Batch, parse
from velodrome.index.source import Lines, Place, Slice

_MOST_WORKERS = 4
_AHEAD = 2  # slices that a worker has at hand
_LENGTH_BYTES = 8
_CALL = "from velodrome.index.crew import work; work()"


def batches(lines: Lines, slices: Iterable[Slice], *, failed: bool) -> Iterator[tuple[Batch, Place]]:
    """The batch of each slice, in order, with the place behind it. A worker that dies is a `ServerError`."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = [_Worker(lines, failed) for _ in range(min(_MOST_WORKERS, cores))]
    todo = iter(slices)
    try:
        given = 0
        for part in islice(todo, _AHEAD * len(workers)):
            workers[given % len(workers)].give(part)
            given += 1
        taken = 0
        while taken < given:
            worker = workers[taken % len(workers)]
            yield worker.take()
            taken += 1
            for part in islice(todo, 1):
                workers[given % len(workers)].give(part)
                given += 1
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    def __init__(self, lines: Lines, failed: bool) -> None:
        command = [sys.executable, "-c", _CALL, str(lines.fd), "failed" if failed else "kept"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=[lines.fd],
            env=environment,
        )
        self._answers: Queue[bytes] = Queue(_AHEAD)
        self._reader = Thread(target=self._listen, daemon=True)
        self._reader.start()

    def give(self, part: Slice) -> None:
        place = part.place
        try:
            _write(self._process.stdin, (place.offset, place.line, part.size, part.long))
        except OSError as error:
            raise ServerError(f"a process that reads the rollouts ended: {error}") from error

    def take(self) -> tuple[Batch, Place]:
        answer = self._answers.get()
        if not answer:
            raise ServerError("a process that reads the rollouts ended")
        batch, place = marshal.loads(answer)
        return Batch(*batch), Place(*place)

    def _listen(self) -> None:
        while answer := _read(self._process.stdout):
            self._answers.put(answer)
        self._answers.put(b"")

    def end(self) -> None:
        self._process.kill()
        while self._reader.is_alive():  # it may be waiting for room
            while not self._answers.empty():
                self._answers.get()
            self._reader.join(0.01)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            _close(pipe)


def work() -> None:
    """The other side: slices from stdin, batches to stdout, until stdin ends."""
    gc.disable()  # rows hold no cycles, and looking for some takes a third of the time
    fd, kind = int(sys.argv[1]), sys.argv[2]
    lines = Lines(Path(f"file {fd}"), fd)
    while told := _read(sys.stdin.buffer):
        offset, line, size, long = marshal.loads(told)
        found, end = lines.lines_of(Slice(Place(offset, 0, line), size, long))
        batch = parse(found, failed=kind == "failed")
        _write(sys.stdout.buffer, (batch.told(), (end.offset, end.within, end.line, end.open)))


def _write(pipe: IO[bytes] | None, value: Any) -> None:
    told = marshal.dumps(value)
    if pipe is not None:
        pipe.write(len(told).to_bytes(_LENGTH_BYTES, "little"))
        pipe.write(told)
        pipe.flush()


def _read(pipe: IO[bytes] | None) -> bytes:
    """One answer; nothing at the end, or where the other side ended in the middle of one."""
    head = pipe.read(_LENGTH_BYTES) if pipe is not None else b""
    size = int.from_bytes(head, "little")
    told = pipe.read(size) if pipe is not None and len(head) == _LENGTH_BYTES else b""
    return told if len(told) == size else b""


def _close(pipe: IO[bytes] | None) -> None:
    try:
        if pipe is not None:
            pipe.close()
    except OSError:
        pass  # what was not sent is not needed any more
