"""What a server reports at `/metrics`: its requests, how long they took, how late its event loop is, its process.

A scrape reaches one worker, which asks the others and answers for all. Counting a request costs about a microsecond; a
path that is not a declared route is counted as "other".
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from time import perf_counter, process_time

from prometheus_client.core import GaugeMetricFamily
from starlette.requests import Request
from starlette.responses import Response

from velodrome.serving.apps.peers import ALONE, Peers
from velodrome.timing.exposition import (
    CONTENT_TYPE,
    DURATIONS_S,
    LAGS_S,
    OTHER,
    PATH,
    Bounded,
    Counter,
    Gauge,
    Histogram,
    Metric,
    families,
    labelled,
    make_registry,
    merged,
    parsed,
    render,
)

LAG_EVERY_S = 0.25

_SHARE_OVER_S = 0.5
_MOST_ROUTES = 1000  # they are declared; an environment may have many tools
_STATUSES = {status: str(status) for status in range(100, 600)}


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
    def __init__(self, server: str, peers: Peers | None = None) -> None:
        self.server = server
        self.in_flight = 0
        self._peers = peers or Peers()
        self._routes: set[str] = set()
        self._all = make_registry()
        self._info = Gauge(
            "velodrome_server_info",
            "What this server is; always 1.",
            ("type", "implementation", "version", "python"),
            registry=self._all,
        )
        self._requests = Bounded(
            Counter(
                "velodrome_http_requests",
                "Requests answered, by declared route; any other path is other.",
                ("route", "method", "status"),
                registry=self._all,
            ),
            most=_MOST_ROUTES,
        )
        self._durations = Bounded(
            Histogram(
                "velodrome_http_request_duration_seconds",
                "From the head of a request to the end of its answer.",
                ("route",),
                registry=self._all,
                buckets=DURATIONS_S,
            ),
            most=_MOST_ROUTES,
        )
        Gauge(
            "velodrome_http_requests_in_flight", "Requests being answered now, this one included.", registry=self._all
        ).set_function(lambda: self.in_flight)
        self._lag = Histogram(
            "velodrome_event_loop_lag_seconds",
            "How late a timer of the event loop was, four times a second.",
            registry=self._all,
            buckets=LAGS_S,
        )

    def identify(self, kind: str, implementation: str) -> None:
        self._info.labels(kind, implementation, version("velodrome"), platform.python_version()).set(1)

    def declare(self, *paths: str) -> None:
        """Routes that are counted under their own name."""
        self._routes.update(paths)

    def count_sessions(self, count: Callable[[], float]) -> None:
        """Report the number of open sessions, too."""
        gauge = Gauge("velodrome_open_sessions", "Sessions that are open in this worker.", registry=self._all)
        gauge.set_function(count)

    def finished(self, method: str, path: str, status: int, began: float) -> None:
        """One request is answered; `began` is of `perf_counter`."""
        self.in_flight -= 1
        route = path if path in self._routes else OTHER
        self._requests.at(route, method, _STATUSES.get(status) or str(status)).inc()
        self._durations.at(route).observe(perf_counter() - began)

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
            self._lag.observe(max(loop.time() - due, 0.0))
            CORE.look()
            begin()

        begin()
        try:
            with CORE.watched():
                yield
        finally:
            timer.cancel()

    async def report(self, request: Request) -> Response:
        """`/metrics`: of all workers; to a worker that asks, of this one alone."""
        own = families(self._all)
        if ALONE in request.headers:
            return _text(own)
        answers = await self._peers.ask(PATH)
        by_worker = {number: _families_in(answer) for number, answer in answers.items()} | {self._peers.own: own}
        reported = [
            labelled(group, worker=str(number)) for number, group in sorted(by_worker.items()) if group is not None
        ]
        counts = [
            GaugeMetricFamily("velodrome_workers", "Workers of this server.", len(by_worker)),
            GaugeMetricFamily(
                "velodrome_workers_silent",
                "Workers that gave no answer to this scrape within a second.",
                len(by_worker) - len(reported),
            ),
        ]
        return _text(labelled(merged([*reported, counts]), server=self.server))


def _text(group: Iterable[Metric]) -> Response:
    return Response(render(group), headers={"content-type": CONTENT_TYPE})


def _families_in(answer: bytes | None) -> list[Metric] | None:
    """What a peer reported; None if that is nothing."""
    try:
        return parsed((answer or b"").decode()) or None
    except ValueError:
        return None
