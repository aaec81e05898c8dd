"""How long a person waits: for `velo --help`, a first rollout and the first lines of `velo train`."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from benchmarks import workload
from benchmarks.commands import VELO, velo
from benchmarks.summary import Json, spread


def run(folder: Path, times: int) -> Json:
    """Both, in turn."""
    helps, firsts, cpus = [], [], []
    tasks, output = folder / "tasks.jsonl", folder / "rollouts.jsonl"
    workload.write_tasks(tasks, range(1))
    command = ["collect", *workload.scripted_settings(), f"+input_jsonl_fpath={tasks}", f"+output_jsonl_fpath={output}"]
    for _ in range(times):
        helps.append(velo("--help", cwd=folder).total_s)
        first = velo(*command, cwd=folder, output=output)
        firsts.append(first.first_s or 0.0)
        cpus.append(first.first_cpu_s or 0.0)
        for left in folder.glob("rollouts.*"):
            left.unlink()
    screens = [first_screen(folder) for _ in range(times)]
    return {
        "help_s": spread(helps),
        "first_rollout_s": spread(firsts),
        "first_rollout_cpu_s": spread(cpus),
        "first_screen_s": spread([wall_s for wall_s, _ in screens]),
        "first_screen_cpu_s": spread([cpu_s for _, cpu_s in screens]),
    }


def first_screen(folder: Path) -> tuple[float, float]:
    """Seconds, and of CPU, until `velo train` has printed its plan; it is stopped there."""
    command = [VELO, "train", "cvc.thinky_supervised_to_ppo", "run=screen"]
    began = time.perf_counter()
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        while b"loading torch" not in (line := process.stderr.readline()):
            if not line:
                raise RuntimeError("velo train said nothing: is torch installed?")
        took_s = time.perf_counter() - began
        ticks = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        process.kill()
    return took_s, sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
