"""The loop: gates, what a run leaves, going on, and that nobody who only looks changes a weight."""

from __future__ import annotations

import io
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import orjson
import pytest
import torch
from patience import DEADLINE_S
from small_run import metrics, same, small, weights

from velodrome.errors import InputError, StorageError, TrainError
from velodrome.training.loop import train
from velodrome.training.run import checkpoint
from velodrome.training.run.folder import folder as folder_of

TIMES = ("sps", "rollout_ms", "update_ms", "parts_ms")


def quiet(_: str) -> None:
    return None


class Terminal(io.StringIO):
    """A stream that is drawn on."""

    def isatty(self) -> bool:
        return True


def test_a_run_goes_through_both_phases_and_leaves_its_folder(tmp_path: Path):
    outcome = train(small(tmp_path, evaluator__evaluate_local="True"), quiet)
    lines = metrics(outcome.folder)
    epochs = [line for line in lines if "phase" in line]
    assert (outcome.step, outcome.finished) == (1024, True)
    assert [line["step"] for line in epochs] == list(range(64, 1025, 64))
    assert [line["phase"] for line in epochs] == ["supervised"] * 8 + ["ppo"] * 8
    assert {"settings.json", "metrics.jsonl", "checkpoint_000000001024.pt"} <= {
        path.name for path in outcome.folder.iterdir()
    }
    assert outcome.evaluation is not None
    assert outcome.evaluation["episodes"] == 4
    assert set(outcome.timing["phases"]) == {"supervised", "ppo"}


def test_a_gate_inside_a_rollout_cuts_it_short(tmp_path: Path):
    outcome = train(small(tmp_path, supervised__steps="500", trainer__total_timesteps="700"), quiet)
    found = [(line["step"], line["phase"]) for line in metrics(outcome.folder)]
    # 8 agents act at once: the first step at or after 500 is 504, after 700 it is 704.
    assert found[6:] == [
        (448, "supervised"),
        (504, "supervised"),
        (568, "ppo"),
        (632, "ppo"),
        (696, "ppo"),
        (704, "ppo"),
    ]


@pytest.mark.parametrize(
    "looks",
    [
        {"supervised__profiled": "True", "trainer__timing_interval": "2"},
        {
            "trainer__profiler__enabled": "True",
            "trainer__profiler__wait_steps": "2",
            "trainer__profiler__with_stack": "True",
        },
        {"output__dashboard": "True"},
        {"evaluator__evaluate_local": "True", "evaluator__epoch_interval": "2"},
        {"trainer__checkpoint_interval": "1"},
    ],
    ids=["timing", "profiler", "dashboard", "evaluation", "checkpoints"],
)
@pytest.mark.parametrize("core", ["mlp", "lstm"])
def test_looking_leaves_the_weights_as_they_would_have_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: dict[str, str], core: str
):
    plain = train(small(tmp_path / "plain", policy__core=core), quiet)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    looked = train(small(tmp_path / "looked", policy__core=core, **looks), quiet)
    drawn = [line.split()[0] for line in terminal.getvalue().splitlines() if "of 1,024 steps (" in line]
    assert drawn[:1] == (["supervised"] if "output__dashboard" in looks else [])
    assert same(weights(plain.folder), weights(looked.folder))


def test_the_timing_tree_is_printed_every_so_many_rollouts(tmp_path: Path):
    said: list[str] = []
    train(small(tmp_path, supervised__profiled="True", trainer__timing_interval="4"), said.append)
    tables = [text for text in said if "Rollout Timing Profile" in text]
    assert [text.splitlines()[1] for text in tables] == [
        f"Rollout Timing Profile (agent_step={step})" for step in (256, 512, 768, 1024)
    ]


@pytest.mark.parametrize("core", ["mlp", "lstm"])
def test_a_run_in_two_parts_is_the_run_in_one(tmp_path: Path, core: str):
    whole = train(small(tmp_path / "whole", policy__core=core), quiet)
    half = train(small(tmp_path / "parts", policy__core=core, trainer__total_timesteps="576"), quiet)
    assert half.finished
    said: list[str] = []
    rest = train(small(tmp_path / "parts", policy__core=core), said.append)
    assert [text.splitlines()[0] for text in said] == [
        f"{rest.folder}: 512 agent steps supervised, then 512 agent steps ppo; going on from agent step 576; "
        "8 agents at once on cpu"
    ]
    assert same(weights(whole.folder), weights(rest.folder))
    clean = [{key: value for key, value in line.items() if key not in TIMES} for line in metrics(rest.folder)]
    assert clean == [{key: value for key, value in line.items() if key not in TIMES} for line in metrics(whole.folder)]


