"""A collection seen from outside while it runs: numbers for Prometheus, and every rollout as an OpenTelemetry trace.

Neither can slow it down or fail it. What could not be delivered is reported at the end, in `notes`.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from importlib.metadata import version

from velodrome.collector.account import timing
from velodrome.collector.watch.watch import Done, Sample
from velodrome.serving.scrape import ScrapeServer
from velodrome.timing.exposition import (
    DURATIONS_S,
    LAGS_S,
    Bounded,
    Counter,
    Gauge,
    Histogram,
    Summary,
    families,
    make_registry,
    render,
)
from velodrome.timing.otlp import Attributes, Exporter, Receiver, Traced, headers_from
from velodrome.timing.spans import Span

LINGER_S = 3.0  # how long the end of a collection waits for a receiver

_TOOL = "tool:"
_PARTS = ("queue", "connection", "session", "model", "backoff", "tools", "verify", "other")
_DURATIONS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)


def make_exposed(port: int, say: Callable[[str], None]) -> Exposed:
    """`metrics_port`: the numbers of a collection on 127.0.0.1, from now until the watcher is closed."""
    exposed = Exposed(port)
    say(f"metrics: {exposed.url}")
    return exposed


def make_otlp(endpoint: str, environ: Mapping[str, str] = os.environ) -> Exported:
    """`otlp_endpoint`: every rollout as a trace, to a receiver of OTLP over HTTP."""
    resource: Attributes = {
        "service.name": "velodrome",
        "service.version": version("velodrome"),
        "process.pid": os.getpid(),
    }
    return Exported(Exporter(Receiver(endpoint, headers_from(environ)), resource))


class _Total:
    """A counter of something that is counted elsewhere: it follows, and never falls."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._last = 0.0

    def rise_to(self, total: float) -> None:
        """The total is this now."""
        if total > self._last:
            self._counter.inc(total - self._last)
            self._last = total


class Exposed:
    """The watcher that Prometheus scrapes. Port 0 takes a free one; one that is taken is an InputError."""

    def __init__(self, port: int) -> None:
        self.notes: list[str] = []
        self._all = registry = make_registry()

        def counter(name: str, text: str) -> Counter:
            return Counter(name, text, registry=registry)

        info = Gauge("velodrome_collection_info", "What collects; always 1.", ("version", "python"), registry=registry)
        info.labels(version("velodrome"), platform.python_version()).set(1)
        rollouts = Counter("velodrome_rollouts", "Attempts that are over.", ("outcome",), registry=registry)
        self._kept, self._failed = rollouts.labels("kept"), rollouts.labels("failed")
        self._durations = Histogram(
            "velodrome_rollout_duration_seconds",
            "From the start of an attempt to its end.",
            registry=registry,
            buckets=_DURATIONS_S,
        )
        parts = Counter(
            "velodrome_rollout_part_seconds", "Where the time of attempts went.", ("part",), registry=registry
        )
        self._parts = {f"{part}_s": parts.labels(part) for part in _PARTS}
        self._reward = Summary("velodrome_rollout_reward", "Rewards of kept rollouts.", registry=registry)
        self._tools = Bounded(
            Histogram(
                "velodrome_tool_duration_seconds",
                "Tool calls, their wait for a thread included.",
                ("tool",),
                registry=registry,
                buckets=DURATIONS_S,
            )
        )
        self._in_flight = Gauge("velodrome_rollouts_in_flight", "Rollouts that are running.", registry=registry)
        self._limit = Gauge("velodrome_rollouts_limit", "How many may run at once.", registry=registry)
        self._tokens = _Total(counter("velodrome_tokens", "Tokens of prompts and answers, those of failures too."))
        self._retries = counter("velodrome_retries", "Calls that were sent again.")
        self._rate_limited = counter("velodrome_rate_limited", "Answers that said: too many requests (429).")
        self._bytes = _Total(counter("velodrome_written_bytes", "Bytes of rollouts written."))
        self._lag = Histogram(
            "velodrome_event_loop_lag_seconds",
            "How late the event loop was at its worst, in each sample.",
            registry=registry,
            buckets=LAGS_S,
        )
        self._server = ScrapeServer(port, self.render)
        self.url = self._server.url

    def render(self) -> bytes:
        """The answer to a scrape."""
        return render(families(self._all))

    def finished(self, done: Done) -> None:
        """Count one attempt."""
        (self._kept if done.kept else self._failed).inc()
        if done.reward is not None:
            self._reward.observe(done.reward)
        times = timing(done.spans)
        self._durations.observe(times["total_s"])
        for name, counter in self._parts.items():
            seconds = times.get(name)
            if seconds and seconds > 0:
                counter.inc(seconds)
        self._retries.inc(times.get("retries", 0))
        self._rate_limited.inc(times.get("rate_limited", 0))
        self._time_tools(done.spans)

    def sampled(self, sample: Sample) -> None:
        """Take over what is counted elsewhere."""
        self._in_flight.set(sample.in_flight)
        self._limit.set(sample.limit)
        self._tokens.rise_to(sample.tokens)
        self._bytes.rise_to(sample.bytes_written)
        self._lag.observe(sample.lag_s)

    def close(self) -> None:
        """Free the port."""
        self._server.close()

    def _time_tools(self, above: Span) -> None:
        for span in above.children:
            if span.name.startswith(_TOOL):
                self._tools.at(span.name[len(_TOOL) :]).observe(span.seconds)
            elif span.children:
                self._time_tools(span)


class Exported:
    """The watcher that sends every attempt as a trace."""

    def __init__(self, exporter: Exporter, *, linger_s: float = LINGER_S) -> None:
        self.notes: list[str] = []
        self._exporter = exporter
        self._linger_s = linger_s
        self._closed = False

    def finished(self, done: Done) -> None:
        """Hand on one attempt."""
        attributes: Attributes = {
            "velodrome.key": done.key,
            "velodrome.agent": done.agent,
            "velodrome.task_index": done.task_index,
            "velodrome.rollout_index": done.rollout_index,
            "velodrome.kept": done.kept,
            **({} if done.reward is None else {"velodrome.reward": float(done.reward)}),
        }
        after = () if done.written is None else (("write", *done.written),)
        self._exporter.add(Traced(done.spans, done.trace, attributes, done.error, after))

    def sampled(self, sample: Sample) -> None:
        """Nothing: a trace has no samples."""

    def close(self) -> None:
        """Send the rest, for a short while at most, and say what was lost. Closing twice is fine."""
        if self._closed:
            return
        self._closed = True
        lost = self._exporter.close(self._linger_s)
        if lost is not None:
            self.notes.append(f"otlp_endpoint: {lost}")
