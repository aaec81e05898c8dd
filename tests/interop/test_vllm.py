"""A real vLLM server with a tiny model: every turn of a rollout has the ids and log-probabilities that vLLM made."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

import velodrome as velo
from tests.interop.programs import run
from tests.interop.servers import serving
from tests.support.running import free_port
from tests.support.running import http as request
from velodrome import http
from velodrome.records.conversation import items
from velodrome.resources_servers.calculator.app import Calculator
from velodrome.responses_api_models.conversion import chat_messages

Json = dict[str, Any]

HERE = Path(__file__).parent
TOKENS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
QUESTION = [{"role": "user", "content": "What is 15% of 240?"}]
PARAMETERS = {"type": "object", "properties": {"expression": {"type": "string", "enum": ["1", "2"]}}}
TOOL = {"type": "function", "name": "calculator", "parameters": PARAMETERS, "strict": True}
LOGPROBS = {"include": ["message.output_text.logprobs"]}
CALLING = {"tools": [TOOL], "tool_choice": "required", "max_output_tokens": 200, **LOGPROBS}
QUIET = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_DO_NOT_TRACK": "1"}
SMALL = {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    run("vllm", HERE / "vllm_model.py", folder, **QUIET, OMP_NUM_THREADS="1")
    return folder


@pytest.fixture(scope="module")
def vllm(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    arguments = ["-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--served-model-name", "tiny"]
    arguments += ["--host", "127.0.0.1", "--port", str(port), "--max-model-len", "512", "--max-num-seqs", "8"]
    arguments += ["--enforce-eager", "--dtype", "float32", "--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    log = tmp_path_factory.mktemp("vllm") / "log"
    with serving("vllm", *arguments, port=port, ready="/health", log=log, **QUIET, **SMALL) as url:
        yield f"{url}/v1"


def agent(url: str, name: str = "tiny", *, max_steps: int = 1, extra: Json | None = None, **settings: Any) -> Any:
    asked = {"return_token_ids": True, **(extra or {})}
    policy = velo.OpenAI(url, name, extra_body=asked, max_retries=0, **settings)
    return velo.SimpleAgent(model=policy, environment=Calculator(), max_steps=max_steps, offer_tools=False)


def task(number: int, **params: Any) -> Json:
    sampled = {"temperature": 1.0, "max_output_tokens": 20, "seed": number}
    return {
        "id": f"t{number}",
        "expected_answer": "36",
        "responses_create_params": {"input": QUESTION, **sampled, **params},
    }


def rollouts(url: str, tasks: list[Json], **settings: Any) -> list[Json]:
    collected = asyncio.run(velo.collect(tasks, agent(url, **settings), parallel=4, progress=False))
    assert collected.failed == 0, collected.reasons
    return [orjson.loads(line) for line in collected.lines]


def turns(rows: list[Json]) -> Iterator[tuple[list[Json], Json]]:
    """Each turn of the model with the chat messages that it answers."""
    for row in rows:
        for at, message in enumerate(row["output"]):
            if message["role"] == "assistant":
                yield chat_messages([*row["responses_create_params"]["input"], *items(row["output"][:at])]), message


def held(rows: list[Json], vllm: str, *, log_probs: bool = True) -> list[Json]:
    """The turns, whose ids are those of vLLM's tokenizer and whose log-probabilities are as many."""
    made = list(turns(rows))
    for before, turn in made:
        assert turn["prompt_token_ids"] == posted(vllm, "tokenize", messages=before)["tokens"]
        text = posted(vllm, "detokenize", tokens=turn["generation_token_ids"])["prompt"]
        text = text.replace("<|start|>", "").replace("<|end|>", "")
        if "tool_calls" in turn:
            assert turn["tool_calls"][0]["name"] in text
        else:
            assert turn["content"] == text
        if log_probs:
            assert len(turn["generation_log_probs"]) == len(turn["generation_token_ids"])
            assert max(turn["generation_log_probs"]) <= 0
    return [turn for _, turn in made]


def posted(vllm: str, path: str, **body: Any) -> Json:
    """What another endpoint of vLLM answers."""
    status, answer = request(vllm.removesuffix("v1") + path, {"model": "tiny", **body})
    assert status == 200, answer
    return dict(answer)


@pytest.mark.parametrize("endpoint", ["auto", "chat", "responses"])
def test_ids_and_log_probabilities_are_those_of_vllm(vllm: str, endpoint: str, caplog: Any) -> None:
    rows = rollouts(vllm, [task(number, **LOGPROBS) for number in range(6)], endpoint=endpoint)
    assert len(held(rows, vllm)) == 6
    assert not caplog.records


def test_every_turn_of_a_conversation_with_tools_has_its_ids(vllm: str, caplog: Any) -> None:
    rows = rollouts(vllm, [task(number, **CALLING) for number in range(4)], max_steps=2)
    made = held(rows, vllm)
    assert len(made) > len(rows)  # some went on after a tool's result
    assert len([turn for turn in made if "tool_calls" in turn]) >= len(rows)
    assert not caplog.records


def test_what_responses_lacks_is_said(vllm: str, caplog: Any) -> None:
    rows = rollouts(vllm, [task(number, **CALLING) for number in range(2)], endpoint="responses")
    made = held(rows, vllm, log_probs=False)  # a call of vLLM's Responses has no log-probabilities
    assert [turn["generation_log_probs"] for turn in made] == [None, None]
    [warning] = caplog.records
    assert "generation_log_probs" in warning.getMessage()


@pytest.mark.parametrize("endpoint", ["chat", "responses"])
def test_the_end_of_a_stream_has_the_ids(vllm: str, endpoint: str) -> None:
    async def streamed() -> Json:
        policy = velo.OpenAI(vllm, "tiny", endpoint=endpoint, extra_body={"return_token_ids": True})
        try:
            asked = {**task(1)["responses_create_params"], **LOGPROBS}
            return [event async for event in policy.stream(asked)][-1]["response"]["output"][-1]
        finally:
            await http.close_shared()

    item = asyncio.run(streamed())
    message = {"role": "assistant", "content": item["content"][0]["text"], **{name: item[name] for name in TOKENS}}
    row = {"responses_create_params": {"input": QUESTION}, "output": [message]}
    held([row], vllm)


def test_the_command_line_records_ids_and_resumes(vllm: str, tmp_path: Path) -> None:
    tasks = [{**task(number, **LOGPROBS), "agent_ref": {"name": "calculator_simple_agent"}} for number in range(3)]
    (tmp_path / "tasks.jsonl").write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in tasks))
    paths = [
        "resources_servers/calculator/configs/calculator.yaml",
        "responses_api_models/openai_model/configs/openai_model.yaml",
    ]
    command = [sys.executable, "-m", "velodrome.cli.main", "collect", f"+config_paths=[{','.join(paths)}]"]
    command += ["+input_jsonl_fpath=tasks.jsonl", "+output_jsonl_fpath=out.jsonl", f"+policy_base_url={vllm}"]
    command += ["+policy_api_key=none", "+policy_model_name=tiny", "+responses_create_params.return_token_ids=true"]
    for limit in (2, 3):
        ended = subprocess.run([*command, f"+limit={limit}"], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        assert "no-token-ids" not in ended.stdout + ended.stderr
    rows = [orjson.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
    assert len(rows) == 3
    held(rows, vllm)
