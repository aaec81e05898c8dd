"""Who looks on while a collection runs: a trace, an exporter, a scrape target. Nothing here changes a rollout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from velodrome.timing.spans import Span


@dataclass(frozen=True, slots=True)
class Done:
    """One finished attempt. Its spans have ended; times are of `time.perf_counter`."""

    key: str
    task_index: int
    rollout_index: int
    agent: str
    kept: bool
    reward: float | None
    error: str | None  # "boundary: message" of a failed attempt, secrets masked
    spans: Span
    trace: str  # the traceparent header its calls carried
    slot: int  # the lowest number free when it began: one track each
    written: tuple[float, float] | None  # when its line was written, from and to


@dataclass(frozen=True, slots=True)
class Sample:
    """The state of a collection at one moment, taken about once a second."""

    at: float
    in_flight: int
    limit: int
    kept: int
    failed: int
    cpu: float  # share of one core since the sample before
    lag_s: float  # the event loop's, at its worst since the sample before
    bytes_written: int
    tokens: int
    decisions: Sequence[tuple[float, int, int, str]] = ()  # of the pace: when, the limit before and after, why


class Watcher(Protocol):
    """Told of every finished attempt and of every sample, in the event loop: it must be quick and must not wait."""

    def finished(self, done: Done) -> None:
        """One attempt is over."""

    def sampled(self, sample: Sample) -> None:
        """About a second has passed."""

    def close(self) -> None:
        """The collection is over."""
