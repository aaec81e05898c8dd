"""A machine's abilities: what it lacks is said and computed another way, and a run that moves is told what holds."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from patience import DEADLINE_S
from small_run import SMALL, metrics, small

from velodrome.training.loop import run_training
from velodrome.training.machine import lstm_in_half
from velodrome.training.run import checkpoint
from velodrome.training.run.session import make_session
from velodrome.training.run.warmup import precision_line

COMMAND = [
    str(Path(sys.executable).parent / "velo"),
    "train",
    "cvc.thinky_supervised_to_ppo",
    "run=moved",
    "policy.core=lstm",
]
NOTE = "trainer.mixed_precision=True: this CPU has no LSTM in bfloat16, so that layer is computed in float32"
MEASURED = re.compile(
    r"trainer\.mixed_precision=True: on this CPU bfloat16 takes (?P<factor>[\d.]+) times as long as float32 "
    r"\(measured: forward and backward of 32 agent steps\)(?P<way>; trainer\.mixed_precision=False is faster)?"
)
OLDER = {"ONEDNN_MAX_CPU_ISA": "AVX"}  # any x86 CPU, played as one without AVX-512


def trained(folder: Path, steps: int, **environ: str) -> tuple[dict[str, Any], list[str]]:
    """The result and the lines on stderr of `velo train`."""
    values = {**SMALL, "output.train_dir": str(folder), "trainer.mixed_precision": "True"}
    words = [f"{name}={value}" for name, value in {**values, "trainer.total_timesteps": str(steps)}.items()]
    done = subprocess.run(
        COMMAND + words, env={**os.environ, **environ}, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr.splitlines()


@pytest.mark.slow
def test_a_cpu_without_a_half_precision_lstm_trains_it_in_float32_and_says_so_everywhere(tmp_path: Path):
    result, lines = trained(tmp_path, 512, **OLDER)
    folder = Path(result["folder"])
    assert lines.count(NOTE) == 1
    assert [MEASURED.fullmatch(line) is not None for line in lines].count(True) == 1
    assert result["lstm_precision"] == "float32"
    assert {line["lstm_precision"] for line in metrics(folder)} == {"float32"}
    state = checkpoint.read(checkpoint.checkpoints(folder)[-1])
    assert (state["lstm_precision"], state["machine"]["ONEDNN_MAX_CPU_ISA"]) == ("float32", "AVX")

    result, lines = trained(tmp_path, 1024)  # on this machine as it is
    precision = "bfloat16" if lstm_in_half() else "float32"
    assert (result["step"], result["finished"], result["lstm_precision"]) == (1024, True, precision)
    (moved,) = [line for line in lines if "another kind of machine" in line]
    assert f"ONEDNN_MAX_CPU_ISA AVX -> {os.environ.get('ONEDNN_MAX_CPU_ISA', 'unset')}" in moved
    assert [line["step"] for line in metrics(folder)] == list(range(64, 1025, 64))
    assert [line["lstm_precision"] for line in metrics(folder)] == ["float32"] * 8 + [precision] * 8


@pytest.mark.parametrize("core", ["mlp", "lstm"])
def test_what_half_precision_costs_is_measured_and_that_changes_nothing(tmp_path: Path, core: str):
    run = make_session(small(tmp_path, policy__core=core, trainer__mixed_precision=True), tmp_path, lambda _: None)

    def state() -> list[torch.Tensor]:
        numbers = torch.from_numpy(np.random.get_state()[1].astype(np.int64))
        memory = [] if run.lstm_state is None else [run.lstm_state]
        gradients = [weight.grad for weight in run.policy.parameters() if weight.grad is not None]
        world = [torch.from_numpy(run.env.obs), *memory, *gradients, torch.get_rng_state(), numbers]
        return [each.clone() for each in (*run.policy.state_dict().values(), *world)]

    before = state()
    match = MEASURED.fullmatch(precision_line(run))
    assert match is not None
    assert (float(match["factor"]) > 1) == (match["way"] is not None)
    assert all(torch.equal(a, b) for a, b in zip(before, state(), strict=True))
    run.close()


@pytest.mark.parametrize("half", [True, False])
def test_it_is_said_before_the_first_epoch_if_half_precision_is_asked_for(tmp_path: Path, half: bool):
    lines: list[str] = []
    more = {"trainer__total_timesteps": 64, "supervised__profiled": True, "trainer__timing_interval": 1}
    run_training(small(tmp_path, trainer__mixed_precision=half, **more), lines.append)
    assert [at for at, line in enumerate(lines) if MEASURED.fullmatch(line)] == ([1] if half else [])
    assert "Rollout Timing Profile" in lines[2 if half else 1]
