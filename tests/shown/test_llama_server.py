"""The same tasks and the same real model: in the process, and behind a llama.cpp server on both endpoints."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.patience import DEADLINE_S
from velodrome.responses_api_models.local_model import weights

SERVER = Path(__file__).parent / "llama_server.py"
BEHIND_HTTP = """
policy_model:
  responses_api_models:
    openai_model: {openai_base_url: URL/v1, openai_api_key: none, openai_model: smollm2, endpoint: ENDPOINT}
"""
IN_PROCESS = "policy_model: {responses_api_models: {local_model: {parallel: 4}}}\n"


@pytest.fixture
def server() -> Iterator[str]:
    path = weights.pull(progress=print)
    command = [sys.executable, str(SERVER), str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.communicate(timeout=DEADLINE_S)


@pytest.mark.slow
def test_a_real_model_works_in_process_and_behind_a_llama_cpp_server(workplace: Any, server: str) -> None:
    workplace.scripted()
    params = {"tools": [], "temperature": 0.0, "max_output_tokens": 8}
    asks = {a: f"What is {a} + 1? Answer with the number only." for a in range(2, 8)}
    workplace.write_rows(
        "tasks.jsonl",
        (
            {"id": f"{a}+1", "responses_create_params": {"input": ask, **params}, "expected_answer": str(a + 1)}
            for a, ask in asks.items()
        ),
    )
    for where in ("in process", "responses", "chat"):
        behind = BEHIND_HTTP.replace("URL", server).replace("ENDPOINT", where)
        workplace.write("model.yaml", IN_PROCESS if where == "in process" else behind)

        done = workplace.run(f"velo collect tasks.jsonl -o '{where}.jsonl'")

        assert done.returncode == 0, done.stderr
        rows = workplace.rows(f"{where}.jsonl")
        assert len(rows) == 6
        assert all(row["usage"]["output_tokens"] > 0 and row["usage"]["input_tokens"] > 10 for row in rows)
        assert sum(row["reward"] for row in rows) >= 3, [row["response"]["content"] for row in rows]
