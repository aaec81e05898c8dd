"""A trace on disk: what is written, what survives a kill, a full disk and a limit, and what is read back."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from patience import DEADLINE_S
from trace_check import TraceFile, check_file, faults, read_trace

from velodrome.errors import InputError
from velodrome.timing import chrome
from velodrome.timing.chrome import TraceWriter

PID = os.getpid()
NAMES = ["trace.json", "trace.json.gz"]


class FakeClock:
    """Stands still until it is told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def names() -> list[chrome.Event]:
    return [*chrome.process(PID, "main", 0), *chrome.thread(PID, 1, "track", 0)]


def stretches(count: int, first: int = 0) -> list[chrome.Event]:
    return [chrome.complete(PID, 1, "work", "test", place, place + 1) for place in range(first, first + count)]


def decoded(path: Path) -> Any:
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)


@pytest.mark.parametrize("name", NAMES)
def test_a_closed_trace_is_plain_json_with_every_event(tmp_path: Path, name: str) -> None:
    clock = FakeClock()
    writer = TraceWriter(tmp_path / name, clock=clock)
    writer.add(names())
    clock.now = 100.25
    writer.add(
        [
            chrome.complete(PID, 1, "outer", "test", 100_000_000, 100_000_010, {"key": "a/0"}),
            chrome.complete(PID, 1, "inner", "test", 100_000_002, 100_000_004),
            *chrome.flow(7, "call", (PID, 1, 100_000_002), (PID, 1, 100_000_003)),
            chrome.counter(PID, "in flight", "unit", 100_000_005, 3),
        ]
    )
    writer.close()
    writer.close()

    events = decoded(tmp_path / name)

    epoch_us = events[0]["args"].pop("epoch_us")
    assert type(epoch_us) is int
    here, mark = {"pid": PID, "tid": 1}, {"cat": "trace", "ph": "i", "s": "g", "pid": PID, "tid": 0}
    stretch = {"cat": "test", "ph": "X", **here}
    made = {"made_by": "velodrome", "clock": "time.perf_counter"}
    assert events == [
        {"name": "trace start", **mark, "ts": 100_000_000, "args": made},
        {"name": "process_name", "ph": "M", "pid": PID, "tid": 0, "args": {"name": "main"}},
        {"name": "process_sort_index", "ph": "M", "pid": PID, "tid": 0, "args": {"sort_index": 0}},
        {"name": "thread_name", "ph": "M", **here, "args": {"name": "track"}},
        {"name": "thread_sort_index", "ph": "M", **here, "args": {"sort_index": 0}},
        {"name": "outer", **stretch, "ts": 100_000_000, "dur": 10, "args": {"key": "a/0"}},
        {"name": "inner", **stretch, "ts": 100_000_002, "dur": 2},
        {"name": "call", "cat": "flow", "id": 7, "ph": "s", "ts": 100_000_002, **here},
        {"name": "call", "cat": "flow", "id": 7, "ph": "f", "bp": "e", "ts": 100_000_003, **here},
        {
            "name": "in flight",
            "cat": "counter",
            "ph": "C",
            "ts": 100_000_005,
            "pid": PID,
            "tid": 0,
            "args": {"unit": 3},
        },
        {"name": "trace end", **mark, "ts": 100_250_000, "args": {"events": 9, "dropped": {}}},
    ]
    assert faults(events) == []
    assert writer.notes == []


def test_the_first_event_ties_the_clock_to_the_time_of_day(tmp_path: Path) -> None:
    import time

    TraceWriter(tmp_path / "trace.json").close()

    result = read_trace(tmp_path / "trace.json")

    assert result.epoch_us is not None
    assert abs(result.epoch_us + chrome.micros(time.perf_counter()) - chrome.micros(time.time())) < 1_000_000
    assert abs(result.epoch_us + result.events[0]["ts"] - chrome.micros(time.time())) < 60_000_000


