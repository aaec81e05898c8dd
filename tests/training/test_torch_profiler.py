"""PyTorch's traces: steps and parts in them, their clock and sums, and training beside a collection in one trace."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
import torch
from small_run import Reference, copied, metrics, trained
from torch.profiler import ProfilerActivity, profile, record_function
from trace_check import check_file

from velodrome.cli.main import main
from velodrome.collector.agents import ConfiguredAgents
from velodrome.collector.collection import Surface, collect
from velodrome.collector.settings import CollectSettings
from velodrome.collector.watch.tracing import Tracing
from velodrome.profiling.traces.torch_trace import read_torch_trace
from velodrome.profiling.traces.training import read_training
from velodrome.settings import Config, Instance
from velodrome.timing.spans import root
from velodrome.training.loop import TrainingResult
from velodrome.training.run.torch_profiler import Tracer
from velodrome.training.settings import ProfilerSettings
from velodrome.training.timed import ROLLOUT, PartTimer

_CLOCKS_US = 1_000_000  # for a machine that stands still between two looks; a clock of another epoch is off by days


def recorded(folder: Path, lines: list[str] | None = None, **profiler: object) -> TrainingResult:
    """A short run with this profiler; what it says about the profiler goes to `lines`."""
    values = {f"trainer__profiler__{name}": value for name, value in {"enabled": True, **profiler}.items()}
    said: list[str] = []
    result = trained(folder, said, trainer__total_timesteps=512, supervised__steps=256, **values)
    if lines is not None:
        lines += [text for text in said if text.startswith("profiler: ")]
    return result


TWELVE = {"wait_steps": 0, "warmup_steps": 1, "active_steps": 12, "with_stack": True, "compress": True}


@pytest.fixture(scope="module")
def twelve(tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    """A run whose profiler recorded 12 steps, with stacks."""
    values = {f"trainer__profiler__{name}": value for name, value in {"enabled": True, **TWELVE}.items()}
    return trained(tmp_path_factory.mktemp("twelve"), evaluator__evaluate_local=True, **values)


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
    settings = CollectSettings(input=tasks, output=folder / "out.jsonl", parallel=2)
    agents = ConfiguredAgents(Config({}, {block.name: block for block in blocks}))
    asyncio.run(collect(settings, agents, surface=Surface(watchers=(tracing,))))
    tracing.close()
    return tracing.path


def test_operators_have_the_counts_and_times_that_pytorch_gives_them(tmp_path: Path):
    net = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.Tanh(), torch.nn.Linear(30, 5))
    with profile(activities=[ProfilerActivity.CPU]) as made:
        for number in range(3):
            with record_function(f"update {number}"), record_function("forward"):
                net(torch.ones(8, 20)).sum().backward()
    made.export_chrome_trace(str(tmp_path / "trace.json"))
    result = read_torch_trace(tmp_path / "trace.json")
    parts = {(each["name"], each["depth"]): each["count"] for each in result["parts"]}
    assert parts == {("update", 0): 3, ("forward", 1): 3}
    theirs = {each.key: each for each in made.key_averages()}
    assert len(result["operators"]) > 20
    for each in result["operators"]:
        their = theirs[each["name"]]
        assert each["count"] == their.count, each["name"]
        assert each["total_ms"] == pytest.approx(their.cpu_time_total / 1e3, abs=1e-3), each["name"]
        assert each["self_ms"] == pytest.approx(their.self_cpu_time_total / 1e3, abs=1e-3), each["name"]


def test_a_run_is_reported_with_its_own_numbers(twelve: TrainingResult):
    outcome = twelve
    result = read_training(outcome.folder)
    own = outcome.timing["phases"]
    assert {each["phase"]: each["agent_steps"] for each in result["phases"]} == {
        name: each["agent_steps"] for name, each in own.items()
    }
    for each in result["phases"]:
        assert each["sps"] == pytest.approx(own[each["phase"]]["sps"])
    assert result["evaluation"] == {"step": 1024, **(outcome.evaluation or {})}
    assert result["series"]["loss"]["last"] == [each for each in metrics(outcome.folder) if "loss" in each][-1]["loss"]
    parts = {each["name"]: each["count"] for each in result["parts"]["parts"]}
    steps = {name: parts[name] for name in ("environment step", "student_forward", "nim_calls", "update")}
    assert steps == {"environment step": 11, "student_forward": 11, "nim_calls": 11, "update": 1}


def event_names(path: Path) -> set[str]:
    return {str(each.get("name")) for each in orjson.loads(path.read_bytes())["traceEvents"]}


def test_a_run_can_be_profiled_where_it_is_and_the_trace_holds_named_steps_and_our_parts(tmp_path: Path):
    first = trained(tmp_path, trainer__total_timesteps=256, supervised__steps=256)
    result = recorded(tmp_path, wait_steps=2, warmup_steps=2, active_steps=9)
    assert result.traces == [first.folder / "profiler_trace_0.json"]
    names = event_names(result.traces[0])
    assert {"student_forward", "replay_store", "environment", "backward"} <= names
    assert {name.rpartition(" ")[0] for name in names if name[-1:].isdigit()} >= {"environment step", "update"}


def test_every_trace_has_a_table_of_its_own_steps_and_one_that_was_moved_leaves_the_others(tmp_path: Path):
    lines: list[str] = []
    three = {"wait_steps": 1, "warmup_steps": 1, "active_steps": 3, "repeat": 2}
    first = recorded(tmp_path, lines, **three)
    counts = [line.split()[-1] for text in lines for line in text.splitlines() if "ProfilerStep*" in line]
    assert counts == ["3", "3"]
    assert [path.name for path in first.traces] == ["profiler_trace_0.json", "profiler_trace_1.json"]
    first.traces[0].unlink()
    before = first.traces[1].read_bytes()
    values = {f"trainer__profiler__{name}": value for name, value in {"enabled": True, **three}.items()}
    second = trained(tmp_path, trainer__total_timesteps=768, supervised__steps=256, **values)
    assert [path.name for path in second.traces] == ["profiler_trace_2.json", "profiler_trace_3.json"]
    assert first.traces[1].read_bytes() == before


def test_without_a_warm_up_the_first_step_is_the_first_of_the_trace(tmp_path: Path):
    (path,) = recorded(tmp_path, wait_steps=0, warmup_steps=0, active_steps=2).traces
    steps = {name for name in event_names(path) if name.startswith(("environment step", "update"))}
    assert steps == {"environment step 0", "environment step 1"}


@pytest.mark.parametrize("late", [{"wait_steps": 9999}, {"wait_steps": 0, "warmup_steps": 9999}])
def test_a_run_that_ends_before_its_profiler_starts_says_so(tmp_path: Path, late: dict[str, object]):
    lines: list[str] = []
    assert recorded(tmp_path, lines, **late).traces == []
    (line,) = lines
    assert line.startswith("profiler: no trace")
    assert "trainer.profiler.wait_steps" in line


@pytest.mark.parametrize("compress", [True, False])
def test_a_trace_that_cannot_be_written_is_reported_and_the_run_continues(
    tmp_path: Path, reference: Reference, compress: bool
):
    folder = copied(reference("mlp"), tmp_path)
    (folder / "profiler_trace.new.json").mkdir()  # in its way
    lines: list[str] = []
    quick = {"enabled": True, "wait_steps": 1, "warmup_steps": 1, "active_steps": 3, "compress": compress}
    values = {f"trainer__profiler__{name}": value for name, value in quick.items()}
    result = trained(tmp_path, lines, trainer__total_timesteps=1152, **values)
    assert (result.finished, result.traces, result.folder) == (True, [], folder)
    (line,) = (text for text in lines if text.startswith("profiler: "))
    assert str(folder / "profiler_trace_0.json") in line


def test_a_trace_larger_than_its_limit_is_reported_and_not_kept(tmp_path: Path):
    lines: list[str] = []
    large = {"wait_steps": 0, "warmup_steps": 1, "active_steps": 40, "record_shapes": True, "with_stack": True}
    assert recorded(tmp_path, lines, max_mb=1, **large).traces == []
    assert list(next(tmp_path.iterdir()).glob("profiler*")) == []
    assert "trainer.profiler.max_mb=1" in lines[0]


def test_allocations_are_in_the_trace_if_profile_memory_is_set(tmp_path: Path):
    (path,) = recorded(tmp_path, wait_steps=0, warmup_steps=1, active_steps=10, profile_memory=True).traces
    events = orjson.loads(path.read_bytes())["traceEvents"]
    sizes = [each["args"]["Bytes"] for each in events if each.get("name") == "[memory]"]
    assert min(sizes) < 0 < max(sizes)


def test_writing_a_trace_is_no_time_of_the_rollout_it_was_written_in(tmp_path: Path):
    device = torch.device("cpu")
    settings = ProfilerSettings(enabled=True, wait_steps=0, warmup_steps=1, active_steps=2)
    tracer = Tracer(settings, tmp_path, PartTimer(device, profiled=False), device, lambda _: None)
    with root(ROLLOUT, lambda: 7.0) as rollout:  # a clock that stands, so that all that is left is what was taken off
        for _ in range(3):
            tracer.begin("environment step")
            torch.ones(3).sum()
            tracer.end()
    assert len(tracer.paths) == 1
    assert tracer.took_s > 0
    assert rollout.seconds == pytest.approx(-tracer.took_s)


def test_training_and_a_collection_lie_in_one_trace_at_the_time_they_ran(
    tmp_path: Path, twelve: TrainingResult, capsys: pytest.CaptureFixture[str]
):
    (theirs,) = twelve.traces
    between = time.time()
    ours = collected(tmp_path)
    after = time.time()
    out = tmp_path / "all.json.gz"
    capsys.readouterr()
    assert main(["profile", "--merge", str(out), str(theirs), str(ours), "--json"]) == 0
    result = orjson.loads(capsys.readouterr().out)
    report = check_file(out)
    assert report.epoch_us is not None
    names = {each["pid"]: each["args"]["name"] for each in report.events if each["name"] == "process_name"}
    spans: dict[str, list[float]] = {}
    for each in report.events:
        if each["ph"] == "X":
            at = (report.epoch_us + each["ts"]) / 1e6
            spans.setdefault(names[each["pid"]], []).extend((at, at + each["dur"] / 1e6))
    slack_s = _CLOCKS_US / 1e6
    assert between - slack_s < min(spans["trace.json.gz: collector"])
    assert max(spans["trace.json.gz: collector"]) < after + slack_s
    # of torch there is also what it calls Spans or Traces; the process has the name it was started by
    of_torch = {name.partition(": ")[2]: each for name, each in spans.items() if name.startswith("profiler_trace_0")}
    (taught,) = (each for name, each in of_torch.items() if name not in ("Spans", "Traces"))
    assert (twelve.folder / "settings.json").stat().st_mtime - slack_s < min(taught)
    assert max(taught) < between + slack_s
    stretches = [each["name"] for each in report.events if each["ph"] == "X"]
    assert (stretches.count("rollout"), stretches.count("nim_calls")) == (10, 11)
    (note,) = result["notes"]
    assert note.startswith("profiler_trace_0.json.gz ends ")
    assert note.endswith(" before trace.json.gz begins: they do not overlap")
