"""What a server reports at `/metrics`: its requests, how long they took, how late its event loop is, its process.

A scrape reaches one worker, which asks the others and answers for all. Counting a request costs about a microsecond; a
path that is not a declared route is counted as "other".
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from time import perf_counter, process_time

import orjson
from starlette.requests import Request
from starlette.responses import Response

from velodrome.serving.apps.routes import ALONE, Peers
from velodrome.timing.exposition import CONTENT_TYPE, OTHER, PATH, Labels, Metric, Metrics, add, merged, render

LAG_EVERY_S = 0.25

_SHARE_OVER_S = 0.5
_FADE = 0.96  # of the worst lag, at each look: half of it after four seconds


def needed_s() -> float:
    """CPU that this process used, and how long this thread was ready to run while others had the cores (Linux)."""
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:
            waited_ns = int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        waited_ns = 0
    return process_time() + waited_ns / 1e9


class Core:
    """How much of one core this process needed of late: `share` is 1 when it would have used one all the time.

    It is computed while it is watched, from time to time; otherwise it is 0.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter, used: Callable[[], float] = needed_s) -> None:
        self.share = 0.0
        self._clock, self._used = clock, used
        self._since, self._used_then = 0.0, 0.0
        self._watchers = 0

    def look(self) -> None:
        """Work the share out, if that is long enough after the last time."""
        now = self._clock()
        if now - self._since >= _SHARE_OVER_S:
            used = self._used()
            self.share = (used - self._used_then) / (now - self._since)
            self._since, self._used_then = now, used

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watched while this is open; a process may have several servers."""
        if not self._watchers:
            self._since, self._used_then = self._clock(), self._used()
        self._watchers += 1
        try:
            yield
        finally:
            self._watchers -= 1
            if not self._watchers:
                self.share = 0.0


CORE = Core()  # this process's


class Measures:
    """The numbers of one server in this process."""

    def __init__(self, server: str, peers: Peers | None = None) -> None:
        self.server = server
        self.in_flight = 0
        self._peers = peers or Peers()
        self._routes: set[str] = set()
        self._all = Metrics()
        self._info = self._all.gauge("velodrome_server_info", "What this server is; always 1.")
        self._requests = self._all.counter(
            "velodrome_http_requests_total", "Requests answered, by declared route; any other path is other."
        )
        self._seconds = self._all.counter(
            "velodrome_http_request_seconds_total", "From the head of a request to the end of its answer."
        )
        self._open = self._all.gauge(
            "velodrome_http_requests_in_flight", "Requests being answered now, this one included."
        )
        self._lag = self._all.gauge(
            "velodrome_event_loop_lag_seconds", "How late a timer of the event loop was at its worst of late."
        )
        self._lag.samples[()] = 0.0
        self._labels: dict[tuple[str, str, int], tuple[Labels, Labels]] = {}
        self._sessions: Callable[[], float] | None = None

    def identify(self, kind: str, implementation: str) -> None:
        """Report what the server is."""
        names = {"type": kind, "implementation": implementation}
        names |= {"version": version("velodrome"), "python": platform.python_version()}
        self._info.samples[tuple(names.items())] = 1.0

    def declare(self, *paths: str) -> None:
        """Routes that are counted under their own name."""
        self._routes.update(paths)

    def count_sessions(self, count: Callable[[], float]) -> None:
        """Report the number of open sessions, too."""
        self._sessions = count

    def finished(self, method: str, path: str, status: int, began: float) -> None:
        """One request is answered; `began` is of `perf_counter`."""
        self.in_flight -= 1
        route = path if path in self._routes else OTHER
        labels = self._labels.get((route, method, status))
        if labels is None:
            requests = self._all.labels(self._requests, route=route, method=method, status=str(status))
            seconds = self._all.labels(self._seconds, route=route)
            labels = self._labels[route, method, status] = requests, seconds
        add(self._requests, labels[0])
        add(self._seconds, labels[1], perf_counter() - began)

    @contextmanager
    def lag_watched(self) -> Iterator[None]:
        """Look how late the event loop is and how busy the process, while this is open: one timer."""
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle

        def begin() -> None:
            nonlocal timer
            due = loop.time() + LAG_EVERY_S
            timer = loop.call_at(due, tick, due)

        def tick(due: float) -> None:
            self._lag.samples[()] = max(loop.time() - due, self._lag.samples[()] * _FADE)
            CORE.look()
            begin()

        begin()
        try:
            with CORE.watched():
                yield
        finally:
            timer.cancel()

    async def report(self, request: Request) -> Response:
        """`/metrics`: of all workers; to a worker that asks, of this one alone, as JSON."""
        self._open.samples[()] = self.in_flight
        if self._sessions is not None:
            sessions = self._all.gauge("velodrome_open_sessions", "Sessions that are open in this worker.")
            sessions.samples[()] = self._sessions()
        own = self._all.all()
        if ALONE in request.headers:
            return Response(orjson.dumps([(*each[:3], list(each.samples.items())) for each in own]))
        answers = await self._peers.ask(PATH)
        by_worker = {number: _metrics_in(answer) for number, answer in answers.items()} | {self._peers.own: own}
        reported = [
            ({"server": self.server, "worker": str(number)}, group)
            for number, group in sorted(by_worker.items())
            if group is not None
        ]
        silent = float(len(by_worker) - len(reported))
        counts = (
            Metric("velodrome_workers", "gauge", "Workers of this server.", {(): float(len(by_worker))}),
            Metric("velodrome_workers_silent", "gauge", "Workers that gave no answer within a second.", {(): silent}),
        )
        text = render(merged([*reported, ({"server": self.server}, counts)]))
        return Response(text, headers={"content-type": CONTENT_TYPE})


def _metrics_in(answer: bytes | None) -> list[Metric] | None:
    """What a peer reported; None if that is nothing."""
    try:
        return [
            Metric(name, kind, about, {tuple((str(a), str(b)) for a, b in labels): float(n) for labels, n in samples})
            for name, kind, about, samples in orjson.loads(answer or b"")
        ] or None
    except (ValueError, TypeError):
        return None
