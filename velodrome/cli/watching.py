"""The watchers of a collection that its settings name."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from velodrome.cli.options import WatchOptions
from velodrome.collector.watch.watch import Watcher


@contextlib.contextmanager
def watching(options: WatchOptions, output: Path, say: Callable[[str], None]) -> Iterator[list[Watcher]]:
    """The watchers that the settings ask for, until the collection is over; then what they have to say."""
    from velodrome.serving.profiling import profiled

    directory = options.profile_folder()
    with profiled(directory, "collector", every_s=options.profiling_save_every_s), contextlib.ExitStack() as stack:
        watchers: list[Watcher] = []
        for watcher in _made(options, output, say):
            stack.callback(_close, watcher, say)
            watchers.append(watcher)
        yield watchers
    if directory is not None:
        say(f"profile: {directory / 'collector.log'}")


def _made(options: WatchOptions, output: Path, say: Callable[[str], None]) -> Iterator[Any]:
    if options.trace_path is not None:
        from velodrome.collector.watch.tracing import Tracing

        yield Tracing(options.trace_path, output=output, max_bytes=options.trace_max_mb * 1_000_000)
    if options.metrics_port is not None:
        from velodrome.collector.watch.exporting import make_exposed

        yield make_exposed(options.metrics_port, say)
    if options.otlp_endpoint is not None:
        from velodrome.collector.watch.exporting import make_otlp

        yield make_otlp(options.otlp_endpoint)


def _close(watcher: Any, say: Callable[[str], None]) -> None:
    watcher.close()
    for note in watcher.notes:
        say(note)
