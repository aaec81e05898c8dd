"""How long a person waits: for `velo --help`, and for the first rollout of a collection."""

from __future__ import annotations

from pathlib import Path

from benchmarks import workload
from benchmarks.commands import velo
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
    return {"help_s": spread(helps), "first_rollout_s": spread(firsts), "first_rollout_cpu_s": spread(cpus)}
