"""TensorBoard: its own reader finds the numbers of metrics.jsonl, once each, also after a run was killed."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from patience import DEADLINE_S
from small_run import Reference, metrics, same, small, trained, weights

from velodrome.errors import InputError
from velodrome.training.loop import run_training
from velodrome.training.run.checkpoint import checkpoints
from velodrome.training.run.sinks import Sinks

pytest.importorskip("tensorboard", reason='the extra "tensorboard" is not installed')


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


def test_a_run_that_resumes_from_an_earlier_step_shows_every_step_once(tmp_path: Path):
    more = {"output__tensorboard": True, "trainer__checkpoint_interval": 6}
    folder = trained(tmp_path, **more).folder
    checkpoints(folder)[-1].unlink()  # as if it had been killed before the last one
    lines: list[str] = []
    trained(tmp_path, lines, **more)
    assert "resuming at agent step 768" in lines[0]
    assert len(list(folder.glob("events.out.tfevents.*"))) == 2
    assert [step for step, _ in column(folder, "grad_norm")] == list(range(64, 1025, 64))
    assert read_back(folder)["train/grad_norm"] == column(folder, "grad_norm")


def test_no_two_files_share_a_second_because_they_are_read_in_the_order_of_their_names(tmp_path: Path):
    for step in range(2):
        sinks = Sinks(small(tmp_path, output__tensorboard=True), tmp_path, step, print)
        for later in range(step + 1, 4):
            sinks.write({"step": later, "loss": 10.0 * step + later})
        sinks.close()
    assert len({path.name.split(".")[3] for path in tmp_path.iterdir()}) == 2
    assert read_back(tmp_path)["train/loss"] == [(1, 1.0), (2, 12.0), (3, 13.0)]


FULL = """
import resource, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from small_run import small
from velodrome.training.run.sinks import Sinks
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, 4_000))
sinks = Sinks(small(Path(sys.argv[2]), output__tensorboard=True), Path(sys.argv[2]), 0, print)
for step in range(100):
    sinks.write({"step": step, "loss": 1.0})
    sinks.flush()
sinks.close()
"""


def test_a_full_disk_is_reported_once_and_training_continues(tmp_path: Path):
    command = [sys.executable, "-c", FULL, str(Path(__file__).parent), str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.stdout.startswith("output.tensorboard: OSError: [Errno 27] File too large; training continues")
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


def test_without_the_package_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(InputError, match=r"output.tensorboard: .*velodrome\[tensorboard\]"):
        run_training(small(tmp_path, output__tensorboard=True))
    assert list(tmp_path.iterdir()) == []
