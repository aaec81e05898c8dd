"""The same tasks and the same real model: in the process, and behind a llama.cpp server on both endpoints."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import DEADLINE_S

from velodrome.responses_api_models.local_model import weights

SERVER = Path(__file__).parent / "llama_server.py"
BEHIND_HTTP = """
policy_model:
  responses_api_models:
    openai_model: {openai_base_url: URL/v1, openai_api_key: none, openai_model: smollm2, endpoint: ENDPOINT}
"""
IN_PROCESS = "policy_model: {responses_api_models: {local_model: {parallel: 4}}}\n"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    path = weights.pull(progress=print)
    process = subprocess.Popen(
        [sys.executable, str(SERVER), str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait(timeout=DEADLINE_S)
        process.stdout.close()


def sums() -> str:
    rows = []
    for a in range(2, 8):
        params = {
            "input": [{"role": "user", "content": f"What is {a} + 1? Answer with the number only."}],
            "tools": [],
            "temperature": 0.0,
            "max_output_tokens": 8,
        }
        rows.append({"id": f"{a}+1", "responses_create_params": params, "expected_answer": str(a + 1)})
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["in process", "responses", "chat", "auto"])
def test_a_real_model_works_in_process_and_behind_a_llama_cpp_server(workplace: Any, server: str, where: str) -> None:
    workplace.scripted()
    behind = BEHIND_HTTP.replace("URL", server).replace("ENDPOINT", where)
    workplace.write("model.yaml", IN_PROCESS if where == "in process" else behind)
    workplace.write("tasks.jsonl", sums())

    done = workplace.run("ng_collect_rollouts +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=rollouts.jsonl")

    assert done.returncode == 0, done.stderr
    rows = workplace.rows()
    assert len(rows) == 6
    assert all(row["response"]["content"] for row in rows)
    assert all(row["usage"]["output_tokens"] > 0 and row["usage"]["input_tokens"] > 10 for row in rows)
    assert sum(row["reward"] for row in rows) >= 3, [row["response"]["content"] for row in rows]
