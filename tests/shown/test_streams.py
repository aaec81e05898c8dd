"""Standard streams that are closed or on a full disk, and few open files: no rollout is lost to them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from patience import DEADLINE_S

from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.serving.scripted import ScriptedServer

COLLECT = "ng_collect_rollouts +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=rollouts.jsonl"
MODEL = """
policy_model:
  responses_api_models:
    openai_model: {openai_base_url: URL, openai_api_key: sk-test, openai_model: scripted}
"""


@pytest.mark.parametrize("streams", ["<&-", "2>&-", "2>/dev/full", "<&- 2>&-"])
def test_what_only_the_conversation_is_lost_to_changes_nothing_else(workplace: Any, streams: str) -> None:
    workplace.scripted()
    workplace.tasks("tasks.jsonl", 12)

    done = workplace.run(f"{COLLECT} {streams}")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rollouts/kept"] == len(workplace.rows()) == 12


@pytest.mark.parametrize("streams", [">&-", ">/dev/full", "<&- >&- 2>&-"])
def test_a_result_that_cannot_be_printed_is_an_exit_code_and_the_rollouts_are_kept(
    workplace: Any, streams: str
) -> None:
    workplace.scripted()
    workplace.tasks("tasks.jsonl", 12)

    done = workplace.run(f"{COLLECT} {streams}")

    assert done.returncode == 1, done.stderr
    assert len(workplace.rows()) == 12
    assert json.loads((workplace.folder / "rollouts.metrics.json").read_text())["rollouts/kept"] == 12
    if "2>" not in streams:
        assert "requested 12 = kept 12 + failed 0  ->  rollouts.jsonl" in done.stderr
        assert "velo: stdout: " in done.stderr
        assert "Traceback" not in done.stderr
    again = workplace.run(f"velo metrics rollouts.jsonl {streams}")
    assert (again.returncode, "Traceback" in again.stderr) == (1, False)


def test_more_rollouts_in_flight_than_files_may_be_open_are_all_kept(workplace: Any) -> None:
    workplace.scripted()
    workplace.tasks("tasks.jsonl", 130)
    command = f"ulimit -n 64; exec {COLLECT} +num_samples_in_parallel=100"

    async def whole() -> tuple[int | None, str]:
        async with ScriptedServer(ScriptedModel(answers=["36"], latency_s=0.2)) as server:
            workplace.write("model.yaml", MODEL.replace("URL", server.url))
            process = await asyncio.create_subprocess_exec(
                *("bash", "-c", command),
                cwd=workplace.folder,
                env=workplace.environ,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )
            _, stderr = await asyncio.wait_for(process.communicate(), DEADLINE_S)
            return process.returncode, stderr.decode()

    code, stderr = asyncio.run(whole())

    assert code == 0, stderr
    assert "at most 32 connections at once, because this process may open 64 files" in stderr
    assert len(workplace.rows()) == 130
    assert sum(row["meta"]["timing"].get("retries", 0) for row in workplace.rows()) == 0
    assert (workplace.folder / "rollouts.metrics.json").exists()
