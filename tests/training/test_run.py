"""How a run is made, refused and taken up: its teacher, its folder, its devices."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from patience import DEADLINE_S
from small_run import metrics, small

from velodrome.errors import InputError, TrainError
from velodrome.training.loop import train
from velodrome.training.run.folder import folder
from velodrome.training.run.session import make_run


def quiet(_: str) -> None:
    return None


def test_a_teacher_that_is_only_kept_on_is_there_and_asked(tmp_path: Path):
    kept = {"supervised__steps": "0", "supervised__keep_coef": "5", "supervised__keep_steps": "1_024"}
    lines = metrics(train(small(tmp_path, **kept), quiet).folder)
    assert {line["phase"] for line in lines} == {"ppo"}
    assert all(line["parts_ms"]["rollout/teacher"] > 0 for line in lines)
    assert lines[-1]["loss"] < lines[0]["loss"]  # most of it is the cross-entropy to what the teacher said


@pytest.mark.parametrize("kept", [{"supervised__steps": "64"}, {"supervised__keep_coef": "1"}], ids=["taught", "kept"])
def test_an_environment_without_a_teacher_is_refused_one(tmp_path: Path, kept: dict[str, str]):
    given = {"env__name": "gymnasium:CartPole-v1", "supervised__steps": "0", "supervised__keep_steps": "64", **kept}
    with pytest.raises(InputError, match=r"gymnasium:CartPole-v1: has no teacher; give supervised.steps=0"):
        train(small(tmp_path, **given), quiet)
    assert list(tmp_path.iterdir()) == []


class Odd(gymnasium.Env[np.ndarray, int]):
    """Every reward is no number."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.zeros(2, np.float32), float("nan"), False, False, {}


def test_what_goes_wrong_before_the_first_rollout_is_told_of_the_run_and_leaves_nothing(tmp_path: Path):
    gymnasium.register("Odd-v0", Odd)
    settings = small(tmp_path, env__name="gymnasium:Odd-v0", supervised__steps="0")
    with pytest.raises(TrainError) as told:
        train(settings, quiet)
    assert str(told.value).startswith(f"{folder(settings)}: after agent step 0, gymnasium:Odd-v0 gave a reward")
    assert list(tmp_path.iterdir()) == []


def test_a_run_can_be_profiled_where_it_is(tmp_path: Path):
    first = train(small(tmp_path, trainer__total_timesteps="512"), quiet)
    said: list[str] = []
    profiled = {
        "supervised__profiled": "True",
        "trainer__profiler__enabled": "True",
        "trainer__profiler__wait_steps": "2",
    }
    again = train(small(tmp_path, **profiled), said.append)
    assert again.folder == first.folder
    assert [path.name for path in again.traces] == ["profiler_trace_0.json"]
    assert any("Rollout Timing Profile (agent_step=1024)" in text for text in said)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_one_line(tmp_path: Path):
    with pytest.raises(InputError, match=r"trainer.device=cuda: this torch sees no CUDA device"):
        make_run(small(tmp_path, trainer__device="cuda"), tmp_path, quiet)


def test_a_rollout_that_does_not_fit_into_memory_is_one_line(tmp_path: Path):
    with pytest.raises(InputError, match=r"trainer.batch_size=8000000000000: a rollout of it does not fit into memory"):
        make_run(small(tmp_path, trainer__batch_size="8_000_000_000_000"), tmp_path, quiet)


def test_a_trace_of_a_finished_run_is_said_not_to_be_made(tmp_path: Path):
    train(small(tmp_path), quiet)
    said: list[str] = []
    again = train(small(tmp_path, trainer__profiler__enabled="True"), said.append)
    assert again.traces == []
    assert said[-1] == "profiler: no trace: nothing was trained; a larger trainer.total_timesteps trains on"


ENDLESS = """
import os, signal, sys, threading, time
from pathlib import Path
sys.path.insert(0, {here!r})
from small_run import small
from velodrome.training.loop import train

def say(text):
    if text.startswith("evaluating"):
        os.kill(os.getpid(), signal.SIGINT)

more = dict(evaluator__evaluate_local="True", evaluator__episodes="100_000", evaluator__epoch_interval="1")
outcome = train(small(Path({folder!r}), trainer__checkpoint_interval="1_000", **more), say)
print(outcome.step, outcome.finished, outcome.evaluation)
"""


@pytest.mark.slow
def test_ctrl_c_in_the_middle_of_an_evaluation_leaves_it_and_keeps_what_was_learned(tmp_path: Path):
    code = ENDLESS.format(here=str(Path(__file__).parent), folder=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.stdout == "64 False None\n", done.stderr
    assert [path.name for path in tmp_path.glob("*/checkpoint_*")] == ["checkpoint_000000000064.pt"]
