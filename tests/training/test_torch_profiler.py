"""PyTorch's traces: whole epochs with their parts, clock and sums; training beside a collection in one trace."""

from __future__ import annotations

import asyncio
import gzip
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
import torch
from small_run import Reference, copied, metrics, small, trained
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
from velodrome.timing.spans import current
from velodrome.training.loop import TrainingResult, run_training

_CLOCKS_US = 1_000_000  # for a machine that stands still between two looks; a clock of another epoch is off by days


def recorded(folder: Path, lines: list[str] | None = None, **profiler: object) -> TrainingResult:
    """A short run with this profiler; what it says about the profiler goes to `lines`."""
    values = {f"trainer__profiler__{name}": value for name, value in {"enabled": True, **profiler}.items()}
    said: list[str] = []
    result = trained(folder, said, trainer__total_timesteps=512, supervised__steps=256, **values)
    if lines is not None:
        lines += [text for text in said if text.startswith("profiler: ")]
    return result


THREE = {"wait_steps": 0, "warmup_steps": 1, "active_steps": 3, "with_stack": True, "compress": True}


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    """A run whose profiler recorded 3 epochs, with stacks; it evaluates after every second one."""
    values = {f"trainer__profiler__{name}": value for name, value in {"enabled": True, **THREE}.items()}
    more = {"evaluator__evaluate_local": True, "evaluator__epoch_interval": 2, "trainer__checkpoint_interval": 1}
    return trained(tmp_path_factory.mktemp("three"), **more, **values)


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


def test_a_run_is_reported_with_its_own_numbers(three: TrainingResult):
    outcome = three
    result = read_training(outcome.folder)
    own = outcome.timing["phases"]
    assert {each["phase"]: each["agent_steps"] for each in result["phases"]} == {
        name: each["agent_steps"] for name, each in own.items()
    }
    for each in result["phases"]:
        assert each["sps"] == pytest.approx(own[each["phase"]]["sps"])
    evaluation = dict(outcome.evaluation or {})
    assert (evaluation.pop("greedy"), evaluation.pop("actions")) == (True, "greedy")
    assert result["evaluation"] == {"greedy": {"step": 1024, **evaluation}}
    assert result["series"]["loss"]["last"] == [each for each in metrics(outcome.folder) if "loss" in each][-1]["loss"]
    parts = [(each["depth"], each["name"], each["count"]) for each in result["parts"]["parts"]]
    # 8 environment steps and 2 minibatches per epoch, and nothing of the evaluations between epochs
    assert [part for part in parts if part[0] == 0] == [(0, "epoch", 3)]
    assert {part for part in parts if part[0] == 1} == {(1, "rollout", 3), (1, "update", 3)}
    # (episodes of 24 steps: once there are values of last observations)
    whole = {(2, "environment step", 24), (3, "student_forward", 25), (4, "nim_calls", 24), (3, "environment", 24)}
    whole |= {(2, "advantages", 3), (2, "forward", 15), (2, "backward", 6), (2, "optimizer", 6)}
    assert whole <= set(parts)


def test_only_epochs_are_recorded_and_they_are_recorded_whole(three: TrainingResult):
    operators = [each for each in events(three.traces[0]) if each.get("cat") == "cpu_op"]
    ranges = [each for each in events(three.traces[0]) if str(each.get("name")).startswith("epoch ")]
    assert [each["name"] for each in ranges] == ["epoch 1", "epoch 2", "epoch 3"]

    def within(each: dict[str, Any]) -> bool:
        return any(outer["ts"] <= each["ts"] <= outer["ts"] + outer["dur"] for outer in ranges)

    assert len(operators) > 1000
    assert [each["name"] for each in operators if not within(each)] == []


