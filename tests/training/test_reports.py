"""A training run's files as `velo profile` reads them: exact numbers from small files, and every wrong file a line."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from velodrome.cli.main import main
from velodrome.training.run_profile import read_run, run_report

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
SECOND_PARTS = {"rollout/teacher": 40.0, "rollout/teacher/nim_calls": 40.0, "update/backward": 10.0}
PARTS = [
    epoch(200, "supervised", 20.0, 30.0, parts_ms=FIRST_PARTS),
    epoch(300, "supervised", 40.0, 10.0, parts_ms=SECOND_PARTS),
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
    being_written = b'{"step": 3'
    run = read_run(run_folder(tmp_path / "first_12345678", LINES, being_written))
    assert (run["run"], run["step"], run["epochs"]) == ("first_12345678", 260, 3)
    rates = {"sps": 2000.0, "sps_median": 2000.0, "sps_slowest": 2000.0}
    assert run["phases"] == [
        {"phase": "supervised", "epochs": 2, "agent_steps": 200, "rollout_s": 0.06, "update_s": 0.04, **rates},
        {"phase": "ppo", "epochs": 1, "agent_steps": 60, "rollout_s": 0.01, "update_s": 0.02, **rates},
    ]
    shares = {
        "supervised: rollout": 6 / 15,
        "supervised: update": 4 / 15,
        "ppo: rollout": 1 / 15,
        "ppo: update": 2 / 15,
    }
    assert {each["part"]: each["share"] for each in run["time"]} == pytest.approx({**shares, "evaluation": 2 / 15})


def test_where_the_time_went_is_by_part_over_the_epochs_that_have_parts(tmp_path: Path):
    run = read_run(run_folder(tmp_path, PARTS))
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
    of_ppo = run_report(run).partition("Where the time went: ppo, 1 epoch\n")[2].splitlines()
    shown = [line.split()[:2] for line in of_ppo if line.startswith("  ")]
    assert shown == [["part", "share"], ["update", "100.0%"], ["backward", "100.0%"]]  # what took no time is left out


def test_the_report_of_a_run_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["profile", str(run_folder(tmp_path / "first_1", LINES))]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith("Training Profile (first_1: 260 agent steps, 3 epochs)\n\nSpeed\n")
    assert "\n  supervised       2          200    2,000   2,000          2,000\n" in out
    assert out.endswith("Last evaluation, greedy\n  step         260\n  episodes       4\n  mean_return  2.5\n")


def numbers(each: dict[str, Any]) -> tuple[Any, ...]:
    """A line in microseconds."""
    times = (round(each[name] * 1e3, 6) for name in ("total_ms", "self_ms"))
    return each["name"], each.get("depth"), each["count"], *times, round(each["share"], 6)


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.json", '[{"name": "x", "ph": "X"}]', "no trace of PyTorch's profiler"),
        ("a.json", '{"deviceProperties": [], "traceEvents": [3]}', "not a trace"),
        ("a.json", '{"deviceProperties": [], "traceEvents": [{"ph": "X", "cat": "kernel"}]}', "not a trace"),
        ("a.json", '{"deviceProperties": [], "traceEvents": [', "not a trace, or not a whole one"),
        ("a.json", '{"deviceProperties": [], "traceEvents": []}', "nothing was recorded in it"),
        ("a.json", '{"traceEvents": [' + '{"a":[' * 100_000, "not a trace"),
        ("a.json.gz", "", "not a trace"),
        ("metrics.jsonl", '{"reward": 1}\n', "no epoch of a training run in it"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, name: str, text: str, line: str, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    message = refused(capsys, path)
    assert (message.startswith(f"velo: {path}: {line}"), message.count("\n")) == (True, 1)


@pytest.mark.slow
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
