"""The frames between a parent and its workers, as bytes: jobs one way, finished attempts the other.

A frame is a pickled dict: both sides run the same code for the same user. Rows are bytes: the parent writes the line
of a rollout as it is.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from velodrome.collector.attempt import Attempt, Failed, Kept
from velodrome.collector.plan import Job
from velodrome.records.facts import RowFacts
from velodrome.records.rollout import encode

_PACE_FIELDS = ("total_s", "backoff_s", "retries", "rate_limited")  # of the timing: the rest is in the row


def frame(**fields: Any) -> bytes:
    """A frame: `frame(note="…")`."""
    return pickle.dumps(fields)


def attempts_frame(attempts: Iterable[Attempt]) -> bytes:
    """A frame of finished attempts."""
    entries = []
    for attempt in attempts:
        result = attempt.result
        timing = {name: attempt.timing[name] for name in _PACE_FIELDS if name in attempt.timing}
        fields: tuple[Any, ...]  # the first is the row as bytes
        if isinstance(result, Kept):
            fields = (result.line, result.encode_s)
        else:
            fields = (encode(result.row), result.away, result.refused, result.traceback)
        entries.append((attempt.job.place, fields, timing, attempt.tokens))
    return frame(attempts=entries)


def attempts_in(
    entries: Iterable[tuple[int, tuple[Any, ...], dict[str, Any], int]], jobs: Mapping[int, Job]
) -> list[Attempt]:
    """The attempts in a frame. Attempts at jobs that are not in `jobs` are dropped."""
    attempts = []
    for place, (line, *rest), timing, tokens in entries:
        if place in jobs:
            row = orjson.loads(line)
            kept = len(rest) == 1
            result = Kept(line, RowFacts(row, size=len(line)), *rest) if kept else Failed(row, *rest)
            attempts.append(Attempt(jobs[place], result, timing, tokens))
    return attempts
