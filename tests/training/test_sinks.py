"""TensorBoard and Weights & Biases, offline: they hold the numbers of metrics.jsonl, once each, also after a kill."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.patience import DEADLINE_S
from tests.support.small_run import Reference, children, metrics, same, small, trained, weights
from tests.support.wandb_file import read_wandb
from velodrome.training.loop import run_training

pytest.importorskip("tensorboard", reason='the extra "tensorboard" is not installed')
pytest.importorskip("wandb", reason='the extra "wandb" is not installed')

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of wandb's own


@pytest.fixture(autouse=True)
def nobody_is_logged_in(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory):
    home = tmp_path_factory.mktemp("home")
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("NETRC", str(home / "netrc"))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")  # so that it is unset again after the test


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.wandb"))


def wait_for_end(pid: int) -> None:
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        assert select.select([handle], [], [], DEADLINE_S)[0], f"process {pid} does not end"
        os.close(handle)


def columns(folder: Path, *names: str) -> list[tuple[int, float]]:
    return [(line["step"], *(line[name] for name in names)) for line in metrics(folder) if names[0] in line]


def test_an_offline_run_holds_the_numbers_of_the_metrics_file_and_no_weight_differs(
    tmp_path: Path, reference: Reference
):
    before, lines = children(), list[str]()
    more = {"output__wandb": True, "evaluator__evaluate_local": True, "evaluator__epoch_interval": 8}
    folder = trained(tmp_path, lines, **more).folder
    assert children() == before  # the process that wandb started has ended
    assert lines[0].startswith("output.wandb: not logged in, so the run is kept offline")
    config, rows = read_wandb(*files(folder))
    assert config["trainer"]["batch_size"] == 64
    assert [(row["_step"], row["train/grad_norm"], row["time/sps"]) for row in rows] == columns(
        folder, "grad_norm", "sps"
    )
    evaluations = [(line["step"], line["evaluation"]["agreement"]) for line in metrics(folder) if "evaluation" in line]
    assert [
        (row["_step"], row["evaluation_greedy/agreement"]) for row in rows if "evaluation_greedy/agreement" in row
    ] == evaluations
    assert len(evaluations) == 2
    assert same(weights(reference("mlp").folder), weights(folder))


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.support.small_run import small
from velodrome.training.loop import run_training
def stop():
    stop.calls += 1
    if stop.calls == 8:
        print(*Path(f"/proc/self/task/{os.getpid()}/children").read_text().split(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
stop.calls = 0
run_training(small(Path(sys.argv[2]), output__wandb=True), stop=stop)
"""


def test_a_killed_run_leaves_no_process_and_resumes_as_one_run(tmp_path: Path):
    command = [sys.executable, "-c", KILLED, str(Path(__file__).parents[2]), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, stdin=subprocess.DEVNULL)
    assert done.returncode == -signal.SIGKILL, done.stderr
    started = [int(pid) for pid in done.stdout.split()]
    assert started
    for pid in started:
        wait_for_end(pid)
    folder = trained(tmp_path, output__wandb=True).folder
    _, rows = read_wandb(*files(folder))
    assert [row["_step"] for row in rows] == list(range(64, 1025, 64))


def test_a_service_that_dies_is_reported_once_and_training_continues(tmp_path: Path, reference: Reference):
    before, calls = children(), 0

    def stop() -> bool:
        nonlocal calls
        calls += 1
        if calls == 4:
            for pid in children() - before:
                os.kill(pid, signal.SIGKILL)
        return False

    lines: list[str] = []
    result = run_training(small(tmp_path, output__wandb=True), lines.append, stop=stop)
    reports = [line for line in lines if "training continues without output.wandb" in line]
    assert len(reports) == 1
    assert reports[0].startswith("output.wandb: ")
    assert result.finished
    assert "WANDB_SERVICE" not in os.environ
    assert same(weights(reference("mlp").folder), weights(result.folder))


def read_back(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Every scalar by its tag, as TensorBoard would show it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    events: Any = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def column(folder: Path, name: str) -> list[tuple[int, float]]:
    return [(line["step"], pytest.approx(line[name], rel=1e-6)) for line in metrics(folder) if name in line]


def test_its_own_reader_finds_the_numbers_of_the_metrics_file_and_no_weight_differs(
    tmp_path: Path, reference: Reference
):
    more = {"output__tensorboard": True, "evaluator__evaluate_local": True, "evaluator__epoch_interval": 8}
    folder = trained(tmp_path, **more).folder
    scalars, lines = read_back(folder), metrics(folder)
    assert scalars["train/grad_norm"] == column(folder, "grad_norm")
    assert scalars["time/sps"] == column(folder, "sps")
    parts = [(line["step"], line["parts_ms"]["rollout/environment"]) for line in lines if "sps" in line]
    assert scalars["time/rollout/environment"] == [(step, pytest.approx(ms, rel=1e-6)) for step, ms in parts]
    evaluations = [line for line in lines if "evaluation" in line]
    steps = [line["step"] for line in evaluations]
    assert [step for step, _ in scalars["evaluation_greedy/mean_return"]] == [512, 1024] == steps
    assert scalars["evaluation_greedy/agreement"][-1][1] == pytest.approx(evaluations[-1]["evaluation"]["agreement"])
    assert {tag.partition("/")[0] for tag in scalars} == {"train", "time", "evaluation_greedy"}
    assert same(weights(reference("mlp").folder), weights(folder))


def test_a_resumed_run_shows_each_step_once(tmp_path: Path):
    trained(tmp_path, output__tensorboard=True, trainer__total_timesteps=512)
    folder = trained(tmp_path, output__tensorboard=True).folder
    assert [step for step, _ in read_back(folder)["train/loss"]] == list(range(64, 1025, 64))
