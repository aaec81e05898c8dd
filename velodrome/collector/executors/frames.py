"""What a parent and its workers say to each other, as bytes: jobs one way, finished attempts the other.

A frame to a worker is JSON. A frame from a worker is a JSON header and the lines of the attempts behind it, which the
parent writes as they are: no rollout is parsed again.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

import orjson

from velodrome.collector.account import Surroundings
from velodrome.collector.attempt import Attempt
from velodrome.collector.plan import Job
from velodrome.errors import Away
from velodrome.timing.spans import as_node, from_node, root
from velodrome.timing.trace import Trace

Json = dict[str, Any]

_SIZE = struct.Struct("!I")


def jobs_frame(jobs: Iterable[Job], around: Surroundings, *, alone: bool = False) -> bytes:
    """Jobs to start. `alone`: the worker says at which boundary each is, since it may be the end of the worker."""
    now = (around.in_flight, around.limit, around.read_s, around.write_s, around.decisions)
    return orjson.dumps({"jobs": list(map(tuple, jobs)), "around": now, "alone": alone})


def take_jobs(frame: Json, around: Surroundings) -> list[Job]:
    """The jobs in a frame, and what is around them in the parent."""
    around.in_flight, around.limit, read_s, around.write_s, decisions = frame["around"]
    around.read_s += read_s
    around.decisions += decisions
    return [Job(*each) for each in frame["jobs"]]


def event(**fields: Any) -> bytes:
    """Anything that is not an attempt: `event(note="…")`."""
    return _framed(fields, ())


def attempts_frame(attempts: Iterable[Attempt], *, recorded: bool) -> bytes:
    """Finished attempts; with `recorded` their spans, too."""
    header, lines = [], []
    for each in attempts:
        line = each.line or b""
        lines.append(line)
        fields: Json = {"place": each.place, "size": len(line), "encode_s": each.encode_s, "tokens": each.tokens}
        fields["times"] = (each.total_s, each.backoff_s, each.retries, each.rate_limited)
        if each.line is None:
            fields |= {"failure": each.failure, "away": each.away, "traceback": each.traceback}
        else:
            fields["reward"] = each.reward
        if each.lacking:
            fields["lacking"] = each.lacking
        if recorded:
            fields |= {"start": each.spans.start, "spans": as_node(each.spans, each.spans.start)}
            fields["trace"] = each.trace.header
        header.append(fields)
    clock = {"clock": (_machine(), perf_counter())} if recorded else {}
    return _framed({"attempts": header} | clock, lines)


@cache
def _machine() -> str:
    """What one clock is read on: `perf_counter` counts from the start of a machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        return platform.node()


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
    """The attempts of a frame. Their jobs are known here by place; of one that is not, nothing is wanted any more."""
    result, offset = [], 0
    machine, there_s = header.get("clock") or (_machine(), 0.0)
    shift_s = 0.0 if machine == _machine() else perf_counter() - there_s  # spans of another machine end now
    for fields in header["attempts"]:
        line = bytes(lines[offset : offset + fields["size"]])
        offset += fields["size"]
        job = jobs.get(fields["place"])
        if job is not None:
            result.append(_attempt(job, fields, line, shift_s))
    return result


def _attempt(job: Job, fields: Json, line: bytes, shift_s: float) -> Attempt:
    away, spans = fields.get("away"), root("rollout")
    total_s, backoff_s, retries, rate_limited = fields["times"]
    if "spans" in fields:
        spans = from_node(fields["spans"], fields["start"] + shift_s, spans.clock)
    return Attempt(
        job.key,
        job.place,
        job.task_index,
        job.rollout_index,
        job.agent,
        spans,
        Trace(fields.get("trace")),
        job.digest,
        line=line or None,
        reward=fields.get("reward"),
        failure=fields.get("failure"),
        away=None if away is None else Away(*away),
        traceback=fields.get("traceback", ""),
        tokens=fields["tokens"],
        total_s=total_s,
        backoff_s=backoff_s,
        retries=retries,
        rate_limited=rate_limited,
        lacking=fields.get("lacking", ()),
        encode_s=fields["encode_s"],
    )
