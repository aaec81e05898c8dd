"""Memory of a long collection, and how soon a long one goes on: `velo collect`, stopped at N, then run again.

The model is scripted and in the process, so that a million rollouts take minutes. The second command finds N rollouts
in the output and a few new tasks in the input.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks import workload
from benchmarks.commands import velo
from benchmarks.summary import Json

_NEW_TASKS = 16


def run(folder: Path, sizes: tuple[int, ...], say: Callable[[str], None]) -> list[Json]:
    """One row a size."""
    return [_one(folder, size, say) for size in sizes]


def _one(folder: Path, size: int, say: Callable[[str], None]) -> Json:
    tasks, output = folder / "tasks.jsonl", folder / "rollouts.jsonl"
    workload.write_tasks(tasks, range(size + _NEW_TASKS))
    command = ["collect", *workload.scripted_settings(), f"+input_jsonl_fpath={tasks}", f"+output_jsonl_fpath={output}"]
    made = velo(*command, f"+limit={size}", cwd=folder)
    line_bytes = output.stat().st_size / size
    again = velo(*command, cwd=folder, output=output)
    for left in (tasks, *folder.glob("rollouts.*")):
        left.unlink()
    say(
        f"{size:>9,} rollouts: {made.total_s:.1f} s, peak {made.peak_mb:.0f} MB; resumed: first new rollout after "
        f"{again.first_s:.2f} s, all over after {again.total_s:.2f} s, peak {again.peak_mb:.0f} MB"
    )
    return {
        "rollouts": size,
        "line_bytes": line_bytes,
        "collect_s": made.total_s,
        "collect_peak_mb": made.peak_mb,
        "resume_first_s": again.first_s,
        "resume_total_s": again.total_s,
        "resume_peak_mb": again.peak_mb,
    }


def slope(rows: list[Json], name: str) -> float:
    """How much a figure grows with one more rollout."""
    first, last = rows[0], rows[-1]
    grown: float = (last[name] - first[name]) / (last["rollouts"] - first["rollouts"])
    return grown


def projected(rows: list[Json], name: str, rollouts: int) -> float:
    """The figure at so many rollouts, on the line through the smallest and the largest size measured."""
    found: float = rows[-1][name] + slope(rows, name) * (rollouts - rows[-1]["rollouts"])
    return found
