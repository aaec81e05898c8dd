"""TensorBoard: its own reader finds the numbers of metrics.jsonl, once each, also after a run was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from patience import DEADLINE_S
from small_run import metrics, same, small, weights

from velodrome.training.loop import train

needs_it = pytest.mark.skipif(find_spec("tensorboard") is None, reason='the extra "tensorboard" is not installed')


def read_back(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Every scalar by its tag, as TensorBoard would show it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    found: Any = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    found.Reload()
    return {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def column(folder: Path, name: str) -> list[tuple[int, float]]:
    return [(line["step"], pytest.approx(line[name], rel=1e-6)) for line in metrics(folder) if name in line]


@needs_it
def test_its_own_reader_finds_the_numbers_of_the_metrics_file(tmp_path: Path):
    given = {"output__tensorboard": "True", "evaluator__evaluate_local": "True", "evaluator__epoch_interval": "8"}
    outcome = train(small(tmp_path, **given), lambda _: None)
    found = read_back(outcome.folder)
    assert found["train/grad_norm"] == column(outcome.folder, "grad_norm")
    assert found["time/sps"] == column(outcome.folder, "sps")
    parts = [
        (line["step"], line["parts_ms"]["rollout/environment"]) for line in metrics(outcome.folder) if "sps" in line
    ]
    assert found["time/rollout/environment"] == [(step, pytest.approx(ms, rel=1e-6)) for step, ms in parts]
    told = [line for line in metrics(outcome.folder) if "evaluation" in line]
    assert [step for step, _ in found["evaluation/mean_return"]] == [512, 1024] == [line["step"] for line in told]
    assert found["evaluation/agreement"][-1][1] == pytest.approx(told[-1]["evaluation"]["agreement"])
    assert {tag.partition("/")[0] for tag in found} == {"train", "time", "evaluation"}


@needs_it
def test_it_leaves_the_weights_as_they_would_have_been(tmp_path: Path):
    plain = train(small(tmp_path / "plain"), lambda _: None)
    shown = train(small(tmp_path / "shown", output__tensorboard="True"), lambda _: None)
    assert same(weights(plain.folder), weights(shown.folder))


STOPPED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {here!r})
from small_run import small
from velodrome.training.loop import train
def say(text):  # the third table stands after epoch 15, the last checkpoint after 12
    said.append("Rollout Timing Profile" in text)
    if sum(said) == 3:
        {end}
said = []
train(small(Path({folder!r}), **{more!r}), say)
"""


@needs_it
@pytest.mark.parametrize(
    ("end", "code"),
    [("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL), ("raise SystemExit(7)", 7)],
    ids=["killed", "stopped"],
)
def test_a_run_that_is_taken_up_again_shows_every_step_once(tmp_path: Path, end: str, code: int):
    more = {"output__tensorboard": "True", "supervised__profiled": "True", "trainer__timing_interval": "5"}
    more["trainer__checkpoint_interval"] = "4"
    here = str(Path(__file__).parent)
    script = STOPPED.format(here=here, folder=str(tmp_path), more=more, end=end)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == code, done.stderr.decode()
    outcome = train(small(tmp_path, **more), lambda _: None)
    assert len(list(outcome.folder.glob("events.out.tfevents.*"))) == 2
    assert [step for step, _ in column(outcome.folder, "grad_norm")] == list(range(64, 1025, 64))
    assert read_back(outcome.folder)["train/grad_norm"] == column(outcome.folder, "grad_norm")


@needs_it
def test_no_two_files_share_a_second_because_they_are_read_in_the_order_of_their_names(tmp_path: Path):
    from velodrome.training.run.board import Board

    for step in range(3):
        board = Board(tmp_path, step)
        for later in range(step + 1, 4):
            board.add({"step": later, "loss": 10.0 * step + later})
        board.close()
    assert len({path.name.split(".")[3] for path in tmp_path.iterdir()}) == 3
    assert read_back(tmp_path)["train/loss"] == [(1, 1.0), (2, 12.0), (3, 23.0)]


FULL = """
import resource, signal, sys
from pathlib import Path
from velodrome.errors import StorageError
from velodrome.training.run.board import Board
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, 4_000))
board = Board(Path(sys.argv[1]), 0)
try:
    for step in range(100):
        board.add({"step": step, "loss": 1.0})
        board.settle()
except StorageError as error:
    print(str(error).partition(" ")[2])
board.close()
"""


@needs_it
def test_a_full_disk_is_one_clear_line(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], check=True, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.stdout.startswith("cannot be written (File too large). The last checkpoint is good;")
    assert "Traceback" not in done.stderr


def test_without_the_package_one_line_says_what_to_install(tmp_path: Path):
    code = (
        f"import sys; sys.modules['tensorboard'] = None; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from pathlib import Path\nfrom small_run import small\n"
        "from velodrome.errors import InputError\nfrom velodrome.training.loop import train\n"
        f"try:\n    train(small(Path({str(tmp_path)!r}), output__tensorboard='True'))\n"
        "except InputError as error:\n    print(error)"
    )
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=DEADLINE_S, env=env
    )
    assert done.stdout == 'output.tensorboard: needs the package "tensorboard" (pip install "velodrome[tensorboard]")\n'
