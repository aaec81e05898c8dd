"""A run that was killed, stopped, damaged or made longer continues bit for bit as if nothing had happened."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from patience import DEADLINE_S
from small_run import Reference, metrics, same, small, trained, weights

from velodrome.training.loop import run_training
from velodrome.training.run import checkpoint

TIMES = ("sps", "rollout_ms", "update_ms", "parts_ms")
RUN = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from small_run import trained
trained(Path(sys.argv[2]), **dict(word.split("=") for word in sys.argv[3:]))
"""


def started(folder: Path, more: dict[str, object]) -> subprocess.Popen[bytes]:
    words = [f"{name}={value}" for name, value in more.items()]
    command = [sys.executable, "-c", RUN, str(Path(__file__).parent), str(folder), *words]
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
    assert same(weights(whole.folder), weights(trained(tmp_path / "parts", **parts).folder))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("hub", {"trainer__total_timesteps": 9_000, "supervised__steps": 4_500}),
        (
            "gymnasium",
            {"env__name": "gymnasium:CartPole-v1", "supervised__steps": 0, "trainer__total_timesteps": 8_000},
        ),
    ],
)
def test_a_run_killed_three_times_at_any_moment_ends_with_the_same_weights(
    tmp_path: Path, name: str, more: dict[str, object]
):
    whole = trained(tmp_path / "whole", **more)
    path = tmp_path / "killed" / whole.folder.name / "metrics.jsonl"
    moments = random.Random(name)
    kills = 0
    for _ in range(20):
        process = started(tmp_path / "killed", more)
        wanted = (path.stat().st_size if path.exists() else 0) + moments.randrange(1, 12_000)
        while process.poll() is None and not (path.exists() and path.stat().st_size > wanted) and kills < 3:
            time.sleep(0.001)
        if process.poll() is None and kills < 3:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        out, _ = process.communicate(timeout=DEADLINE_S)
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, out.decode()
    assert (process.returncode, kills) == (0, 3)
    assert same(weights(whole.folder), weights(path.parent))


def test_a_run_that_is_stopped_ends_after_its_epoch_and_resumes(tmp_path: Path, reference: Reference):
    epochs = 0

    def stop() -> bool:
        nonlocal epochs
        epochs += 1
        return epochs > 5

    stopped = run_training(small(tmp_path), stop=stop)
    assert (stopped.step, stopped.finished) == (320, False)
    assert checkpoint.checkpoints(stopped.folder)[-1].name == "checkpoint_000000000320.pt"
    assert same(weights(reference("mlp").folder), weights(trained(tmp_path).folder))


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


def test_a_damaged_checkpoint_costs_an_interval_and_not_the_run(tmp_path: Path, reference: Reference):
    half = trained(tmp_path, trainer__total_timesteps=576)
    newest = checkpoint.checkpoints(half.folder)[-1]
    newest.write_bytes(newest.read_bytes()[:-1])
    lines: list[str] = []
    again = trained(tmp_path, lines)
    assert "damaged" in lines[0]
    assert same(weights(reference("mlp").folder), weights(again.folder))
