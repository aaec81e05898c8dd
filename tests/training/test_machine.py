"""A machine's abilities: what it lacks is said and computed another way, and a run that moves is told what holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import DEADLINE_S
from small_run import SMALL, metrics

from velodrome.training.machine import lstm_in_half
from velodrome.training.run import checkpoint

COMMAND = [
    str(Path(sys.executable).parent / "velo"),
    "train",
    "cvc.thinky_supervised_to_ppo",
    "run=moved",
    "policy.core=lstm",
]
NOTE = "trainer.mixed_precision=True: this CPU has no LSTM in bfloat16, so that layer is computed in float32"
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
