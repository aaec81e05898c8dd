"""A training run's files as `velo profile` reads them: exact numbers from small files, and every wrong file a line."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from velodrome.cli.main import main
from velodrome.errors import InputError
from velodrome.profiling.traces.torch_trace import read_torch_trace
from velodrome.profiling.traces.trace_events import TraceEvents
from velodrome.profiling.traces.training import read_training
from velodrome.profiling.traces.training_text import torch_report, training_report

BASE_NS = 1_790_000_000_000_000_000


def epoch(step: float, phase: str, rollout_ms: float, update_ms: float, **more: Any) -> dict[str, Any]:
    return {"step": step, "phase": phase, **more, "rollout_ms": rollout_ms, "update_ms": update_ms}


LINES = [
    epoch(100, "supervised", 40.0, 10.0, loss=2.0, rollout_return=1.0),
    epoch(200, "supervised", 20.0, 30.0, loss=1.0),
    epoch(260, "ppo", 10.0, 20.0, loss=-1.0, rollout_return=3.0),
    {"step": 260, "epoch": 3, "evaluation": {"episodes": 4, "mean_return": 2.5, "greedy": True}, "evaluation_s": 0.02},
]
FIRST_PARTS = {
    "rollout/teacher": 12.0,
    "rollout/other": 8.0,
    "rollout/teacher/other": 2.0,
    "rollout/teacher/nim_calls": 10.0,
    "update/backward": 30.0,
}
PARTS = [
    epoch(100, "supervised", 40.0, 10.0),
    epoch(200, "supervised", 20.0, 30.0, parts_ms=FIRST_PARTS),
    epoch(
        300,
        "supervised",
        40.0,
        10.0,
        parts_ms={"rollout/teacher": 40.0, "rollout/teacher/nim_calls": 40.0, "update/backward": 10.0},
    ),
    epoch(400, "ppo", 0.0, 10.0, parts_ms={"rollout/teacher": 0.0, "update/backward": 10.0}),
]


def run_folder(folder: Path, lines: list[Any], end: bytes = b"") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "metrics.jsonl").write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines) + end)
    return folder


def stretch(name: str, ts: float, dur: float, cat: str = "cpu_op", tid: int = 7) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": tid, "ts": ts, "dur": dur, "args": {}}


def part(name: str, ts: float, dur: float) -> dict[str, Any]:
    return stretch(name, ts, dur, "user_annotation")


# Inner ones come first, so that nothing rests on their order in the file.
EVENTS = [
    stretch("aten::mm", 15.0, 5.0),
    stretch("aten::linear", 12.0, 10.0),
    stretch("aten::mm", 62.0, 8.0),
    part("student_forward", 10.0, 20.0),
    part("environment step 4", 5.0, 35.0),
    part("ProfilerStep#4", 4.0, 40.0),
    part("environment step 5", 50.0, 25.0),
    part("student_forward", 60.0, 15.0),
    part("update 6", 80.0, 40.0),
    stretch("aten::mm", 62.0, 100.0, tid=8),
    stretch("mm.py(1): call", 0.0, 500.0, "python_function"),
]


def trace_file(path: Path, events: list[Any]) -> Path:
    head = {"schemaVersion": 1, "deviceProperties": [], "baseTimeNanoseconds": BASE_NS}
    data = orjson.dumps({**head, "traceEvents": events}, option=orjson.OPT_INDENT_2)
    path.write_bytes(gzip.compress(data) if path.name.endswith(".gz") else data)
    return path


def profiled(capsys: pytest.CaptureFixture[str], *words: str | Path) -> Any:
    """What is printed as JSON."""
    assert main(["profile", *map(str, words), "--json"]) == 0
    return orjson.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """What is said of words that are refused."""
    assert main(["profile", *map(str, words)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err


def test_speed_and_shares_of_time_are_of_what_was_timed_by_phase(tmp_path: Path):
    run = read_training(run_folder(tmp_path / "first_12345678", LINES))
    assert (run["run"], run["step"], run["epochs"], run["notes"]) == ("first_12345678", 260, 3, [])
    rates = {"sps": 2000.0, "sps_median": 2000.0, "sps_slowest": 2000.0}
    assert run["phases"] == [
        {"phase": "supervised", "epochs": 2, "agent_steps": 200, "rollout_s": 0.06, "update_s": 0.04, **rates},
        {"phase": "ppo", "epochs": 1, "agent_steps": 60, "rollout_s": 0.01, "update_s": 0.02, **rates},
    ]
    assert {each["part"]: round(each["share"], 6) for each in run["time"]} == {
        "supervised: rollout": 0.4,
        "supervised: update": 0.266667,
        "ppo: rollout": 0.066667,
        "ppo: update": 0.133333,
        "evaluation": 0.133333,
    }
    assert run["epoch_parts"] == []
    assert "Where the time went" not in training_report(run)


def test_thousands_have_commas_and_no_exponent(tmp_path: Path):
    lines = [{**line, "sps": rate, "loss": 2e12} for line, rate in zip(LINES[:2], (13_512.4, 999.96), strict=True)]
    report = training_report(read_training(run_folder(tmp_path, lines)))
    assert "13,512 to 1,000" in report
    assert "2e+12 to 2e+12" in report


def test_series_are_over_the_same_steps_and_evaluations_of_both_kinds_are_kept_apart(tmp_path: Path):
    sampled = {"step": 200, "evaluation": {"episodes": 2, "mean_return": 0.5, "greedy": False}}
    run = read_training(run_folder(tmp_path, [LINES[0], {**LINES[3], "step": 100}, LINES[1], sampled, *LINES[2:]]))
    assert run["series"] == {
        "loss": {"first": 2.0, "last": -1.0, "least": -1.0, "most": 2.0, "means": [None, 2.0, 0.0]},
        "rollout_return": {"first": 1.0, "last": 3.0, "least": 1.0, "most": 3.0, "means": [None, 1.0, 3.0]},
        "evaluation_greedy/mean_return": {
            "first": 2.5,
            "last": 2.5,
            "least": 2.5,
            "most": 2.5,
            "means": [None, 2.5, 2.5],
        },
        "evaluation_sampled/mean_return": dict.fromkeys(("first", "last", "least", "most"), 0.5)
        | {"means": [None, None, 0.5]},
    }
    assert (run["evaluations"], run["evaluation"]) == (
        3,
        {
            "greedy": {"step": 260, "episodes": 4, "mean_return": 2.5},
            "sampled": {"step": 200, "episodes": 2, "mean_return": 0.5},
        },
    )
    report = training_report(run)
    assert report.index("Last evaluation, greedy\n  step         260") < report.index(
        "Last evaluation, sampled\n  step         200"
    )


def test_a_line_that_is_not_of_a_run_is_noted_and_one_that_is_being_written_is_not(tmp_path: Path):
    odd = [
        [1],
        {"a": 1},
        {"lost_bytes": 4711},
        {"lost_bytes": "x"},
        epoch(1e300, "ppo", 1.0, 1.0),
        epoch(-1, "ppo", 1.0, 1.0),
        epoch(300, "ppo", -1.0, 1.0),
        epoch(300, "ppo", 1.0, 1e300),
    ]
    folder = run_folder(tmp_path, [LINES[0], *odd], b'{"step": 3')
    run = read_training(folder)
    assert (run["step"], run["epochs"]) == (100, 1)
    notes = [f"{folder}/metrics.jsonl:{n}: not a line of a training run; left out" for n in range(2, 10)]
    notes[2] = f"{folder}/metrics.jsonl:4: 4,711 bytes of metrics are missing here"
    assert run["notes"] == [*notes[:5], "and 3 more such lines"]


def test_where_the_time_went_is_by_part_over_the_epochs_that_have_parts(tmp_path: Path):
    run = read_training(run_folder(tmp_path, PARTS))
    supervised, ppo = run["epoch_parts"]
    assert (supervised["phase"], supervised["epochs"], ppo["phase"], ppo["epochs"]) == ("supervised", 2, "ppo", 1)
    parts = [(each["part"], each["depth"], round(each["share"], 6), each["mean_ms"]) for each in supervised["parts"]]
    assert parts == [
        ("rollout", 0, 0.6, pytest.approx(30.0)),
        ("rollout/teacher", 1, 0.52, pytest.approx(26.0)),
        ("rollout/teacher/nim_calls", 2, 0.5, pytest.approx(25.0)),
        ("rollout/teacher/other", 2, 0.02, pytest.approx(1.0)),
        ("rollout/other", 1, 0.08, pytest.approx(4.0)),
        ("update", 0, 0.4, pytest.approx(20.0)),
        ("update/backward", 1, 0.4, pytest.approx(20.0)),
    ]
    assert (supervised["parts"][0]["p50_ms"], supervised["parts"][0]["p95_ms"]) == pytest.approx((40.0, 40.0))
    report = training_report(run)
    assert "Where the time went: supervised, 2 epochs" in report
    of_ppo = report[report.index("Where the time went: ppo, 1 epoch\n") :].splitlines()[1:]
    assert [line.split()[:2] for line in of_ppo if line.startswith("  ")] == [
        ["part", "share"],
        ["update", "100.0%"],
        ["backward", "100.0%"],  # what took no time is left out
    ]


@pytest.mark.parametrize(
    "parts", [[1], "x", {"rollout": 9e9, "elsewhere/a": 1.0, "rollout/a": -1.0, "rollout/b": None, "update/c": True}]
)
def test_parts_that_no_run_has_are_left_out(tmp_path: Path, parts: Any):
    run = read_training(run_folder(tmp_path, [epoch(100, "ppo", 40.0, 10.0, parts_ms=parts)]))
    assert run["notes"] == []
    names = [each["part"] for phase in run["epoch_parts"] for each in phase["parts"]]
    assert names == (["rollout", "update"] if isinstance(parts, dict) else [])


def test_names_are_bounded_and_cannot_touch_the_terminal(tmp_path: Path):
    parts = {f"rollout/\x1b[2J{number}": 1.0 for number in range(1000)}
    run = read_training(run_folder(tmp_path, [epoch(100, "ppo", 40.0, 10.0, parts_ms=parts)]))
    assert len(run["epoch_parts"][0]["parts"]) == 100
    assert "\x1b" not in training_report(run)


def test_a_strange_evaluation_is_reported_as_far_as_it_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    nested: list[Any] = []
    for _ in range(300):
        nested = [nested]
    strange = {"step": 1e308, "evaluation": {"mean_return": 3.0, "x": nested}, "evaluation_s": -5}
    folder = run_folder(tmp_path / os.fsdecode(b"run\xff"), LINES, json.dumps(strange).encode() + b"\n")
    run = profiled(capsys, folder)
    assert run["run"] == "run\\udcff"
    assert run["evaluation"]["sampled"] == {"step": None, "mean_return": 3.0}
    assert run["time"][-1]["seconds"] == 0.02


def test_a_folder_is_its_metrics_with_the_parts_of_the_newest_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = run_folder(tmp_path / "first_1", LINES)
    for number in (2, 10):
        trace_file(folder / f"profiler_trace_{number}.json", EVENTS)
    of_folder, of_file = profiled(capsys, folder), profiled(capsys, folder / "metrics.jsonl")
    newest = folder / "profiler_trace_10.json"
    assert of_folder.pop("parts") == {"file": str(newest), "parts": read_torch_trace(newest)["parts"]}
    assert of_file.pop("parts") is None
    assert of_folder == of_file
    newest.write_text("{}")
    broken = read_training(folder)
    assert (broken["epochs"], broken["parts"]) == (3, None)
    assert broken["notes"] == [f"{newest}: not a trace (expected a list of trace events)"]


def test_the_report_of_a_run_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["profile", str(run_folder(tmp_path / "first_1", LINES))]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith(
        "Training Profile (first_1: 260 agent steps, 3 epochs)\n\n"
        "Speed\n"
        "  phase       epochs  agent steps  steps/s  median  slowest epoch\n"
        "  supervised       2          200    2,000   2,000          2,000\n"
        "  ppo              1           60    2,000   2,000          2,000\n"
    )
    assert "\n  rollout_return                  ▃█  1 to 3\n" in out
    assert "\n  loss                            █▃  2 to -1\n" in out
    assert out.endswith("Last evaluation, greedy\n  step         260\n  episodes       4\n  mean_return  2.5\n")


def numbers(each: dict[str, Any]) -> tuple[Any, ...]:
    """A line in microseconds."""
    times = (round(each[name] * 1e3, 6) for name in ("total_ms", "self_ms"))
    return each["name"], each.get("depth"), each["count"], *times, round(each["share"], 6)


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_trace_has_parts_inside_steps_and_operators_by_their_own_time(tmp_path: Path, name: str):
    trace = read_torch_trace(trace_file(tmp_path / name, EVENTS))
    assert [numbers(each) for each in trace["parts"]] == [
        ("environment step", 0, 2, 60.0, 25.0, 0.6),
        ("student_forward", 1, 2, 35.0, 35.0, 0.35),
        ("update", 0, 1, 40.0, 40.0, 0.4),
    ]
    assert [numbers(each) for each in trace["operators"]] == [
        ("aten::mm", None, 3, 113.0, 113.0, round(113 / 118, 6)),
        ("aten::linear", None, 1, 10.0, 5.0, round(5 / 118, 6)),
    ]
    assert (trace["events"], trace["threads"], trace["kernels"], trace["notes"]) == (11, 2, [], [])
    assert trace["began_at"] == pytest.approx(BASE_NS / 1e9 + 4e-6, abs=1e-6)
    assert trace["seconds"] == pytest.approx(158e-6)


def test_the_report_of_a_trace_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = trace_file(tmp_path / "trace.json", [*EVENTS, stretch("gemm\x1b[31m", 3.0, 4.0, "kernel")])
    assert main(["profile", str(path), "--top", "1"]) == 0
    out, _ = capsys.readouterr()
    assert out == torch_report(read_torch_trace(path), top=1) + "\n"
    assert out.startswith("PyTorch trace (12 events, 159 µs from 2026-09-21 14:13:20 UTC)\n\nEpochs and parts\n")
    assert "  and 1 more\n" in out
    assert "gemm\\x1b[31m" in out


def test_parts_nested_a_thousand_deep_are_shown_fifty_deep(tmp_path: Path):
    events = [part(f"part {number % 3}", number, 100_000 - 2 * number) for number in range(1000)]
    trace = read_torch_trace(trace_file(tmp_path / "trace.json", events))
    assert [each["depth"] for each in trace["parts"]] == list(range(50))


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_events_on_the_edge_of_a_piece_are_read_whole(tmp_path: Path, name: str):
    events = [{**stretch("é" * (number % 97), number, 1), "args": {"x": "y" * 3000}} for number in range(2000)]
    trace = TraceEvents(trace_file(tmp_path / name, events))
    assert list(trace.events()) == orjson.loads(orjson.dumps(events))
    assert not trace.cut


def test_packed_files_one_behind_another_are_read_to_the_end(tmp_path: Path):
    data = trace_file(tmp_path / "trace.json", EVENTS).read_bytes()
    path = tmp_path / "trace.json.gz"
    path.write_bytes(b"".join(gzip.compress(data[at : at + 700]) for at in range(0, len(data), 700)))
    trace = TraceEvents(path)
    assert (list(trace.events()), trace.cut) == (EVENTS, False)


def test_wherever_a_trace_ends_the_events_before_are_read_and_its_end_is_missed(tmp_path: Path):
    odd = {**stretch('é"\\', -1.5e-7, 1e22), "args": {"a": [True, None, {"b": "\ud83d\ude00"}], "c": False}}
    whole = json.dumps({"deviceProperties": [], "traceEvents": [stretch("mm", 1, 1), odd]}).encode()
    begin = whole.index(b"}, {") + 2
    for end in range(begin, len(whole) - 2):
        (tmp_path / "trace.json").write_bytes(whole[:end])
        trace = TraceEvents(tmp_path / "trace.json")
        assert len(list(trace.events())) == 1, whole[:end]
        assert trace.cut, whole[:end]


@pytest.mark.parametrize(
    ("before", "after", "events"),
    [
        (b"mm.py(1)", b"C:\\mm.py(1)", 10),  # a backslash that escapes nothing
        (b"mm.py(1)", b"mm.py\t(1)", 11),
        (b'"mm.py(1)', b'"\\ud800mm.py(1)', 11),
    ],
)
def test_an_event_that_is_not_json_ends_a_trace_with_a_note(tmp_path: Path, before: bytes, after: bytes, events: int):
    path = trace_file(tmp_path / "trace.json", EVENTS)
    path.write_bytes(path.read_bytes().replace(before, after))
    trace = read_torch_trace(path)
    note = f"{path}: it cannot be read to its end; what stands before that was read"
    assert (trace["events"], trace["notes"]) == (events, [note] if events < len(EVENTS) else [])


def test_times_that_no_clock_shows_count_as_none(tmp_path: Path):
    path = tmp_path / "trace.json"
    odd = [b"1e999", b"-1e999", b"1e300", b'"soon"', b"null", b"%d" % 10**30]
    events = [b'{"ph":"X","cat":"cpu_op","name":"mm","ts":%s,"dur":%s}' % (each, each) for each in odd]
    events.append(b'{"ph":"X","cat":"cpu_op","name":"add","ts":7e11,"dur":3}')  # far from where none would put it
    events.append(b'{"ph":"X","cat":"cpu_op","name":"add","ts":7e11,"dur":1e999}')
    path.write_bytes(
        b'{"deviceProperties":[],"baseTimeNanoseconds":%d,"traceEvents":[%s]}' % (10**40, b",".join(events))
    )
    trace = read_torch_trace(path)
    assert (trace["events"], trace["seconds"], trace["began_at"]) == (8, 3e-6, None)
    assert [(each["name"], each["total_ms"]) for each in trace["operators"]] == [("add", 0.003)]


def test_names_with_half_characters_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = trace_file(tmp_path / "trace.json", [stretch("ab", 1, 1)])
    path.write_bytes(path.read_bytes().replace(b"ab", b"a\\ud800b"))
    assert [each["name"] for each in profiled(capsys, path)["operators"]] == ["a?b"]


def test_a_trace_above_the_limit_is_refused(tmp_path: Path):
    path = trace_file(tmp_path / "trace.json.gz", EVENTS * 2000)
    with pytest.raises(InputError, match=r"trace.json.gz: larger than 1 MB unpacked; trace fewer steps"):
        list(TraceEvents(path, largest_bytes=1_000_000).events())


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.json", '[{"name": "trace start", "args": {"made_by": "velodrome"}}]', "of a collection: give its rollouts"),
        ("a.json", '[{"name": "x", "ph": "X"}]', "no trace of PyTorch's profiler"),
        ("a.json", '{"traceEvents": [3]}', "not a trace (expected a list of trace events)"),
        ("a.json", "[1, 2]", "not a trace (expected a list of trace events)"),
        ("a.json", '{"x": 1 "traceEvents": []}', "not a trace (its beginning is no JSON)"),
        ("a.json", '{"deviceProperties": [], "traceEvents": []}', "nothing was recorded in it"),
        ("a.json", f'{{"traceEvents": [{{"ts": {"9" * 5000}}}]}}', "not a trace (an event in it cannot be read)"),
        ("a.json", '{"traceEvents": [' + '{"a":[' * 100_000, "not a trace (an event in it cannot be read)"),
        ("a.json.gz", "", "not a trace (expected a list of trace events)"),
        ("metrics.jsonl", '{"reward": 1}\n', "no epoch of a training run in it"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, name: str, text: str, line: str, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    message = refused(capsys, path)
    assert message.startswith(f"velo: {path}: {line}")
    assert message.count("\n") == 1


def test_wrong_words_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert f"{tmp_path}: no metrics.jsonl" in refused(capsys, tmp_path)
    folder = run_folder(tmp_path / "first_1", LINES)
    assert f"{tmp_path}: a folder of 1 runs; give one of them" in refused(capsys, tmp_path)
    assert "one training run or one PyTorch trace at a time" in refused(capsys, folder, folder)
    assert "--html: pages are of rollouts" in refused(capsys, folder, "--html")
    assert f"{tmp_path}/no/metrics.jsonl: no such file" in refused(capsys, tmp_path / "no" / "metrics.jsonl")
    long = "x" * 5000
    assert refused(capsys, long) == f"velo: {long}: no such file\n"
    assert refused(capsys, "--merge", "all.json", long, long).splitlines() == [f"velo: {long}: no such file"] * 2


def test_neither_a_run_nor_a_trace_needs_torch(tmp_path: Path):
    folder = run_folder(tmp_path, LINES)
    trace_file(folder / "profiler_trace_0.json", EVENTS)
    code = (
        "import sys; from velodrome.cli.main import main\n"
        f"assert main(['profile', {str(folder)!r}]) == 0\n"
        "print([name for name in ('torch', 'numba', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
