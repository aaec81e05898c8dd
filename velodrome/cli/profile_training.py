"""`velo profile` of a training run, of a PyTorch trace, and of several traces made one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from velodrome.cli.streams import reassured
from velodrome.cli.tables import print_lines, print_text
from velodrome.errors import InputError
from velodrome.settings.files import file_problem, way_to_file
from velodrome.timing.invisible import printed_json

Json = dict[str, Any]

METRICS = "metrics.jsonl"


def of_training(words: Sequence[str]) -> bool:
    """Whether something of training is given: a run's folder, its metrics, or a trace."""
    from velodrome.profiling.traces.trace_events import is_trace

    alone = len(words) == 1 and os.path.isdir(words[0])  # not Path's, which raises if the name is too long
    return alone or any(
        Path(word).name == METRICS or os.path.isfile(Path(word) / METRICS) or is_trace(Path(word)) for word in words
    )


def show_training(words: Sequence[str], *, as_json: bool, top: int) -> None:
    """One run or one trace on stdout."""
    from velodrome.profiling.traces.torch_trace import read_torch_trace
    from velodrome.profiling.traces.training import read_training
    from velodrome.profiling.traces.training_text import torch_report, training_report

    if len(words) > 1:
        raise InputError("one training run or one PyTorch trace at a time; --merge OUT.json makes several traces one")
    path = Path(words[0])
    if not os.path.exists(path):
        raise InputError(f"{path}: no such file{way_to_file(path)}")
    is_run = path.is_dir() or path.name == METRICS
    if path.is_dir() and not (path / METRICS).is_file():
        runs = sorted(each.parent for each in path.glob(f"*/{METRICS}"))
        if runs:
            raise InputError(f"{path}: a folder of {len(runs)} runs; give one of them, as in velo profile {runs[0]}")
        raise InputError(f"{path}: no {METRICS} in this folder; give a run's folder, or a file")
    with reassured(f"reading {path}"):
        result = read_training(path) if is_run else read_torch_trace(path)
    report = training_report if is_run else torch_report
    print_lines(printed_json(result)) if as_json else print_text(report(result, top=top))


def show_merged(out: Path, words: Sequence[str], *, as_json: bool) -> None:
    """Write the merged trace, and say on stdout how the files lie to each other."""
    from velodrome.collector.watch.tracing import check_room
    from velodrome.profiling.traces.trace_merge import merge
    from velodrome.profiling.traces.training_text import merge_report

    paths = [Path(word) for word in words]
    wrong = [problem for path in paths if (problem := file_problem(path)) is not None]
    if len(paths) < 2:
        wrong.append("--merge OUT.json takes two traces or more, as in velo profile --merge all.json a.json b.json.gz")
    if wrong:
        raise InputError(*wrong)
    if out.resolve() in [path.resolve() for path in paths]:
        raise InputError(f"{out}: one of the traces to merge; give --merge another name to write to")
    check_room(out)
    with reassured(f"merging into {out}"):
        result = merge(out, paths)
    print_lines(printed_json(result)) if as_json else print_text(merge_report(result))
