"""docs/training.md and what a run reads and writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.pages import read, rows, section


@pytest.mark.slow
def test_every_field_of_a_line_of_metrics_and_every_part_of_an_epoch_is_documented(tmp_path: Path):
    """By a run that goes through everything."""
    from tests.support.small_run import trained
    from velodrome.training.evaluate import Evaluation

    both = {"supervised__steps": 64, "supervised__kickstart_steps": 64, "supervised__kickstart_coef": 1}
    more = {"policy__core": "lstm", "trainer__mixed_precision": True, "evaluator__evaluate_local": True}
    folder = trained(tmp_path, trainer__total_timesteps=192, env__max_steps=8, **both, **more).folder
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]

    evaluated = {*Evaluation((1.0,), (1,), 0.5, unfinished=1).as_json()}
    evaluated |= {name for line in lines for name in line.get("evaluation", {})}
    documented = rows(section(read("training.md"), "metrics.jsonl"))
    assert documented.keys() == {name for line in lines for name in line} | {f"evaluation.{name}" for name in evaluated}
    timed = {name for line in lines for name in line.get("parts_ms", {})}
    assert rows(section(read("training.md"), "parts_ms")).keys() == timed
