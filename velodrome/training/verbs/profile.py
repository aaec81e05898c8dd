"""`velo profile` of a training run or of a trace of PyTorch's profiler."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from velodrome.cli.streams import still_working
from velodrome.cli.tables import print_lines, print_text
from velodrome.errors import InputError
from velodrome.settings.files import way_to_file
from velodrome.timing.invisible import printed_json

METRICS = "metrics.jsonl"


def show_training(words: Sequence[str], *, as_json: bool, top: int) -> None:
    """One run or one trace on stdout."""
    from velodrome.training.run_profile import read_run, run_report
    from velodrome.training.torch_trace import read_torch_trace, torch_report

    if len(words) > 1:
        raise InputError("one training run or one PyTorch trace at a time")
    path = Path(words[0])
    if not os.path.exists(path):
        raise InputError(f"{path}: no such file{way_to_file(path)}")
    is_run = path.is_dir() or path.name == METRICS
    if path.is_dir() and not (path / METRICS).is_file():
        runs = sorted(each.parent for each in path.glob(f"*/{METRICS}"))
        if runs:
            raise InputError(f"{path}: a folder of {len(runs)} runs; give one of them, as in velo profile {runs[0]}")
        raise InputError(f"{path}: no {METRICS} in this folder; give a run's folder, or a file")
    with still_working(f"reading {path}"):
        result = read_run(path) if is_run else read_torch_trace(path)
    report = run_report if is_run else torch_report
    print_lines(printed_json(result)) if as_json else print_text(report(result, top=top))
