"""The settings by which a collection can be looked at while it runs, and the watchers they ask for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from velodrome.cli.settings import PROFILING, Setting, profile_place
from velodrome.collector.watch.watch import Watcher

Json = dict[str, Any]

WATCHING = (
    Setting("timing_every", "count", None, "print where the time went every so many rollouts"),
    Setting("trace_path", "path", None, "write a trace for Perfetto or Chrome (.json, .json.gz)"),
    Setting("trace_max_mb", "count", 256, "the largest a trace gets, before compression"),
    Setting("metrics_port", "port", None, "serve numbers for Prometheus on 127.0.0.1"),
    Setting("otlp_endpoint", "text", None, "send every rollout as an OpenTelemetry trace"),
    *PROFILING,
)


@contextlib.contextmanager
def watching(given: Json, output: Path, say: Callable[[str], None]) -> Iterator[list[Watcher]]:
    """The watchers that the settings ask for, until the collection is over; then what they have to say."""
    from velodrome.serving.profiling import profiled

    directory = profile_place(given)
    with profiled(directory, "collector", every_s=given["profiling_save_every_s"]), contextlib.ExitStack() as stack:
        watchers: list[Watcher] = []
        for watcher in _made(given, output, say):
            stack.callback(_close, watcher, say)
            watchers.append(watcher)
        yield watchers
    if directory is not None:
        say(f"profile: {directory / 'collector.log'}")


def _made(given: Json, output: Path, say: Callable[[str], None]) -> Iterator[Any]:
    if given["trace_path"] is not None:
        from velodrome.collector.watch.tracing import Tracing

        yield Tracing(given["trace_path"], output=output, max_bytes=given["trace_max_mb"] * 1_000_000)
    if given["metrics_port"] is not None:
        from velodrome.collector.watch.exporting import make_exposed

        yield make_exposed(given["metrics_port"], say)
    if given["otlp_endpoint"] is not None:
        from velodrome.collector.watch.exporting import make_otlp

        yield make_otlp(given["otlp_endpoint"])


def _close(watcher: Any, say: Callable[[str], None]) -> None:
    watcher.close()
    for note in watcher.notes:
        say(note)
