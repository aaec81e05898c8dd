"""Standard streams that are closed or on a full disk, and few open files: no rollout is lost to them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.hosted import hosted
from velodrome.responses_api_models.scripted_model.app import ScriptedModel

COLLECT = "ng_collect_rollouts +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=rollouts.jsonl"
MODEL = """
policy_model:
  responses_api_models:
    openai_model: {openai_base_url: URL, openai_api_key: sk-test, openai_model: scripted}
"""


@pytest.mark.parametrize("streams", ["2>/dev/full", ">/dev/full", "<&- >&- 2>&-"])
def test_a_stream_that_takes_nothing_costs_no_rollout_and_an_exit_code_if_the_result_is_lost(
    workplace: Any, streams: str
) -> None:
    workplace.scripted()
    workplace.tasks("tasks.jsonl", 12)

    done = workplace.run(f"{COLLECT} {streams}")

    lost = ">/dev/full" in streams.split() or ">&-" in streams.split()
    assert done.returncode == lost, done.stderr
    assert len(workplace.rows()) == 12
    metrics = (workplace.folder / "rollouts.metrics.json").read_text() if lost else done.stdout
    assert json.loads(metrics)["rollouts/kept"] == 12
    if streams == ">/dev/full":
        assert "requested 12 = kept 12 + failed 0  ->  rollouts.jsonl" in done.stderr
        assert "velo: stdout: " in done.stderr
        assert "Traceback" not in done.stderr


def test_more_rollouts_in_flight_than_files_may_be_open_are_all_kept(workplace: Any) -> None:
    workplace.scripted()
    workplace.tasks("tasks.jsonl", 130)
    with hosted("responses_api_models", lambda: ScriptedModel(answers=["36"], latency_s=0.2)) as url:
        workplace.write("model.yaml", MODEL.replace("URL", url))
        done = workplace.run(f"ulimit -n 64; exec {COLLECT} +num_samples_in_parallel=100")

    assert done.returncode == 0, done.stderr
    assert "at most 32 connections at once, because this process may open 64 files" in done.stderr
    assert len(workplace.rows()) == 130
    assert sum(row["meta"]["timing"].get("retries", 0) for row in workplace.rows()) == 0
