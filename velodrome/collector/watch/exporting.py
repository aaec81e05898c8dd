"""`metrics_port`: a collection's counters and gauges for Prometheus while it runs."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import Any

from velodrome.records.row_times import PARTS
from velodrome.serving.scrape import ScrapeServer
from velodrome.timing.exposition import Metrics, add, render

Json = dict[str, Any]


class Exposed:
    """Serves the metrics of a collection on 127.0.0.1. Port 0 chooses a free port; a port in use is an InputError."""

    def __init__(self, port: int) -> None:
        self._all = Metrics()
        counter, gauge = self._all.counter, self._all.gauge
        info = gauge("velodrome_collection_info", "What collects; always 1.")
        info.samples[("version", version("velodrome")), ("python", platform.python_version())] = 1.0
        self._rollouts = counter("velodrome_rollouts_total", "Attempts that are over.")
        self._seconds = counter("velodrome_rollout_seconds_total", "From the start of attempts to their end.")
        self._parts = counter("velodrome_rollout_part_seconds_total", "Where that time went.")
        self._counts = {
            "retries": counter("velodrome_retries_total", "Calls that were sent again."),
            "rate_limited": counter("velodrome_rate_limited_total", "Answers that said: too many requests (429)."),
        }
        self._sampled = {
            "in_flight": gauge("velodrome_rollouts_in_flight", "Rollouts that are running."),
            "limit": gauge("velodrome_rollouts_limit", "How many may run at once."),
            "reward": gauge("velodrome_rollout_reward_mean", "The mean reward of the rollouts kept so far."),
            "tokens": counter("velodrome_tokens_total", "Tokens of prompts and answers, those of failures too."),
            "bytes": counter("velodrome_written_bytes_total", "Bytes of rollouts written."),
            "lag_s": gauge("velodrome_event_loop_lag_seconds", "The event loop's worst lag in the last sample."),
        }
        for outcome in ("kept", "failed"):
            self._rollouts.samples[(("outcome", outcome),)] = 0.0
        for part in PARTS:
            self._parts.samples[(("part", part),)] = 0.0
        for metric in (self._seconds, *self._counts.values()):
            metric.samples[()] = 0.0
        self._server = ScrapeServer(port, lambda: render(self._all.all()))
        self.url = self._server.url

    def finished(self, timing: Json, *, kept: bool) -> None:
        """Count one attempt."""
        add(self._rollouts, (("outcome", "kept" if kept else "failed"),))
        add(self._seconds, (), timing["total_s"])
        for part in PARTS:
            add(self._parts, (("part", part),), max(timing.get(f"{part}_s", 0.0), 0.0))
        for name, metric in self._counts.items():
            add(metric, (), timing.get(name, 0))

    def sampled(self, sample: Json, reward: float | None) -> None:
        """Set the values of a sample."""
        for name, metric in self._sampled.items():
            value = reward if name == "reward" else sample[name]
            if value is not None:
                metric.samples[()] = float(value)

    def close(self) -> None:
        """Free the port."""
        self._server.close()
