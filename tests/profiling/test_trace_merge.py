"""Traces made one: ids apart, times on one clock, names by file, and nothing lost that was there before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from trace_check import check_file, read_trace

from velodrome.cli.main import main
from velodrome.profiling.traces.trace_merge import MergedFile, Numbers, merge
from velodrome.timing import chrome
from velodrome.timing.chrome import Event, TraceWriter

BASE_NS = 1_790_000_000_000_000_000
EPOCH_US = BASE_NS // 1000


def torch_trace(path: Path, *, at_us: float = 100.0) -> Path:
    """Two operators in a step, with names given twice and a process that is a text, as PyTorch writes them."""
    name = {"ph": "M", "name": "process_name", "ts": at_us, "pid": 7, "tid": 0, "args": {"name": "python"}}
    track = {"ph": "M", "name": "thread_name", "ts": at_us, "pid": 7, "tid": 7, "args": {"name": "thread 7"}}
    where = {"pid": 7, "tid": 7}
    step = {"ph": "X", "cat": "user_annotation", "name": "update 1", **where, "ts": at_us + 0.9, "dur": 10.2}
    events = [
        name,
        track,
        track,
        step,
        {"ph": "X", "cat": "cpu_op", "name": "mm", **where, "ts": at_us + 4.001, "dur": 7.099, "args": {"Ev Idx": 1}},
        {"ph": "s", "id": 1, "cat": "fwdbwd", "name": "fwdbwd", **where, "ts": at_us + 4.001},
        {"ph": "f", "id": 1, "cat": "fwdbwd", "name": "fwdbwd", **where, "ts": at_us + 5.0, "bp": "e"},
        {"ph": "X", "cat": "python_function", "name": "f", **where, "ts": at_us, "dur": 3.0},
        {"ph": "i", "s": "g", "name": "Iteration Start", "pid": "Traces", "tid": "Trace", "ts": at_us},
    ]
    path.write_bytes(orjson.dumps({"deviceProperties": [], "baseTimeNanoseconds": BASE_NS, "traceEvents": events}))
    return path


def our_trace(path: Path, *, epoch_us: int = EPOCH_US, pid: int = 7, tid: int = 7) -> Path:
    """A rollout from 90 to 120 µs on the same ids."""
    writer = TraceWriter(path, clock=lambda: 200e-6, epoch_us=epoch_us)
    going, coming = chrome.flow(1, "fwdbwd", (pid, tid, 90), (pid, tid, 95))
    flow = [{**each, "cat": "fwdbwd"} for each in (going, coming)]
    rollout = chrome.complete(pid, tid, "rollout", "span", 90, 120)
    writer.add([*chrome.process(pid, "collector", 0), *chrome.thread(pid, tid, "slot 6", 6), rollout, *flow])
    writer.add([chrome.counter(pid, "in flight", "rollouts", 110, 1)])
    writer.close()
    return path


def stretches(events: list[Event]) -> dict[str, list[tuple[int, int, str]]]:
    """By the names of process and track: start, end and name of each stretch."""
    processes = {each["pid"]: each["args"]["name"] for each in events if each["name"] == "process_name"}
    tracks = {each["tid"]: each["args"]["name"] for each in events if each["name"] == "thread_name"}
    result: dict[str, list[tuple[int, int, str]]] = {}
    for each in events:
        if each["ph"] == "X":
            where = f"{processes[each['pid']]} / {tracks[each['tid']]}"
            result.setdefault(where, []).append((each["ts"], each["ts"] + each["dur"], each["name"]))
    return result


def test_files_with_the_same_ids_lie_side_by_side_on_one_clock(tmp_path: Path):
    paths = [torch_trace(tmp_path / "profiler_trace_0.json"), our_trace(tmp_path / "trace.json.gz")]
    report = merge(tmp_path / "all.json", paths)
    result = check_file(tmp_path / "all.json")
    assert result.epoch_us == EPOCH_US + 90
    assert stretches(result.events) == {
        "profiler_trace_0.json: python / thread 7": [(10, 21, "update 1"), (14, 21, "mm")],
        "profiler_trace_0.json: python / 7 Python": [(10, 13, "f")],
        "trace.json.gz: collector / slot 6": [(0, 30, "rollout")],
    }
    names = [each["args"]["name"] for each in result.events if each["name"] == "process_name"]
    assert names == ["profiler_trace_0.json: python", "profiler_trace_0.json: Traces", "trace.json.gz: collector"]
    assert [(each["name"], each["events"]) for each in report["files"]] == [
        ("profiler_trace_0.json", 6),
        ("trace.json.gz", 4),
    ]
    assert report["began_at"] == (EPOCH_US + 90) / 1e6
    assert report["notes"] == []


def test_what_was_merged_can_be_merged_again(tmp_path: Path):
    merge(tmp_path / "ab.json.gz", [torch_trace(tmp_path / "a.json"), our_trace(tmp_path / "b.json")])
    merge(tmp_path / "abc.json", [tmp_path / "ab.json.gz", our_trace(tmp_path / "c.json")])
    result = check_file(tmp_path / "abc.json")
    assert stretches(result.events) == {
        "ab.json.gz: a.json: python / thread 7": [(10, 21, "update 1"), (14, 21, "mm")],
        "ab.json.gz: a.json: python / 7 Python": [(10, 13, "f")],
        "ab.json.gz: b.json: collector / slot 6": [(0, 30, "rollout")],
        "c.json: collector / slot 6": [(0, 30, "rollout")],
    }


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path: Path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        our_trace(tmp_path / name / "trace.json")
    report = merge(tmp_path / "all.json", [tmp_path / name / "trace.json" for name in ("one", "two")])
    assert [each["name"] for each in report["files"]] == ["one/trace.json", "two/trace.json"]
    check_file(tmp_path / "all.json")


def test_files_that_do_not_overlap_are_merged_and_it_is_said_how_far_apart_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    early = our_trace(tmp_path / "early.json", epoch_us=EPOCH_US - 600_000_000)
    late = torch_trace(tmp_path / "late.json")
    out = tmp_path / "all.json"
    assert main(["profile", "--merge", str(out), str(late), str(early)]) == 0
    assert capsys.readouterr() == (
        f"{out}: begins 2026-09-21 14:03:20 UTC\n\n"
        "Files\n"
        "  file        events  begins after  lasts\n"
        "  late.json        6         600 s  11 µs\n"
        "  early.json       4          0 ms  30 µs\n\n"
        "Notes\n"
        "  early.json ends 600 s before late.json begins: they do not overlap\n",
        "",
    )
    check_file(out)


def test_an_earlier_trace_is_kept_and_any_other_file_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    paths = [str(torch_trace(tmp_path / "a.json")), str(our_trace(tmp_path / "b.json"))]
    earlier = our_trace(tmp_path / "all.json").read_bytes()
    assert main(["profile", "--merge", str(tmp_path / "all.json"), *paths, "--json"]) == 0
    assert orjson.loads(capsys.readouterr().out)["file"] == str(tmp_path / "all.json")
    assert (tmp_path / "all.json.1").read_bytes() == earlier
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "all.json", "all.json.1", "b.json"]
    (tmp_path / "mine.json").write_text("mine")
    for out, line in (
        (tmp_path / "mine.json", "it is there and is not an earlier trace; give the trace another name"),
        (tmp_path / "a.json", "one of the traces to merge; give --merge another name to write to"),
        (tmp_path / "all.txt", "a trace is called ….json or ….json.gz"),
    ):
        assert main(["profile", "--merge", str(out), *paths]) == 2
        assert capsys.readouterr() == ("", f"velo: {out}: {line}\n")
    assert (tmp_path / "mine.json").read_text() == "mine"


def test_a_trace_without_the_time_of_day_and_other_mistakes_are_a_line_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    good, out = our_trace(tmp_path / "good.json"), tmp_path / "out.json"
    bare = tmp_path / "bare.json"
    bare.write_bytes(orjson.dumps([chrome.complete(1, 1, "x", "y", 5, 9)]))
    empty = tmp_path / "empty.json"
    empty.write_bytes(orjson.dumps({"baseTimeNanoseconds": BASE_NS, "traceEvents": []}))
    cases: list[tuple[list[Any], str]] = [
        ([good, bare], f"{bare}: it does not tell the time of day of its clock, so it cannot be merged"),
        ([good, empty], f"{empty}: no events in it; there is nothing to merge"),
        ([good, good], "one file is given twice"),
        ([good, tmp_path / "no.json"], f"{tmp_path}/no.json: no such file"),
        ([good], "--merge OUT.json takes two traces or more, as in velo profile --merge all.json a.json b.json.gz"),
    ]
    for paths, line in cases:
        assert main(["profile", "--merge", str(out), *map(str, paths)]) == 2
        said, error = capsys.readouterr()
        assert (said, error.count("\n"), error.startswith(f"velo: {line}")) == ("", 1, True)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["bare.json", "empty.json", "good.json"]


def test_a_trace_that_is_still_being_written_is_merged_as_it_was_at_first(tmp_path: Path):
    path = tmp_path / "live.json"
    writer = TraceWriter(path, clock=lambda: 200e-6, epoch_us=EPOCH_US)
    writer.add([chrome.complete(1, 1, "before", "span", 90, 120)])
    writer.flush()
    source = MergedFile(path, "live.json")
    writer.add([chrome.complete(2, 5, "after", "span", 190, 220)])
    writer.close()
    events = list(source.moved(Numbers(), EPOCH_US * 1000))
    assert [(each["name"], each["ts"], each["dur"]) for each in events] == [("before", 90, 30)]
    assert list(source.notes()) == [f"{path}: it cannot be read to its end; what stands before that was merged"]


def test_what_json_cannot_hold_is_replaced_in_its_event_and_in_no_other(tmp_path: Path):
    nested: Any = 1
    for _ in range(300):
        nested = [nested]
    good = {"ph": "X", "cat": "cpu_op", "name": "mm", "pid": 7, "tid": 7, "dur": 1, "args": {"x": 1}}
    events = [
        {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": "p\ud800"}},
        {"ph": "M", "name": "thread_sort_index", "pid": 7, "tid": 7, "args": {"sort_index": 10**30}},
        {**good, "ts": 1},
        {**good, "ts": 2, "args": {"x": 10**30}},
        {**good, "ts": 3, "name": "a\ud800", "id": "\ud800"},
        {**good, "ts": 4, "args": {"x": nested}, "id": 10**30},
        {**good},
        {**good, "ts": None},
        {**good, "ts": 5},
    ]
    path = tmp_path / "odd.json"
    path.write_text(json.dumps({"deviceProperties": [], "baseTimeNanoseconds": BASE_NS, "traceEvents": events}))
    report = merge(tmp_path / "all.json", [path, our_trace(tmp_path / "b.json")])
    assert report["notes"] == [
        f"{path}: 2 events without a time left out",
        "odd.json ends 84 µs before b.json begins: they do not overlap",
    ]
    result = check_file(tmp_path / "all.json").events
    assert [(each["name"], each["ts"], each["args"]) for each in result if each.get("cat") == "cpu_op"] == [
        ("mm", 0, {"x": 1}),
        ("mm", 1, {"x": 1e30}),
        ("a?", 2, {"x": 1}),
        ("mm", 3, {}),
        ("mm", 4, {"x": 1}),
    ]
    assert "odd.json: p?" in [each["args"]["name"] for each in result if each["name"] == "process_name"]


def test_a_trace_of_a_killed_collection_is_merged_as_far_as_it_goes(tmp_path: Path):
    torn = our_trace(tmp_path / "torn.json")
    torn.write_bytes(torn.read_bytes()[:-150])
    report = merge(tmp_path / "all.json", [torch_trace(tmp_path / "a.json"), torn])
    assert report["notes"] == [f"{torn}: it cannot be read to its end; what stands before that was merged"]
    assert read_trace(tmp_path / "all.json").missing is None
