"""PyTorch's traces: whole epochs with their parts, clock and sums; training beside a collection in one trace."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.small_run import small, trained
from velodrome.training.loop import TrainingResult, run_training
from velodrome.training.run.train_folder import run_folder
from velodrome.training.run_profile import read_run
from velodrome.training.torch_trace import read_torch_trace


def profiler_keys(**values: object) -> dict[str, object]:
    return {f"trainer__profiler__{name}": value for name, value in {"enabled": True, **values}.items()}


def recorded(folder: Path, lines: list[str] | None = None, **profiler: object) -> TrainingResult:
    """A short run with this profiler; what it says about the profiler goes to `lines`."""
    said: list[str] = []
    short = {"trainer__total_timesteps": 512, "supervised__steps": 256}
    result = trained(folder, said, **{**short, **profiler_keys(**profiler)})
    if lines is not None:
        lines += [text for text in said if text.startswith("profiler: ")]
    return result


THREE = {"wait_steps": 0, "warmup_steps": 1, "active_steps": 3}


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    """A run whose profiler recorded 3 epochs; it evaluates after every second one."""
    more = {"evaluator__evaluate_local": True, "evaluator__epoch_interval": 2, "trainer__checkpoint_interval": 1}
    return trained(tmp_path_factory.mktemp("three"), **more, **profiler_keys(**THREE))


def test_a_run_is_reported_with_its_own_numbers(three: TrainingResult):
    outcome = three
    result = read_run(outcome.folder)
    own = outcome.timing["phases"]
    speeds = {name: (each["agent_steps"], pytest.approx(each["sps"])) for name, each in own.items()}
    assert {each["phase"]: (each["agent_steps"], each["sps"]) for each in result["phases"]} == speeds
    evaluation = dict(outcome.evaluation or {})
    assert (evaluation.pop("greedy"), evaluation.pop("actions")) == (True, "greedy")
    assert result["evaluation"] == {"greedy": {"step": 1024, **evaluation}}
    parts = [(each["depth"], each["name"], each["count"]) for each in read_torch_trace(three.traces[0])["parts"]]
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
    began_s = orjson.loads(three.traces[0].read_bytes())["baseTimeNanoseconds"] / 1e9
    times_s = [began_s + each["ts"] / 1e6 for each in ranges]  # of day: a clock of another epoch is off by days
    slack_s = 1.0
    assert (three.folder / "settings.json").stat().st_mtime - slack_s < min(times_s)
    assert max(times_s) < time.time() + slack_s


def events(path: Path) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = orjson.loads(path.read_bytes())["traceEvents"]
    return made


def event_names(path: Path) -> set[str]:
    return {str(each.get("name")) for each in events(path)}


def test_a_profiled_run_is_always_a_fresh_one_and_its_trace_holds_the_epochs_there_were_and_our_parts(tmp_path: Path):
    first = trained(tmp_path, trainer__total_timesteps=256, supervised__steps=256)
    before = {path: path.read_bytes() for path in first.folder.iterdir()}
    profiler = {"wait_steps": 5, "warmup_steps": 1, "active_steps": 9, "profile_memory": True}
    result, again = (recorded(tmp_path, **profiler) for _ in range(2))  # the same command twice
    assert {path: path.read_bytes() for path in first.folder.iterdir()} == before
    name, _, digits = first.folder.name.rpartition("_")
    assert [each.folder.name for each in (result, again)] == [f"{name}_2_{digits}", f"{name}_3_{digits}"]
    assert [each.traces for each in (result, again)] == [
        [each.folder / "profiler_trace_0.json"] for each in (result, again)
    ]
    assert result.timing["apart_s"]["profiler"] > 0
    names = event_names(result.traces[0])
    assert {"rollout", "environment step", "student_forward", "replay_store", "update", "backward"} <= names
    assert {name for name in names if name.startswith("epoch ")} == {"epoch 6", "epoch 7"}  # all that were left
    sizes = [each["args"]["Bytes"] for each in events(result.traces[0]) if each.get("name") == "[memory]"]
    assert min(sizes) < 0 < max(sizes)


def test_the_slowest_operators_are_shown(tmp_path: Path):
    lines: list[str] = []
    recorded(tmp_path, lines, wait_steps=0, warmup_steps=1, active_steps=1)
    counts = [line.split()[-1] for text in lines for line in text.splitlines() if "environment step" in line]
    assert counts == ["8"]


def test_a_run_that_ends_before_its_profiler_starts_says_so(tmp_path: Path):
    lines: list[str] = []
    assert recorded(tmp_path, lines, wait_steps=0, warmup_steps=9999).traces == []
    (line,) = lines
    parts = ("no trace", "there were 8 epochs", "trainer.profiler.wait_steps", "trainer.total_timesteps")
    assert [part for part in parts if part not in line] == []


def test_a_trace_that_cannot_be_written_is_reported_and_the_run_continues(tmp_path: Path):
    settings = small(tmp_path, **profiler_keys(wait_steps=1, warmup_steps=1, active_steps=3))
    folder, lines = run_folder(settings), list[str]()

    def stand_in_its_way() -> bool:
        (folder / "profiler_trace_0.json").mkdir(exist_ok=True)
        return False

    result = run_training(settings, lines.append, stop=stand_in_its_way)
    assert (result.finished, result.traces, result.folder) == (True, [], folder)
    (line,) = (text for text in lines if text.startswith("profiler: "))
    assert str(folder / "profiler_trace_0.json") in line
