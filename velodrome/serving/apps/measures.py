"""The metrics of a server at `/metrics`: requests, their times, the lag of its event loop, its process.

A scrape reaches one worker, which collects the metrics of the others and reports all. A path that is not a declared
route counts as "other".
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from time import perf_counter, process_time
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from velodrome.serving.apps.routes import ALONE, Peers
from velodrome.timing.exposition import CONTENT_TYPE, OTHER, PATH, Labels, Metric, Metrics, add, merged, render

LAG_EVERY_S = 0.25

_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_SHARE_OVER_S = 0.5
_FADE = 0.96  # of the worst lag, at each tick: half of it after four seconds


def cpu_demand_s() -> float:
    """CPU time of this process, plus the time that this thread waited for a core (Linux)."""
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:
            waited_ns = int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        waited_ns = 0
    return process_time() + waited_ns / 1e9


class Core:
    """The recent demand of this process: `share` is 1 if it could have used a whole core."""

    def __init__(self, clock: Callable[[], float] = perf_counter, used: Callable[[], float] = cpu_demand_s) -> None:
        self.share = 0.0
        self._clock, self._used = clock, used
        self._since, self._used_then = clock(), used()

    def update(self) -> None:
        """Compute the share, at most once per half second."""
        now = self._clock()
        if now - self._since >= _SHARE_OVER_S:
            used = self._used()
            self.share = (used - self._used_then) / (now - self._since)
            self._since, self._used_then = now, used


CORE = Core()  # this process's


class Measures:
    """The metrics of one server in this process. Each of `routes` is counted by its path."""

    def __init__(self, status: Any, peers: Peers | None = None, routes: Sequence[str] = ()) -> None:
        self.in_flight = 0
        self._status = status
        self._peers = peers or Peers()
        self._routes = frozenset(routes)
        self._all = Metrics()
        self._requests = self._all.counter(
            "velodrome_http_requests_total", "Requests answered, by declared route; any other path is other."
        )
        self._seconds = self._all.counter(
            "velodrome_http_request_seconds_total", "From the head of a request to the end of its answer."
        )
        self._lag = self._all.gauge(
            "velodrome_event_loop_lag_seconds", "How late a timer of the event loop was at its worst of late."
        )
        self._lag.samples[()] = 0.0
        self._labels: dict[tuple[str, str, int], tuple[Labels, Labels]] = {}

    def finished(self, method: str, path: str, status: int, began: float) -> None:
        """Count an answered request; `began` is a time of `perf_counter`."""
        self.in_flight -= 1
        route = path if path in self._routes else OTHER
        labels = self._labels.get((route, method, status))
        if labels is None:
            at = ("route", route)
            requests = (at, ("method", method if method in _METHODS else OTHER), ("status", str(status)))
            labels = self._labels[route, method, status] = requests, (at,)
        add(self._requests, labels[0])
        add(self._seconds, labels[1], perf_counter() - began)

    @contextmanager
    def lag_watched(self) -> Iterator[None]:
        """Measure the lag of the event loop and the load of the process while the block runs."""
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle

        def begin() -> None:
            nonlocal timer
            due = loop.time() + LAG_EVERY_S
            timer = loop.call_at(due, tick, due)

        def tick(due: float) -> None:
            self._lag.samples[()] = max(loop.time() - due, self._lag.samples[()] * _FADE)
            CORE.update()
            begin()

        begin()
        try:
            yield
        finally:
            timer.cancel()

    async def report(self, request: Request) -> Response:
        """`/metrics` of all workers. A request from another worker gets those of this worker alone, as JSON."""
        own = [*self._current_gauges(), *self._all.all()]
        if ALONE in request.headers:
            return Response(orjson.dumps([(*each[:3], list(each.samples.items())) for each in own]))
        answers = await self._peers.ask(PATH)
        by_worker = {number: _metrics_in(answer) for number, answer in answers.items()} | {self._peers.own: own}
        server = {"server": self._status.name}
        reported = [({**server, "worker": str(number)}, by_worker[number]) for number in sorted(by_worker)]
        silent = sum(not metrics for _, metrics in reported)
        counts = [
            _gauge("velodrome_workers", "Workers of this server.", len(by_worker)),
            _gauge("velodrome_workers_silent", "Workers that gave no answer within a second.", silent),
        ]
        return Response(render(merged([*reported, (server, counts)])), headers={"content-type": CONTENT_TYPE})

    def _current_gauges(self) -> Iterator[Metric]:
        """The metrics that are read at each scrape."""
        names = {"type": self._status.kind, "implementation": self._status.implementation}
        names |= {"version": version("velodrome"), "python": platform.python_version()}
        yield _gauge("velodrome_server_info", "What this server is; always 1.", 1, tuple(names.items()))
        yield _gauge(
            "velodrome_http_requests_in_flight", "Requests being answered now, this one included.", self.in_flight
        )
        if "open_sessions" in self._status.live:
            sessions = self._status.live["open_sessions"]()
            yield _gauge("velodrome_open_sessions", "Sessions that are open in this worker.", sessions)


def _gauge(name: str, about: str, value: float, labels: Labels = ()) -> Metric:
    return Metric(name, "gauge", about, {labels: float(value)})


def _metrics_in(answer: bytes | None) -> list[Metric]:
    """The metrics in the answer of a peer; none if it did not answer."""
    try:
        return [
            Metric(name, kind, about, {tuple((str(a), str(b)) for a, b in labels): float(n) for labels, n in samples})
            for name, kind, about, samples in orjson.loads(answer or b"")
        ]
    except (ValueError, TypeError):
        return []
