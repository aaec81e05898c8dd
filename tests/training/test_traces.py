"""PyTorch's own traces: how their clock relates to the time of day, its own sums as ours, and training beside a
collection in one trace.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
import torch
from small_run import metrics, small
from torch.profiler import ProfilerActivity, profile, record_function
from trace_check import check_file

from velodrome.cli.main import main
from velodrome.collector.collection import collect
from velodrome.collector.order import Options
from velodrome.collector.watch.tracing import Tracing
from velodrome.profiling.traces.torch_trace import read_torch_trace
from velodrome.profiling.traces.trace_events import Trace
from velodrome.profiling.traces.training import read_training
from velodrome.settings import Config, Instance
from velodrome.timing.spans import root
from velodrome.training.loop import Outcome, train
from velodrome.training.parts import ROLLOUT, Timer
from velodrome.training.run.folder import folder as folder_of
from velodrome.training.run.profiler import Tracer
from velodrome.training.settings import ProfilerSettings

_CLOCKS_US = 1_000_000  # for a machine that stands still between two looks; a clock of another epoch is off by days


def trained(folder: Path, **more: str) -> Outcome:
    """A run whose profiler records 12 steps, stacks too."""
    given = {"enabled": "True", "wait_steps": "0", "warmup_steps": "1", "active_steps": "12", "repeat": "1"}
    given |= {"with_stack": "True", "compress": "True"}
    words = {f"trainer__profiler__{name}": value for name, value in given.items()}
    return train(small(folder, **words, **more), lambda _: None)


def collected(folder: Path) -> Path:
    """A real collection of ten rollouts; its trace."""
    links: dict[str, Any] = {
        "model_server": {"type": "responses_api_models", "name": "m"},
        "resources_server": {"type": "resources_servers", "name": "calculator"},
    }
    blocks = [
        Instance("m", "responses_api_models", "scripted_model", {"answers": ["36"]}, "t.yaml"),
        Instance("calculator", "resources_servers", "calculator", {}, "t.yaml"),
        Instance("solo", "responses_api_agents", "simple_agent", links, "t.yaml"),
    ]
    tasks = folder / "tasks.jsonl"
    row = {"responses_create_params": {"input": "15% of 240?"}, "expected_answer": "36"}
    tasks.write_bytes(b"".join(orjson.dumps({"id": number, **row}) + b"\n" for number in range(10)))
    tracing = Tracing(folder / "trace.json.gz")
    options = Options(tasks, folder / "out.jsonl", parallel=2, watchers=(tracing,))
    asyncio.run(collect(options, Config({}, {block.name: block for block in blocks}), lambda line: None))
    tracing.close()
    return tracing.path


def test_timestamps_of_pytorch_are_the_time_of_day_with_the_base_added(tmp_path: Path):
    moments = []
    with profile(activities=[ProfilerActivity.CPU]) as made:
        for number in range(5):
            before = time.time_ns()
            with record_function(f"mark {number}"):
                torch.ones(300, 300) @ torch.ones(300, 300)
            moments.append((before, time.time_ns()))
    made.export_chrome_trace(str(tmp_path / "trace.json"))
    trace = Trace(tmp_path / "trace.json")
    assert trace.epoch_ns is not None
    marks = sorted(
        (trace.epoch_ns / 1e3 + each["ts"], trace.epoch_ns / 1e3 + each["ts"] + each["dur"])
        for each in trace.events()
        if str(each["name"]).startswith("mark ")
    )
    off_us = [
        max(before / 1e3 - begin, end - after / 1e3)
        for (begin, end), (before, after) in zip(marks, moments, strict=True)
    ]
    assert max(off_us) < _CLOCKS_US


def test_operators_have_the_counts_and_times_that_pytorch_gives_them(tmp_path: Path):
    net = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.Tanh(), torch.nn.Linear(30, 5))
    with profile(activities=[ProfilerActivity.CPU]) as made:
        for number in range(3):
            with record_function(f"update {number}"), record_function("forward"):
                net(torch.ones(8, 20)).sum().backward()
    made.export_chrome_trace(str(tmp_path / "trace.json"))
    found = read_torch_trace(tmp_path / "trace.json")
    parts = {(each["name"], each["depth"]): each["count"] for each in found["parts"]}
    assert parts == {("update", 0): 3, ("forward", 1): 3}
    theirs = {each.key: each for each in made.key_averages()}
    assert len(found["operators"]) > 20
    for each in found["operators"]:
        their = theirs[each["name"]]
        assert each["count"] == their.count, each["name"]
        assert each["total_ms"] == pytest.approx(their.cpu_time_total / 1e3, abs=1e-3), each["name"]
        assert each["self_ms"] == pytest.approx(their.self_cpu_time_total / 1e3, abs=1e-3), each["name"]


def test_a_run_is_told_with_the_numbers_it_had_itself(tmp_path: Path):
    outcome = trained(tmp_path, evaluator__evaluate_local="True")
    found = read_training(outcome.folder)
    own = outcome.timing["phases"]
    assert {each["phase"]: each["agent_steps"] for each in found["phases"]} == {
        name: each["agent_steps"] for name, each in own.items()
    }
    for each in found["phases"]:
        assert each["sps"] == pytest.approx(own[each["phase"]]["sps"])
    assert found["evaluation"] == {"step": 1024, **(outcome.evaluation or {})}
    assert found["series"]["loss"]["last"] == [each for each in metrics(outcome.folder) if "loss" in each][-1]["loss"]
    parts = {each["name"]: each["count"] for each in found["parts"]["parts"]}
    steps = {name: parts[name] for name in ("environment step", "student_forward", "nim_calls", "update")}
    assert steps == {"environment step": 11, "student_forward": 11, "nim_calls": 11, "update": 1}


def recorded(folder: Path, said: list[str], **given: str) -> Outcome:
    """A run with this profiler; what was said about it goes to `said`."""
    words = {f"trainer__profiler__{name}": value for name, value in {"enabled": "True", **given}.items()}
    return train(small(folder, **words), lambda text: said.append(text) if text.startswith("profiler: ") else None)


def test_every_trace_has_a_table_of_its_own_steps_and_of_no_others(tmp_path: Path):
    said: list[str] = []
    outcome = recorded(tmp_path, said, wait_steps="1", warmup_steps="1", active_steps="3", repeat="3")
    counts = [line.split()[-1] for text in said for line in text.splitlines() if "ProfilerStep*" in line]
    assert counts == ["3", "3", "3"]
    assert [path.name for path in outcome.traces] == [f"profiler_trace_{number}.json" for number in range(3)]


def test_without_a_warm_up_the_first_step_is_the_first_of_the_trace_and_nothing_warns(tmp_path: Path):
    said: list[str] = []
    (path,) = recorded(tmp_path, said, wait_steps="0", warmup_steps="0", active_steps="2").traces
    names = {str(each.get("name")) for each in orjson.loads(path.read_bytes())["traceEvents"]}
    assert {name for name in names if name.startswith(("environment step", "update"))} == {
        "environment step 0",
        "environment step 1",
    }


@pytest.mark.parametrize("given", [{"wait_steps": "9999"}, {"wait_steps": "0", "warmup_steps": "9999"}])
def test_a_run_that_ends_before_its_profiler_begins_says_so(tmp_path: Path, given: dict[str, str]):
    said: list[str] = []
    assert recorded(tmp_path, said, **given).traces == []
    told = {"wait_steps": "10", "warmup_steps": "5", **given}
    before = f"trainer.profiler.wait_steps={told['wait_steps']} and warmup_steps={told['warmup_steps']} come first"
    assert said == [f"profiler: no trace: there were 144 steps, and {before}"]
    assert recorded(tmp_path, said, **given).finished
    assert said[1:] == ["profiler: no trace: nothing was trained; a larger trainer.total_timesteps trains on"]


def test_a_trace_that_was_moved_away_leaves_the_others_where_they_are(tmp_path: Path):
    given = {"wait_steps": "1", "warmup_steps": "1", "active_steps": "3", "repeat": "2"}
    half = {f"trainer__profiler__{name}": value for name, value in {"enabled": "True", **given}.items()}
    first = train(small(tmp_path, trainer__total_timesteps="512", **half), lambda _: None)
    (first.folder / "profiler_trace_0.json").unlink()
    before = first.traces[1].read_bytes()
    second = recorded(tmp_path, [], **given)
    assert [path.name for path in second.traces] == ["profiler_trace_2.json", "profiler_trace_3.json"]
    assert first.traces[1].read_bytes() == before


@pytest.mark.parametrize("compress", ["True", "False"])
def test_a_trace_that_cannot_be_written_is_said_and_the_run_goes_on(tmp_path: Path, compress: str):
    said: list[str] = []
    given = {"wait_steps": "1", "warmup_steps": "1", "active_steps": "3", "compress": compress}
    words = {f"trainer__profiler__{name}": value for name, value in given.items()}
    folder = folder_of(small(tmp_path, trainer__profiler__enabled="True", **words))
    (folder / "profiler_trace.new.json").mkdir(parents=True)  # in its way
    outcome = recorded(tmp_path, said, **given)
    assert (outcome.finished, outcome.traces) == (True, [])
    (line,) = said
    assert line.startswith(f"profiler: {folder / 'profiler_trace_0.json'}")
    assert ": the trace cannot be written (" in line


def test_writing_a_trace_is_no_time_of_the_rollout_it_was_written_in(tmp_path: Path):
    device = torch.device("cpu")
    settings = ProfilerSettings(enabled=True, wait_steps=0, warmup_steps=1, active_steps=2)
    tracer = Tracer(settings, tmp_path, Timer(device, profiled=False), device, lambda _: None)
    with root(ROLLOUT, lambda: 7.0) as rollout:  # a clock that stands, so that all that is left is what was taken off
        for _ in range(3):
            tracer.begin("environment step")
            torch.ones(3).sum()
            tracer.end()
    assert len(tracer.paths) == 1
    assert tracer.took_s > 0
    assert rollout.seconds == pytest.approx(-tracer.took_s)


def test_training_and_a_collection_lie_in_one_trace_at_the_time_they_ran(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    before = time.time()
    ours = collected(tmp_path)
    between = time.time()
    (theirs,) = trained(tmp_path).traces
    after = time.time()
    out = tmp_path / "all.json.gz"
    capsys.readouterr()
    assert main(["profile", "--merge", str(out), str(theirs), str(ours), "--json"]) == 0
    told = orjson.loads(capsys.readouterr().out)
    found = check_file(out)
    assert found.epoch_us is not None
    names = {each["pid"]: each["args"]["name"] for each in found.events if each["name"] == "process_name"}
    spans: dict[str, list[float]] = {}
    for each in found.events:
        if each["ph"] == "X":
            at = (found.epoch_us + each["ts"]) / 1e6
            spans.setdefault(names[each["pid"]], []).extend((at, at + each["dur"] / 1e6))
    slack_s = _CLOCKS_US / 1e6
    assert before - slack_s < min(spans["trace.json.gz: collector"])
    assert max(spans["trace.json.gz: collector"]) < between + slack_s
    # of torch there is also what it calls Spans or Traces; the process has the name it was started by
    of_torch = {name.partition(": ")[2]: each for name, each in spans.items() if name.startswith("profiler_trace_0")}
    (taught,) = (each for name, each in of_torch.items() if name not in ("Spans", "Traces"))
    assert between - slack_s < min(taught)
    assert max(taught) < after + slack_s
    stretches = [each["name"] for each in found.events if each["ph"] == "X"]
    assert (stretches.count("rollout"), stretches.count("nim_calls")) == (10, 11)
    (note,) = told["notes"]
    assert note.startswith("trace.json.gz ends ")
    assert note.endswith(" before profiler_trace_0.json.gz begins: they do not overlap")
