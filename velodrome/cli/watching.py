"""The reports of a collection: profiles and metrics while it runs, a trace and spans at its end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from velodrome.cli.options import WatchOptions
from velodrome.cli.streams import kept_path
from velodrome.collector.collection import Surface
from velodrome.collector.watch.exporting import Exposed
from velodrome.errors import InputError, StorageError
from velodrome.wings import wing


@contextlib.contextmanager
def watching(options: WatchOptions, output: Path, say: Callable[[str], None]) -> Iterator[Surface]:
    """Start the reports. The trace and the spans are made from the rows, even if the collection fails."""
    from velodrome.serving.profiling import profiled

    directory = options.profile_folder()
    with (
        profiled(directory, "collector", clock=options.profiling_clock, every_s=options.profiling_save_every_s),
        _rendered(options, output, say),
        contextlib.ExitStack() as stack,
    ):
        exposed = None
        if options.metrics_port is not None:
            exposed = Exposed(options.metrics_port)
            stack.callback(exposed.close)
            say(f"metrics: {exposed.url}")
        traced = options.trace_path is not None or options.otlp_endpoint is not None
        yield Surface(say, True, exposed=exposed, traced=traced)
    if directory is not None:
        say(f"profile: {directory / 'collector.log'}")


@contextlib.contextmanager
def _rendered(options: WatchOptions, output: Path, say: Callable[[str], None]) -> Iterator[None]:
    """At the end, write the trace and the spans of this run. Invalid paths and addresses are refused at the start."""
    renders: list[Callable[[float], list[str]]] = []
    rows = kept_path(output)
    if options.trace_path is not None:
        from velodrome.profiling.chrome_trace import check_target, write_trace

        target, most = kept_path(options.trace_path), options.trace_max_mb * 1_000_000
        check_target(target, output)
        renders.append(lambda since: write_trace(rows, target, since=since, max_bytes=most))
    if options.otlp_endpoint is not None:
        receiver = wing("telemetry").Receiver(options.otlp_endpoint)
        renders.append(lambda since: receiver.send(rows, since))
    since = round(time.time(), 6)
    try:
        yield
    finally:
        for render in renders if rows.exists() else ():
            try:
                for note in render(since):
                    say(note)
            except (InputError, StorageError) as error:
                say(str(error))