@pytest.mark.parametrize("name", NAMES)
def test_a_trace_cut_at_any_byte_gives_the_events_before_the_cut(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    writer = TraceWriter(path)
    writer.add(names())
    for place in range(12):
        writer.add(stretches(3, first=3 * place))
        writer.flush()
    writer.close()
    whole = path.read_bytes()
    events = read_trace(path).events
    seen = []

    for size in range(64, len(whole), 3 if name.endswith(".gz") else 7):
        path.write_bytes(whole[:size])
        result = read_trace(path)
        assert result.events == events[: len(result.events)]
        if len(result.events) < len(events):
            assert result.missing == f"the end: it is cut off after {len(result.events)} events"
        seen.append(len(result.events))

    assert seen == sorted(seen)
    assert seen[-1] >= len(events) - 1
    assert set(range(5, 41, 3)) <= set(seen)  # each flush is readable on its own


@pytest.mark.parametrize("name", NAMES)
def test_everything_flushed_survives_a_kill(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    program = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom velodrome.timing import chrome\n"
        "writer = chrome.TraceWriter(Path(sys.argv[1]))\n"
        "writer.add(chrome.process(1, 'main', 0) + chrome.thread(1, 1, 'track', 0))\n"
        "for place in range(5000): writer.add([chrome.complete(1, 1, 'work', 'test', place, place + 1)])\n"
        "writer.flush()\n"
        "writer.add([chrome.complete(1, 1, 'lost', 'test', 9000, 9001)])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )

    done = subprocess.run([sys.executable, "-c", program, str(path)], check=False, timeout=DEADLINE_S)

    assert done.returncode == -signal.SIGKILL
    result = read_trace(path)
    assert result.missing == "the end: it is cut off after 5005 events"
    assert result.made_by == "velodrome"
    assert [event["ts"] for event in result.events if event["ph"] == "X"] == list(range(5000))
    assert faults(result.events) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_trace_that_reaches_its_size_stops_growing_and_says_what_it_lacks(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    writer = TraceWriter(path, max_bytes=10_000)
    writer.add(names())
    taken = [writer.add(stretches(5, first=5 * place), "rollouts") for place in range(100)]
    writer.add([chrome.counter(PID, "in flight", "unit", 600, 1)], "samples")
    writer.close()

    kept = taken.count(True)
    assert taken == [True] * kept + [False] * (100 - kept)
    result = check_file(path)
    assert len([event for event in result.events if event["ph"] == "X"]) == 5 * kept
    assert result.dropped == {"rollouts": 100 - kept, "samples": 1}
    missing = f"{100 - kept} rollouts, 1 samples"
    assert result.events[-2]["args"] == {"labels": f"not in this trace: {missing}"}
    assert writer.notes == [f"{path}: full at 0.01 MB; not in the trace: {missing}"]
    size = len(gzip.decompress(path.read_bytes())) if name.endswith(".gz") else path.stat().st_size
    assert 7_000 < size <= 10_000


@pytest.mark.parametrize("name", NAMES)
def test_memory_is_bounded_by_the_buffer_not_by_the_trace(tmp_path: Path, name: str) -> None:
    writer = TraceWriter(tmp_path / name)
    writer.add(names())
    held = 0
    for place in range(20_000):
        writer.add(stretches(5, first=5 * place))
        held = max(held, sum(map(len, writer._waiting)))
    writer.close()

    assert writer.bytes > 5_000_000
    assert held < 80_000


def test_a_full_disk_ends_the_trace_with_a_note_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.symlink_to("/dev/full")
    writer = TraceWriter(path)
    writer.add(stretches(1), "rollouts")
    writer.add(stretches(1), "rollouts")
    writer.flush()
    writer.close()
    assert writer.notes == [f"{path}: No space left on device; not in the trace: 2 rollouts"]


LIMITED = """
import resource, sys
from pathlib import Path
from velodrome.timing import chrome
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
writer = chrome.TraceWriter(Path(sys.argv[1]))
writer.add(chrome.process(1, "main", 0) + chrome.thread(1, 1, "track", 0))
for place in range(1000):
    name = f"work {place * 7919 % 1000}"
    events = [chrome.complete(1, 1, name, "test", 5 * place + n, 5 * place + n + 1) for n in range(5)]
    if writer.add(events, "rollouts"):
        writer.flush()
writer.close()
print(writer.notes, writer.dropped["rollouts"])
"""


@pytest.mark.parametrize("name", NAMES)
def test_a_disk_that_fills_up_midway_leaves_a_readable_trace(tmp_path: Path, name: str) -> None:
    path = tmp_path / name

    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, timeout=DEADLINE_S
    )

    assert done.returncode == 0, done.stderr
    result = read_trace(path)
    kept = len([event for event in result.events if event["ph"] == "X"]) // 5
    assert 0 < kept < 1000
    dropped = 1000 - kept - 1  # the group that the disk refused had been taken already
    assert done.stdout == f"{[f'{path}: File too large; not in the trace: {dropped} rollouts']} {dropped}\n"
    assert result.missing == f"the end: it is cut off after {len(result.events)} events"
    assert faults(result.events) == []


def test_an_event_that_is_not_json_is_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    writer = TraceWriter(path)
    writer.add(names())
    odd = chrome.complete(PID, 1, "work", "test", 0, 1, {"value": object()})
    assert [writer.add([odd], "rollouts"), writer.add(stretches(1))] == [False, True]
    writer.close()

    assert len([event for event in check_file(path).events if event["ph"] == "X"]) == 1
    note = "what cannot be written as JSON is left out; not in the trace: 1 rollouts"
    assert writer.notes == [f"{path}: {note}"]


@pytest.mark.parametrize("name", ["trace.jsonl", "trace", "trace.gz", "trace.json.zst", "trace.JSON"])
def test_a_name_that_viewers_do_not_open_and_a_folder_that_is_none_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=f"{name}: a trace is called …\\.json or …\\.json\\.gz"):
        TraceWriter(tmp_path / name)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file/trace\.json: cannot be written: "):
        TraceWriter(tmp_path / "file" / "trace.json")


def test_other_peoples_traces_are_read_too(tmp_path: Path) -> None:
    events = stretches(3)
    path = tmp_path / "torch.json"
    whole = json.dumps({"schemaVersion": 1, "traceEvents": events, "otherData": {}})

    path.write_text(whole)
    assert read_trace(path) == TraceFile(events)
    path.write_text(json.dumps(events))
    assert read_trace(path) == TraceFile(events)
    path.write_text(whole[: whole.rindex("work")])
    assert read_trace(path) == TraceFile(events[:2], "the end: it is cut off after 2 events")
    for data in (whole[:-1].encode(), gzip.compress(whole.encode())[:-8]):  # what follows the list is not needed
        path.write_bytes(data)
        assert read_trace(path) == TraceFile(events)


@pytest.mark.parametrize("name", NAMES)
def test_our_traces_are_told_from_other_files(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    writer = TraceWriter(path)
    assert chrome.ours(path)  # from its first moment on
    writer.close()
    assert chrome.ours(path)
    for other in (
        b"",
        b"{}",
        b"[]",
        b"[1]",
        b'{"traceEvents": []}',
        b"\x1f\x8b\x08garbage",
        zlib.compress(b"x"),
        b"[{",
    ):
        path.write_bytes(other)
        assert not chrome.ours(path)


def stretch(start: int, end: int, tid: int = 1) -> chrome.Event:
    return chrome.complete(PID, tid, "work", "test", start, end)


@pytest.mark.parametrize(
    ("events", "fault"),
    [
        ([stretch(0, 10), stretch(2, 6), stretch(5, 8)], "sticks out of"),
        ([stretch(0, 10, tid=2)], "no name for"),
        ([{**stretch(0, 1), "ts": 0.5}], "ts is not a whole number"),
        ([stretch(0, 9), *chrome.flow(1, "call", (PID, 1, 12), (PID, 1, 12))], "hangs in the air"),
        ([chrome.counter(PID, "lag", "unit", 5, 1), chrome.counter(PID, "lag", "unit", 4, 1)], "goes back in time"),
        ([*chrome.thread(PID, 2, "track", 0)], "two tracks called"),
        ([stretch(0, 5), chrome.instant(PID, "trace end", 4, {})], "after the end"),
        ([stretch(0, 10), stretch(0, 4), stretch(4, 10), stretch(4, 4), stretch(10, 12)], None),
    ],
)
def test_the_checker_of_traces_finds_a_fault(events: list[chrome.Event], fault: str | None) -> None:
    result = faults([*names(), *events])
    assert result == [] if fault is None else fault in result[0]


@pytest.mark.parametrize("change", [Path.unlink, lambda path: path.write_bytes(b"")], ids=["removed", "emptied"])
def test_a_trace_that_another_program_changed_is_said_to_be_none(tmp_path: Path, change: Callable[[Path], object]):
    writer = TraceWriter(tmp_path / "t.json")
    change(writer.path)
    writer.close()
    assert writer.notes == [
        f"{writer.path}: another program removed or changed it during the run; not in the trace: its end"
    ]
