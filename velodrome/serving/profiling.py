"""Profile a running process: the time of every function on one clock, saved at intervals.

The saved profile survives any end of the process. A server also reports its profile at `/stats` while it runs: the sum
of all its workers, including earlier ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from velodrome.errors import describe
from velodrome.timing import elsewhere
from velodrome.timing.calls import Calls
from velodrome.timing.profiles import Part, Profiles
from velodrome.timing.tables import Table, as_text, from_json, merged

if TYPE_CHECKING:
    from velodrome.serving.apps.routes import Handler, Peers


EVERY_S = 5.0
PATIENCE_S = 10.0  # a busy worker needs a second or two to read its own table
OFF = "no profile is kept: start the servers with +profiling_enabled=true +profiling_results_dirpath=DIR"

log = logging.getLogger(__name__)


class ProcessProfile:
    """The functions of this process, measured while it is open."""

    def __init__(
        self,
        profiles: Profiles,
        *,
        clock: str = "cpu",
        worker: int = 0,
        workers: int = 1,
        every_s: float = EVERY_S,
    ) -> None:
        self.worker = worker
        self.workers = workers
        self._profiles = profiles
        self._life = f"{os.getpid()}-{time.time_ns()}"
        self._every_s = max(every_s, 0.1)
        self._calls = Calls(clock)
        elsewhere.activate(clock)
        self._stop = threading.Event()
        self._saver = threading.Thread(target=self._save_periodically, name="velodrome-profile", daemon=True)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Measure while the block runs, then write the files."""
        with self._profiles.joined():
            self._calls.start()
            self._saver.start()
            try:
                yield
            finally:
                self._calls.stop()
                self._stop.set()
                self._saver.join()
                self._save(unless_within_s=0.0)
                elsewhere.activate(None)

    @property
    def clock(self) -> str:
        """`cpu` or `wall`."""
        return self._calls.clock

    def tables_by_worker(self) -> dict[int, Table]:
        """The table of every worker by its number, from saved profiles and from this process."""
        tables: dict[int, list[Table]] = {worker: [] for worker in range(self.workers)}
        for part in self._profiles.saved():
            if part.life != self._life:
                tables.setdefault(part.worker, []).append(part.table)
        tables[self.worker].append(self._current_table())
        return {worker: merged(self.clock, each) for worker, each in tables.items()}

    def _current_table(self) -> Table:
        return merged(self.clock, [self._calls.table(), *elsewhere.measured()])

    def _save_periodically(self) -> None:
        sys.setprofile(None)  # this thread is not measured
        while not self._stop.wait(self._every_s):
            self._save(unless_within_s=0.9 * self._every_s)

    def _save(self, *, unless_within_s: float) -> None:
        try:
            self._profiles.save(Part(self.worker, self._life, self._current_table()))
            self._profiles.write(workers=self.workers, unless_within_s=unless_within_s)
        except OSError as error:  # a full disk, a folder removed: the server continues
            log.warning("the profile cannot be saved: %s", describe(error))


def claimed(directory: Path | None, names: Iterable[str]) -> contextlib.ExitStack:
    """Reserve the profiles of these servers until the stack is closed. Without a directory, do nothing."""
    with contextlib.ExitStack() as stack:
        for name in names if directory is not None else ():
            assert directory is not None
            stack.enter_context(Profiles(directory, name).claimed())
        return stack.pop_all()


@contextlib.contextmanager
def profiled(directory: Path | None, name: str, *, clock: str = "cpu", every_s: float = EVERY_S) -> Iterator[None]:
    """Profile this process as `name` while the block runs; without a directory, do nothing."""
    if directory is None:
        yield
        return
    profiles = Profiles(directory, name)
    with profiles.claimed(), ProcessProfile(profiles, clock=clock, every_s=every_s).running():
        yield


def stats(profile: ProcessProfile | None, peers: Peers) -> Handler:
    """`GET /stats`: the table of all workers, or of one (`?worker=0`)."""
    from starlette.requests import Request
    from starlette.responses import Response

    from velodrome.serving.apps.routes import ALONE, BadRequest, json_response

    async def report(request: Request) -> Response:
        if profile is None:
            raise BadRequest(404, OFF)
        by_worker = await asyncio.to_thread(profile.tables_by_worker)
        if ALONE in request.headers:
            return json_response(by_worker[profile.worker].as_json())
        silent = []
        for number, body in (await peers.ask("/stats", patience_s=PATIENCE_S)).items():
            if body is None:  # the worker is restarting: its last saved profile is used
                silent.append(number)
            else:
                by_worker[number] = from_json(orjson.loads(body))
        worker = request.query_params.get("worker")
        if worker is not None and worker not in map(str, by_worker):
            raise BadRequest(404, f"there is no worker {worker:.20}: there are 0 to {profile.workers - 1}")
        tables = by_worker.values() if worker is None else [by_worker[int(worker)]]
        table = merged(profile.clock, tables)
        if "application/json" in request.headers.get("accept", ""):
            return json_response({table.clock: table.as_json(), "silent_workers": silent})
        note = (
            f"worker {', '.join(map(str, silent))} gave no answer: this is its last saved profile\n\n" if silent else ""
        )
        return Response(note + as_page(table), media_type="text/plain")

    return report


def as_page(table: Table) -> str:
    """The table as text, with a title."""
    return f"{'CPU' if table.clock == 'cpu' else 'Wall'} time, in seconds\n\n{as_text(table)}"