def test_a_finished_run_is_not_run_again(tmp_path: Path):
    first = train(small(tmp_path), quiet)
    before = (first.folder / "metrics.jsonl").read_bytes()
    said: list[str] = []
    again = train(small(tmp_path), said.append)
    assert (again.step, again.finished) == (1024, True)
    assert (again.folder / "metrics.jsonl").read_bytes() == before
    assert said == [f"{first.folder}: is at agent step 1,024 already, of 1,024: nothing is left to train"]


def test_a_finished_run_is_evaluated_again_only_if_that_is_asked_for_in_another_way(tmp_path: Path):
    first = train(small(tmp_path, evaluator__evaluate_local="True"), quiet)
    same_again = train(small(tmp_path, evaluator__evaluate_local="True"), quiet)
    more = train(small(tmp_path, evaluator__evaluate_local="True", evaluator__episodes="6"), quiet)
    assert first.evaluation is not None
    assert more.evaluation is not None
    assert same_again.evaluation == first.evaluation
    assert more.folder == first.folder
    assert (first.evaluation["episodes"], more.evaluation["episodes"]) == (4, 6)
    assert [line["step"] for line in metrics(first.folder) if "evaluation" in line] == [1024, 1024]


def test_what_the_teacher_earns_where_it_leads_is_not_the_students_return(tmp_path: Path):
    outcome = train(small(tmp_path, trainer__total_timesteps="1_536"), quiet)
    lines = metrics(outcome.folder)
    taught = [line for line in lines if "teacher_return" in line]
    assert {line["phase"] for line in taught} == {"supervised"}
    assert sum(line["teacher_return"] for line in taught) > sum(line["mean_return"] for line in taught)
    assert {line["episodes"] for line in taught} == {2}  # of 4 environments; the teacher leads the other two
    assert all(line["episodes"] == 4 for line in lines if line["phase"] == "ppo" and "mean_return" in line)


def test_a_teacher_that_is_kept_on_is_asked_and_is_in_the_loss(tmp_path: Path):
    kept = {"supervised__keep_coef": "0.5", "supervised__keep_steps": "256"}
    alone, helped = (train(small(tmp_path / name, **more), quiet) for name, more in (("alone", {}), ("helped", kept)))
    lines = [[line for line in metrics(run.folder) if line["phase"] == "ppo"] for run in (alone, helped)]
    asked = [[line["parts_ms"]["rollout/teacher"] > 0 for line in each] for each in lines]
    assert asked == [[False] * 8, [True] * 4 + [False] * 4]
    first = [each[0] for each in lines]  # the same rollout, but for half of a cross-entropy of about log 5
    assert 0.2 < first[1]["loss"] - first[0]["loss"] < 1.2


def test_the_parts_of_an_epoch_add_up_to_its_time(tmp_path: Path):
    for line in metrics(train(small(tmp_path), quiet).folder):
        for whole in ("rollout", "update"):
            parts = [
                ms for name, ms in line["parts_ms"].items() if name.startswith(f"{whole}/") and name.count("/") == 1
            ]
            assert sum(parts) == pytest.approx(line[f"{whole}_ms"])


@pytest.mark.parametrize("core", ["mlp", "lstm"])
def test_half_precision_trains_and_is_the_same_again(tmp_path: Path, core: str):
    runs = [
        train(small(tmp_path / name, policy__core=core, trainer__mixed_precision="True"), quiet) for name in ("a", "b")
    ]
    whole = train(small(tmp_path / "whole", policy__core=core), quiet)
    assert same(weights(runs[0].folder), weights(runs[1].folder))
    assert not same(weights(runs[0].folder), weights(whole.folder))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of its own
def test_a_compiled_student_learns_nearly_the_same(tmp_path: Path):
    more = {"trainer__total_timesteps": "256", "supervised__steps": "128"}
    plain = weights(train(small(tmp_path / "plain", **more), quiet).folder)
    compiled = weights(train(small(tmp_path / "compiled", trainer__compile="True", **more), quiet).folder)
    for name, weight in plain.items():
        assert torch.allclose(weight, compiled[name], atol=1e-3), name


RUN = """
import sys
from pathlib import Path
sys.path.insert(0, {here!r})
from small_run import small
from velodrome.training.loop import train
train(small(Path({folder!r}), **{more!r}), print)
"""


def started(folder: Path, more: dict[str, str]) -> subprocess.Popen[bytes]:
    code = RUN.format(here=str(Path(__file__).parent), folder=str(folder), more=more)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("extractor_hub", {"trainer__total_timesteps": "12_000", "supervised__steps": "6_000"}),
        ("lstm", {"trainer__total_timesteps": "6_000", "supervised__steps": "3_000", "policy__core": "lstm"}),
        (
            "gymnasium",
            {"env__name": "gymnasium:CartPole-v1", "supervised__steps": "0", "trainer__total_timesteps": "8_000"},
        ),
    ],
)
def test_a_run_killed_at_any_moment_and_gone_on_is_the_run_that_was_not(
    tmp_path: Path, name: str, more: dict[str, str]
):
    whole = train(small(tmp_path / "whole", **more), quiet)
    moments = random.Random(name)
    kills = 0
    for _ in range(20):
        process = started(tmp_path / "killed", more)
        path = tmp_path / "killed" / whole.folder.name / "metrics.jsonl"
        seen = path.stat().st_size if path.exists() else 0
        wanted = seen + moments.randrange(1, 12_000)
        while process.poll() is None and not (path.exists() and path.stat().st_size > wanted) and kills < 3:
            time.sleep(0.001)
        if process.poll() is None and kills < 3:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        out, _ = process.communicate(timeout=DEADLINE_S)
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, out.decode()
    assert process.returncode == 0
    assert kills == 3
    assert same(weights(whole.folder), weights(tmp_path / "killed" / whole.folder.name))


