"""A run that was killed, stopped, damaged or made longer continues bit for bit as if nothing had happened."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.small_run import Reference, kill_as_it_grows, metrics, same, small, trained, weights
from velodrome.training.loop import run_training
from velodrome.training.run import checkpoint

TIMES = ("sps", "rollout_ms", "update_ms", "parts_ms")
RUN = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.support.small_run import trained
trained(Path(sys.argv[2]), **dict(word.split("=") for word in sys.argv[3:]))
"""


def started(folder: Path, more: dict[str, object]) -> subprocess.Popen[bytes]:
    words = [f"{name}={value}" for name, value in more.items()]
    command = [sys.executable, "-c", RUN, str(Path(__file__).parents[2]), str(folder), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@pytest.mark.parametrize("core", ["mlp", "lstm"])
def test_a_run_in_two_parts_is_the_run_in_one(tmp_path: Path, reference: Reference, core: str):
    half = trained(tmp_path, policy__core=core, trainer__total_timesteps=576)
    assert half.finished
    lines: list[str] = []
    rest = trained(tmp_path, lines, policy__core=core)
    assert "resuming at agent step 576" in lines[0]
    assert same(weights(reference(core).folder), weights(rest.folder))
    parts, whole = (
        [{key: value for key, value in line.items() if key not in TIMES} for line in metrics(folder)]
        for folder in (rest.folder, reference(core).folder)
    )
    assert parts == whole


def test_a_run_stopped_while_it_is_kickstarted_annealed_and_scaled_is_the_run_in_one(tmp_path: Path):
    parts = {
        "supervised__kickstart_coef": 0.5,
        "trainer__anneal_lr": True,
        "trainer__normalize_rewards": True,
    }
    whole = trained(tmp_path / "whole", **parts)
    epochs = iter(range(13))  # 8 of them supervised; no checkpoint is due where it stops
    half = run_training(small(tmp_path / "parts", **parts), stop=lambda: next(epochs, None) is None)
    assert (half.finished, half.step) == (False, 832)
    assert checkpoint.checkpoints(half.folder)[-1].name == "checkpoint_000000000832.pt"
    assert same(weights(whole.folder), weights(trained(tmp_path / "parts", **parts).folder))


def test_an_environment_without_a_state_is_brought_back_to_where_it_was_at_a_checkpoint_by_time(tmp_path: Path):
    more: dict[str, object] = {"env__name": "gymnasium:Pendulum-v1", "supervised__steps": 0}
    more |= {"trainer__normalize_rewards": True, "policy__core": "lstm", "trainer__checkpoint_interval": 10}
    whole = trained(tmp_path / "whole", **more, trainer__checkpoint_seconds=0)
    epochs = iter(range(13))
    settings = small(tmp_path / "parts", **more, trainer__checkpoint_seconds=1e-9)
    half = run_training(settings, stop=lambda: next(epochs, None) is None)
    names = [path.name for path in checkpoint.checkpoints(half.folder)]
    assert names == ["checkpoint_000000000768.pt", "checkpoint_000000000832.pt"]  # each epoch; two are kept
    (half.folder / names[1]).unlink()  # as if it had been killed before
    assert same(weights(whole.folder), weights(trained(tmp_path / "parts", **more).folder))


@pytest.mark.slow
def test_a_run_killed_three_times_at_any_moment_ends_with_the_same_weights(tmp_path: Path):
    more = {"trainer__total_timesteps": 9_000, "supervised__steps": 4_500}
    whole = trained(tmp_path / "whole", **more)
    path = tmp_path / "killed" / whole.folder.name / "metrics.jsonl"
    moments = [random.Random(kill).randrange(1, 12_000) for kill in range(3)]
    kill_as_it_grows(
        lambda: started(tmp_path / "killed", more), lambda: path.stat().st_size if path.exists() else 0, moments
    )
    assert same(weights(whole.folder), weights(path.parent))


def test_a_stop_during_an_evaluation_abandons_it_and_keeps_what_was_learned(tmp_path: Path):
    calls = 0

    def stop() -> bool:
        nonlocal calls
        calls += 1
        return calls > 10  # the first is before the epoch, the others are steps of the evaluation

    more = {"evaluator__evaluate_local": True, "evaluator__epoch_interval": 1, "trainer__checkpoint_interval": 1_000}
    result = run_training(small(tmp_path, **more), stop=stop)
    assert (result.step, result.finished, result.evaluation) == (64, False, None)
    assert [path.name for path in tmp_path.glob("*/checkpoint_*")] == ["checkpoint_000000000064.pt"]
