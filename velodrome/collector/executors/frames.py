"""The frames between a parent and its workers, as bytes: jobs one way, finished attempts the other.

A frame to a worker is JSON. A frame from a worker is a JSON header and the lines of the attempts behind it, which the
parent writes as they are.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from velodrome.collector.attempt import Attempt, Failed, Kept
from velodrome.collector.plan import Job
from velodrome.errors import Away
from velodrome.records.facts import RowFacts

Json = dict[str, Any]

_SIZE = struct.Struct("!I")
_FOR_THE_PACE = ("total_s", "backoff_s", "retries", "rate_limited")  # of the timing: the rest is in the row


def jobs_frame(jobs: Iterable[Job], around: Json) -> bytes:
    """A frame of jobs to start, with the surroundings in the parent."""
    return orjson.dumps({"jobs": list(map(tuple, jobs)), "around": around})


def event(**fields: Any) -> bytes:
    """A frame with anything but attempts: `event(note="…")`."""
    return _framed(fields, ())


def attempts_frame(attempts: Iterable[Attempt]) -> bytes:
    """A frame of finished attempts."""
    header, lines = [], []
    for each in attempts:
        result = each.result
        fields: Json = {"place": each.job.place, "tokens": each.tokens}
        fields["timing"] = {name: each.timing[name] for name in _FOR_THE_PACE if name in each.timing}
        if isinstance(result, Kept):
            lines.append(result.line)
            fields |= {"size": len(result.line), "encode_s": result.encode_s}
        else:
            fields["failed"] = (result.row, result.away, result.refused, result.traceback)
        header.append(fields)
    return _framed({"attempts": header}, lines)


def _framed(header: Json, lines: Iterable[bytes]) -> bytes:
    data = orjson.dumps(header)
    return b"".join((_SIZE.pack(len(data)), data, *lines))


def read_frame_from_worker(data: bytes) -> tuple[Json, memoryview]:
    """The header of a frame, and the lines behind it."""
    (size,) = _SIZE.unpack_from(data)
    start = _SIZE.size + size
    header: Json = orjson.loads(memoryview(data)[_SIZE.size : start])
    return header, memoryview(data)[start:]


def attempts_in(header: Json, lines: memoryview, jobs: Mapping[int, Job]) -> list[Attempt]:
    """The attempts of a frame. Attempts at jobs that are no longer known here are dropped."""
    result, offset = [], 0
    for fields in header["attempts"]:
        line = bytes(lines[offset : offset + fields.get("size", 0)])
        offset += len(line)
        job = jobs.get(fields["place"])
        if job is not None:
            result.append(_attempt(job, fields, line))
    return result


def _attempt(job: Job, fields: Json, line: bytes) -> Attempt:
    result: Kept | Failed
    if "failed" in fields:
        row, away, refused, traceback = fields["failed"]
        result = Failed(row, None if away is None else Away(*away), refused, traceback)
    else:
        result = Kept(line, RowFacts(orjson.loads(line), size=len(line)), fields["encode_s"])
    return Attempt(job, result, fields["timing"], fields["tokens"])
