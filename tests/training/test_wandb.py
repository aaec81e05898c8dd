"""Weights & Biases, offline: its file holds the numbers of metrics.jsonl, once each, also after a run was killed."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from patience import DEADLINE_S
from small_run import Reference, metrics, same, small, trained, weights
from wandb_file import read_wandb

from velodrome.errors import InputError
from velodrome.training.loop import run_training
from velodrome.training.run.checkpoint import checkpoints
from velodrome.training.run.sinks import Sinks

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


def children() -> set[int]:
    return set(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))


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


def test_a_run_that_resumes_from_an_earlier_step_is_one_run_with_each_step_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("WANDB_MODE", "offline")
    more = {"output__wandb": True, "trainer__checkpoint_interval": 6}
    folder = trained(tmp_path, **more).folder
    first = read_wandb(*files(folder))[1]
    name = files(folder)[0].name
    checkpoints(folder)[-1].unlink()  # as if it had been killed before the last one
    lines: list[str] = []
    trained(tmp_path, lines, **more)
    assert "resuming at agent step 768" in lines[0]
    second = read_wandb(*files(folder))[1]
    assert [path.name for path in files(folder)] == [name]
    assert [row["_step"] for row in second] == [row["_step"] for row in first] == list(range(64, 1025, 64))
    assert [(row["_step"], row["train/grad_norm"], row["time/sps"]) for row in second] == columns(
        folder, "grad_norm", "sps"
    )


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from small_run import small
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
    command = [sys.executable, "-c", KILLED, str(Path(__file__).parent), str(tmp_path)]
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


def test_a_service_that_does_not_start_is_reported_and_training_continues(tmp_path: Path):
    (tmp_path / "wandb").write_text("in the way")
    lines: list[str] = []
    sinks = Sinks(small(tmp_path, output__wandb=True), tmp_path, 0, lines.append)
    sinks.write({"step": 1, "loss": 2.0})
    sinks.close()
    assert "training continues without output.wandb" in lines[-1]
    assert len(lines) == 2  # the first says that it would be offline


def test_without_the_package_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(InputError, match=r"output.wandb: .*velodrome\[wandb\]"):
        run_training(small(tmp_path, output__wandb=True))
    assert list(tmp_path.iterdir()) == []