def events(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    made: list[dict[str, Any]] = orjson.loads(gzip.decompress(data) if path.suffix == ".gz" else data)["traceEvents"]
    return made


def event_names(path: Path) -> set[str]:
    return {str(each.get("name")) for each in events(path)}


def test_a_run_can_be_profiled_where_it_is_and_the_trace_holds_the_epochs_there_were_and_our_parts(tmp_path: Path):
    first = trained(tmp_path, trainer__total_timesteps=256, supervised__steps=256)
    result = recorded(tmp_path, wait_steps=1, warmup_steps=1, active_steps=9)
    assert result.traces == [first.folder / "profiler_trace_0.json"]
    names = event_names(result.traces[0])
    assert {"rollout", "environment step", "student_forward", "replay_store", "update", "backward"} <= names
    assert {name for name in names if name.startswith("epoch ")} == {"epoch 6", "epoch 7"}  # all that were left


def test_every_trace_has_a_table_of_its_own_epochs_and_one_that_was_moved_leaves_the_others(tmp_path: Path):
    lines: list[str] = []
    two = {"wait_steps": 0, "warmup_steps": 1, "active_steps": 1, "repeat": 2}
    first = recorded(tmp_path, lines, **two)
    counts = [line.split()[-1] for text in lines for line in text.splitlines() if "environment step" in line]
    assert counts == ["8", "8"]
    assert [path.name for path in first.traces] == ["profiler_trace_0.json", "profiler_trace_1.json"]
    first.traces[0].unlink()
    before = first.traces[1].read_bytes()
    values = {f"trainer__profiler__{name}": value for name, value in {"enabled": True, **two}.items()}
    second = trained(tmp_path, trainer__total_timesteps=768, supervised__steps=256, **values)
    assert [path.name for path in second.traces] == ["profiler_trace_2.json", "profiler_trace_3.json"]
    assert first.traces[1].read_bytes() == before


def test_without_a_warm_up_the_first_epoch_is_the_first_of_the_trace(tmp_path: Path):
    (path,) = recorded(tmp_path, wait_steps=0, warmup_steps=0, active_steps=2).traces
    assert {name for name in event_names(path) if name.startswith("epoch ")} == {"epoch 0", "epoch 1"}


@pytest.mark.parametrize("late", [{"wait_steps": 9999}, {"wait_steps": 0, "warmup_steps": 9999}])
def test_a_run_that_ends_before_its_profiler_starts_says_so(tmp_path: Path, late: dict[str, object]):
    lines: list[str] = []
    assert recorded(tmp_path, lines, **late).traces == []
    (line,) = lines
    assert line.startswith("profiler: no trace")
    assert "there were 8 epochs" in line
    assert "trainer.profiler.wait_steps" in line
    assert "trainer.total_timesteps" in line


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
    large = {"wait_steps": 0, "warmup_steps": 1, "active_steps": 4, "record_shapes": True, "with_stack": True}
    assert recorded(tmp_path, lines, max_mb=1, **large).traces == []
    assert list(next(tmp_path.iterdir()).glob("profiler*")) == []
    assert "trainer.profiler.max_mb=1" in lines[0]


def test_allocations_are_in_the_trace_if_profile_memory_is_set(tmp_path: Path):
    (path,) = recorded(tmp_path, wait_steps=0, warmup_steps=1, active_steps=1, profile_memory=True).traces
    events = orjson.loads(path.read_bytes())["traceEvents"]
    sizes = [each["args"]["Bytes"] for each in events if each.get("name") == "[memory]"]
    assert min(sizes) < 0 < max(sizes)


def test_writing_a_trace_is_no_time_of_a_rollout_or_update(tmp_path: Path):
    around: list[object] = []

    def say(text: str) -> None:
        if text.startswith("profiler: "):
            around.append(current())

    keys = {f"trainer__profiler__{name}": value for name, value in {"wait_steps": 1, "active_steps": 1}.items()}
    result = run_training(small(tmp_path, trainer__profiler__enabled=True, **keys), say)
    assert (len(result.traces), around) == (1, [None])  # no span was open
    assert result.timing["apart_s"]["profiler"] > 0


def test_training_and_a_collection_lie_in_one_trace_at_the_time_they_ran(
    tmp_path: Path, three: TrainingResult, capsys: pytest.CaptureFixture[str]
):
    (theirs,) = three.traces
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
    assert (three.folder / "settings.json").stat().st_mtime - slack_s < min(taught)
    assert max(taught) < between + slack_s
    stretches = [each["name"] for each in report.events if each["ph"] == "X"]
    assert (stretches.count("rollout"), stretches.count("nim_calls")) == (13, 24)
    (note,) = result["notes"]
    assert note.startswith("profiler_trace_0.json.gz ends ")
    assert note.endswith(" before trace.json.gz begins: they do not overlap")
