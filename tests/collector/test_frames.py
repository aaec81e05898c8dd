"""Frames between a parent and its workers."""

from __future__ import annotations

from time import perf_counter

from velodrome.collector.attempt import Attempt
from velodrome.collector.executors.frames import attempts_frame, attempts_in, read_frame_from_worker
from velodrome.collector.plan import Job
from velodrome.timing.spans import root
from velodrome.timing.trace import Trace

AHEAD_S = 1000.0


def test_spans_of_another_machine_are_placed_on_this_clock_and_keep_their_length():
    job = Job("t/0", 0, 0, "agent", {}, digest="d", place=3)
    with root("rollout") as spans:
        pass
    made = Attempt(job.key, job.place, 0, 0, job.agent, spans, Trace(), job.digest, line=b"{}")
    header, lines = read_frame_from_worker(attempts_frame([made], recorded=True))
    (same,) = attempts_in(header, lines, {3: job})

    header["clock"] = ["another machine", header["clock"][1] + AHEAD_S]
    header["attempts"][0]["start"] += AHEAD_S
    (other,) = attempts_in(header, lines, {3: job})

    assert same.spans.start == spans.start
    assert spans.start <= other.spans.start <= other.spans.end <= perf_counter()
    assert abs((other.spans.end - other.spans.start) - (same.spans.end - same.spans.start)) < 1e-6
