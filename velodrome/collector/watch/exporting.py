"""A collection seen from outside while it runs: numbers for Prometheus, and every rollout as an OpenTelemetry trace.

Neither can slow it down or fail it. What could not be told is said at the end, in `notes`.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from importlib.metadata import version

from velodrome.collector.account import timing
from velodrome.collector.watch.watch import Done, Sample
from velodrome.serving.scrape import ScrapeServer
from velodrome.timing.exposition import LAGS_S, Counter, Gauge, Histogram, Registry, Summary, render
from velodrome.timing.otlp import Attributes, Exporter, Receiver, Traced, headers_from
from velodrome.timing.spans import Span

LINGER_S = 3.0  # how long the end of a collection waits for a receiver

_TOOL = "tool:"
_PARTS = {
    f"{part}_s": (part,) for part in ("queue", "connection", "session", "model", "backoff", "tools", "verify", "other")
}
_DURATIONS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)


def make_exposed(port: int, say: Callable[[str], None]) -> Exposed:
    """`metrics_port`: the numbers of a collection on 127.0.0.1, from now until the watcher is closed."""
    found = Exposed(port)
    say(f"metrics: {found.url}")
    return found


def make_otlp(endpoint: str, environ: Mapping[str, str] = os.environ) -> Exported:
    """`otlp_endpoint`: every rollout as a trace, to a receiver of OTLP over HTTP."""
    resource: Attributes = {
        "service.name": "velodrome",
        "service.version": version("velodrome"),
        "process.pid": os.getpid(),
    }
    return Exported(Exporter(Receiver(endpoint, headers_from(environ)), resource))


class Exposed:
    """The watcher that Prometheus scrapes. Port 0 takes a free one; one that is taken is an InputError."""

    def __init__(self, port: int) -> None:
        self.notes: list[str] = []
        self._all = Registry()
        add = self._all.add
        info = add(Gauge("velodrome_collection_info", "What collects; always 1.", ("version", "python")))
        info.put(1, (version("velodrome"), platform.python_version()))
        self._rollouts = add(Counter("velodrome_rollouts_total", "Attempts that are over.", ("outcome",)))
        for outcome in ("kept", "failed"):
            self._rollouts.add((outcome,), 0)
        self._durations = add(
            Histogram(
                "velodrome_rollout_duration_seconds", "From the start of an attempt to its end.", (), _DURATIONS_S
            )
        )
        self._parts = add(
            Counter("velodrome_rollout_part_seconds_total", "Where the time of attempts went.", ("part",))
        )
        for labels in _PARTS.values():
            self._parts.add(labels, 0)
        self._reward = add(Summary("velodrome_rollout_reward", "Rewards of kept rollouts."))
        self._tools = add(
            Histogram("velodrome_tool_duration_seconds", "Tool calls, their wait for a thread included.", ("tool",))
        )
        self._in_flight = add(Gauge("velodrome_rollouts_in_flight", "Rollouts that are running."))
        self._limit = add(Gauge("velodrome_rollouts_limit", "How many may run at once."))
        self._tokens = add(Counter("velodrome_tokens_total", "Tokens of prompts and answers, those of failures too."))
        self._retries = add(Counter("velodrome_retries_total", "Calls that were sent again."))
        self._rate_limited = add(Counter("velodrome_rate_limited_total", "Answers that said: too many requests (429)."))
        self._bytes = add(Counter("velodrome_written_bytes_total", "Bytes of rollouts written."))
        self._lag = add(
            Histogram(
                "velodrome_event_loop_lag_seconds",
                "How late the event loop was at its worst, in each sample.",
                (),
                LAGS_S,
            )
        )
        self._server = ScrapeServer(port, self.render)
        self.url = self._server.url

    def render(self) -> bytes:
        """What a scrape is told."""
        return render(self._all.families())

    def finished(self, done: Done) -> None:
        """Count one attempt."""
        self._rollouts.add(("kept" if done.kept else "failed",))
        if done.reward is not None:
            self._reward.observe(done.reward)
        found = timing(done.spans)
        self._durations.observe(found["total_s"])
        for name, labels in _PARTS.items():
            seconds = found.get(name)
            if seconds and seconds > 0:
                self._parts.add(labels, seconds)
        if "retries" in found:
            self._retries.add(amount=found["retries"])
        if "rate_limited" in found:
            self._rate_limited.add(amount=found["rate_limited"])
        self._time_tools(done.spans)

    def sampled(self, sample: Sample) -> None:
        """Take over what is counted elsewhere."""
        self._in_flight.put(sample.in_flight)
        self._limit.put(sample.limit)
        self._tokens.rise_to(sample.tokens)
        self._bytes.rise_to(sample.bytes_written)
        self._lag.observe(sample.lag_s)

    def close(self) -> None:
        """Free the port."""
        self._server.close()

    def _time_tools(self, above: Span) -> None:
        for span in above.children:
            if span.name.startswith(_TOOL):
                self._tools.observe(span.seconds, (span.name[len(_TOOL) :],))
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