def test_a_loss_that_is_no_number_ends_the_run_and_the_last_checkpoint_is_good(tmp_path: Path):
    good = train(small(tmp_path, trainer__total_timesteps="192"), quiet)
    state = checkpoint.read(checkpoint.found(good.folder)[-1])
    state["policy"]["heads.bias"][0] = float("nan")
    checkpoint.save(good.folder, 192, state)
    with pytest.raises(TrainError, match=r"after agent step 192, .* is not a finite number.*trainer.learning_rate"):
        train(small(tmp_path), quiet)
    assert [path.name for path in checkpoint.found(good.folder)][-1] == "checkpoint_000000000192.pt"


def test_a_damaged_checkpoint_costs_an_interval_and_not_the_run(tmp_path: Path):
    whole = train(small(tmp_path / "whole"), quiet)
    half = train(small(tmp_path / "hurt", trainer__total_timesteps="576"), quiet)
    newest = checkpoint.found(half.folder)[-1]
    newest.write_bytes(newest.read_bytes()[:-1])
    said: list[str] = []
    again = train(small(tmp_path / "hurt"), said.append)
    assert "damaged" in said[0]
    assert same(weights(whole.folder), weights(again.folder))


FULL = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
"""


@pytest.mark.slow
def test_a_full_disk_is_one_clear_line_and_the_run_goes_on_when_there_is_room(tmp_path: Path):
    whole = train(small(tmp_path / "whole"), quiet)
    code = FULL + RUN.format(here=str(Path(__file__).parent), folder=str(tmp_path / "full"), more={})
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"velodrome.errors.{StorageError.__name__}")
    assert "cannot be written (File too large)" in last
    again = train(small(tmp_path / "full"), quiet)
    assert same(weights(whole.folder), weights(again.folder))


@pytest.mark.slow
def test_a_disk_with_no_room_for_kernels_is_one_clear_line(tmp_path: Path):
    code = FULL + RUN.format(here=str(Path(__file__).parent), folder=str(tmp_path / "full"), more={})
    cold = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kernels")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S, check=False, env=cold
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"velodrome.errors.{StorageError.__name__}")
    assert "cannot be written (File too large)" in last


def test_two_processes_do_not_train_one_run(tmp_path: Path):
    from velodrome.training.run.place import held

    settings = small(tmp_path)
    with held(settings), pytest.raises(InputError, match="another process trains this run"):
        train(settings, quiet)


def test_ctrl_c_ends_after_the_epoch_and_the_run_goes_on(tmp_path: Path):
    far = 10**9  # days away: what ends the run is Ctrl-C
    folder = folder_of(small(tmp_path / "stopped"))
    path = folder / "metrics.jsonl"
    process = started(tmp_path / "stopped", {"trainer__total_timesteps": str(far)})
    try:
        while process.poll() is None and not (path.exists() and path.stat().st_size):
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
    assert process.returncode == 0, out.decode()
    stopped = checkpoint.read(checkpoint.found(folder)[-1])["step"]
    assert stopped == metrics(folder)[-1]["step"] < far
    more = {"trainer__total_timesteps": str(stopped + 128)}
    again, whole = (train(small(tmp_path / name, **more), quiet) for name in ("stopped", "whole"))
    assert (again.folder, again.step, whole.step) == (folder, stopped + 128, stopped + 128)
    assert same(weights(whole.folder), weights(again.folder))


def test_the_trace_holds_named_steps_and_our_parts(tmp_path: Path):
    outcome = train(
        small(
            tmp_path,
            trainer__profiler__enabled="True",
            trainer__profiler__wait_steps="2",
            trainer__profiler__warmup_steps="2",
            trainer__profiler__active_steps="9",
        ),
        quiet,
    )
    (path,) = outcome.traces
    assert path == outcome.folder / "profiler_trace_0.json"
    names = {event.get("name") for event in orjson.loads(path.read_bytes())["traceEvents"]}
    assert {"student_forward", "teacher", "nim_calls", "replay_store", "environment", "backward"} <= names
    assert {name.rpartition(" ")[0] for name in names if name and name[-1:].isdigit()} >= {"environment step", "update"}
