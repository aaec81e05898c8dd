"""The frames between a parent and its workers, as bytes: jobs one way, finished attempts the other.

A frame is a pickled dict: both sides run the same code for the same user. The line of an attempt is written by the
parent as it is.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from velodrome.collector.attempt import Attempt, Failed, Kept
from velodrome.collector.plan import Job
from velodrome.records.facts import RowFacts

_FOR_THE_PACE = ("total_s", "backoff_s", "retries", "rate_limited")  # of the timing: the rest is in the row


def frame(**fields: Any) -> bytes:
    """A frame: `frame(note="…")`."""
    return pickle.dumps(fields)


def attempts_frame(attempts: Iterable[Attempt]) -> bytes:
    """A frame of finished attempts."""
    sent = []
    for each in attempts:
        result = each.result
        timing = {name: each.timing[name] for name in _FOR_THE_PACE if name in each.timing}
        content = result if isinstance(result, Failed) else (result.line, result.encode_s)
        sent.append((each.job.place, content, timing, each.tokens))
    return frame(attempts=sent)


def attempts_in(sent: Iterable[tuple[int, Any, dict[str, Any], int]], jobs: Mapping[int, Job]) -> list[Attempt]:
    """The attempts of a frame. Attempts at jobs that are no longer known here are dropped."""
    result = []
    for place, content, timing, tokens in sent:
        if place in jobs:
            if not isinstance(content, Failed):
                line, encode_s = content
                content = Kept(line, RowFacts(orjson.loads(line), size=len(line)), encode_s)
            result.append(Attempt(jobs[place], content, timing, tokens))
    return result
