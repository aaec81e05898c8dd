"""Memory and pace of a long collection, and how soon it continues: `velo collect`, stopped at N, then run again.

The model is scripted and in the process, so that a million rollouts take minutes. The later commands, three of them,
find N rollouts in the output and may run a few tasks more; their median counts, because a wait is wall time.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import workload
from benchmarks.commands import velo
from benchmarks.summary import Json

_NEW_TASKS = 16
_RESUMES = 3


def run(folder: Path, sizes: tuple[int, ...], say: Callable[[str], None]) -> list[Json]:
    """One row a size."""
    return [_one(folder, size, say) for size in sizes]


def _one(folder: Path, size: int, say: Callable[[str], None]) -> Json:
    tasks, output = folder / "tasks.jsonl", folder / "rollouts.jsonl"
    workload.write_tasks(tasks, range(size + _RESUMES * _NEW_TASKS))
    command = ["collect", *workload.scripted_settings(), f"+input_jsonl_fpath={tasks}", f"+output_jsonl_fpath={output}"]
    made = velo(*command, f"+limit={size}", cwd=folder, output=output, every_s=0.05)
    steady, steady_cpu = (steadiness(made.growth, by) for by in (0, 1))
    line_bytes = output.stat().st_size / size
    again = [
        velo(*command, f"+limit={size + more * _NEW_TASKS}", cwd=folder, output=output)
        for more in range(1, _RESUMES + 1)
    ]
    first_s = statistics.median(each.first_s or 0.0 for each in again)
    first_cpu_s = statistics.median(each.first_cpu_s or 0.0 for each in again)
    total_s = statistics.median(each.total_s for each in again)
    peak_mb = max(each.peak_mb for each in again)
    for left in (tasks, *folder.glob("rollouts.*")):
        left.unlink()
    say(
        f"{size:>9,} rollouts: {made.total_s:.1f} s, peak {made.peak_mb:.0f} MB; resumed: first new rollout after "
        f"{first_s:.2f} s ({first_cpu_s:.2f} s of CPU), all over after {total_s:.2f} s, peak {peak_mb:.0f} MB; "
        f"last tenth over second, rollouts/s {steady:.2f}, per second of CPU {steady_cpu:.2f}"
    )
    return {
        "rollouts": size,
        "line_bytes": line_bytes,
        "collect_s": made.total_s,
        "collect_peak_mb": made.peak_mb,
        "steady": steady,
        "steady_cpu": steady_cpu,
        "resume_first_s": first_s,
        "resume_all_first_s": [each.first_s or 0.0 for each in again],
        "resume_first_cpu_s": first_cpu_s,
        "resume_total_s": total_s,
        "resume_peak_mb": peak_mb,
    }


def steadiness(growth: Sequence[tuple[float, float, int]], by: int) -> float:
    """The pace of the last tenth of the output over that of its second tenth, by the clock (0) or by CPU (1)."""
    sizes = [each[2] for each in growth]

    def took(tenth: int) -> float:
        first, last = (bisect_left(sizes, part * sizes[-1] / 10) for part in (tenth - 1, tenth))
        return (growth[last][by] - growth[first][by]) / (sizes[last] - sizes[first])

    return took(2) / took(10)


def slope(rows: list[Json], name: str) -> float:
    """How much a figure grows with one more rollout."""
    first, last = rows[0], rows[-1]
    grown: float = (last[name] - first[name]) / (last["rollouts"] - first["rollouts"])
    return grown


def projected(rows: list[Json], name: str, rollouts: int) -> float:
    """The figure at so many rollouts, on the line through the smallest and the largest size measured."""
    result: float = rows[-1][name] + slope(rows, name) * (rollouts - rows[-1]["rollouts"])
    return result
