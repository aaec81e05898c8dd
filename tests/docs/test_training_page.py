"""docs/training.md and what a run reads and writes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pages import read, rows, section

from velodrome.training.assignments import apply
from velodrome.training.settings import RunSettings

pytestmark = pytest.mark.slow  # a run that goes through everything


@pytest.fixture(scope="module")
def metric_lines(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What a run writes that goes through everything, and what replaces lines that disappeared."""
    from velodrome.training.loop import run_training
    from velodrome.training.run.metrics_log import MetricsLog

    folder = tmp_path_factory.mktemp("train")
    values = {"env.name": "extractor_hub_10", "env.num_envs": 4, "env.agents": 2, "env.max_steps": 8}
    values |= {"policy.hidden": 16, "trainer.batch_size": 64, "trainer.minibatch_size": 32}
    values |= {"supervised.steps": 64, "supervised.kickstart_steps": 64, "supervised.kickstart_coef": 1}
    values |= {"policy.core": "lstm", "trainer.mixed_precision": True}
    values |= {"trainer.total_timesteps": 192, "evaluator.episodes": 2, "output.train_dir": str(folder)}
    run = run_training(apply(RunSettings(), values))
    MetricsLog(folder / "gone.jsonl", 100).close()
    lines = [*(run.folder / "metrics.jsonl").read_text().splitlines(), (folder / "gone.jsonl").read_text()]
    return [json.loads(line) for line in lines]


def test_every_field_of_a_line_of_metrics_is_documented(metric_lines: list[dict[str, Any]]):
    from velodrome.training.evaluate import Evaluation

    seen = {name for line in metric_lines for name in line}
    evaluated = {*Evaluation((1.0,), (1,), 0.5, unfinished=1).as_json()}
    evaluated |= {name for line in metric_lines for name in line.get("evaluation", {})}
    documented = rows(section(read("training.md"), "metrics.jsonl"))
    assert documented.keys() == {*seen, *(f"evaluation.{name}" for name in evaluated)}


def test_every_part_of_an_epoch_is_documented(metric_lines: list[dict[str, Any]]):
    timed = {name for line in metric_lines for name in line.get("parts_ms", {})}
    assert rows(section(read("training.md"), "parts_ms")).keys() == timed
