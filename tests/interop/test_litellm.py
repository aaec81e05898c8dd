"""The real litellm proxy between the collector and a server that answers as vLLM does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

import velodrome as velo
from tests.interop.programs import environment
from tests.interop.servers import serving
from tests.interop.upstream import IDS, PROMPT, Upstream, answering
from tests.support.running import free_port
from velodrome.resources_servers.calculator.app import Calculator

Json = dict[str, Any]

KEY = "sk-0f3a9c1be7d24586a1c2d3e4f5061728"  # the proxy does not start with none, or with a weak one
TOKENS = {"prompt_token_ids": PROMPT, "generation_token_ids": IDS, "generation_log_probs": [-0.5] * len(IDS)}
ASKED = {"return_token_ids": True, "logprobs": True}
THROUGH = {**ASKED, "extra_body": {"enable_response_messages": True}}  # what the proxy passes on to /responses
QUIET = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False", "NO_DOCS": "True"}


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with answering() as server:
        yield server


@pytest.fixture(scope="module")
def proxy(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with litellm(upstream.url, tmp_path_factory.mktemp("litellm")) as url:
        yield url


def litellm(upstream: str, folder: Any) -> Any:
    """The proxy in front of a server, under the two names that its users give vLLM."""
    config = {
        "model_list": [
            {"model_name": kind, "litellm_params": {"model": f"{kind}/tiny", "api_base": upstream, "api_key": "none"}}
            for kind in ("openai", "hosted_vllm")
        ],
        "litellm_settings": {"num_retries": 0},
        "general_settings": {"master_key": KEY},
    }
    (folder / "config.yaml").write_text(json.dumps(config))
    port = free_port()
    script = str(environment("litellm").with_name("litellm"))
    arguments = [script, "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port)]
    return serving("litellm", *arguments, port=port, ready="/health/liveliness", log=folder / "log", **QUIET)


def collected(proxy: str, name: str = "openai", *, tasks: int = 3, **settings: Any) -> Any:
    policy = velo.OpenAI(f"{proxy}/v1", name, api_key=KEY, **{"extra_body": ASKED, "backoff_s": 0.0, **settings})
    agent = velo.SimpleAgent(model=policy, environment=Calculator(), offer_tools=False)
    rows = [
        {"id": f"t{number}", "expected_answer": "36", "responses_create_params": {"input": "?"}}
        for number in range(tasks)
    ]
    return asyncio.run(velo.collect(rows, agent, parallel=1, progress=False))


def tokens(run: Any) -> list[Json]:
    turns = [orjson.loads(line)["output"][-1] for line in run.lines]
    return [{name: turn.get(name) for name in TOKENS} for turn in turns]


@pytest.mark.parametrize("name", ["openai", "hosted_vllm"])
@pytest.mark.parametrize(("endpoint", "extra"), [("auto", ASKED), ("chat", ASKED), ("responses", THROUGH)])
def test_ids_come_through_the_proxy(proxy: str, name: str, endpoint: str, extra: Json, caplog: Any) -> None:
    run = collected(proxy, name, endpoint=endpoint, extra_body=extra)
    assert tokens(run) == [TOKENS] * 3
    assert not run.findings
    assert not [record for record in caplog.records if record.name.startswith("velodrome")]


def test_ids_that_the_proxy_swallows_are_missed_aloud(proxy: str, caplog: Any) -> None:
    run = collected(proxy, endpoint="responses")
    assert tokens(run) == [dict.fromkeys(TOKENS)] * 3
    [warning] = [record for record in caplog.records if record.name.startswith("velodrome")]
    assert "no generation_token_ids" in warning.getMessage()
    assert any("no-token-ids" in finding and "3 of 3" in finding for finding in run.findings)


@pytest.mark.parametrize("endpoint", ["chat", "responses"])
@pytest.mark.parametrize(("status", "after"), [(429, "0"), (503, None)])
def test_faults_behind_the_proxy_are_tried_again(
    proxy: str, upstream: Upstream, endpoint: str, status: int, after: str | None
) -> None:
    upstream.faults = [(status, after)]
    run = collected(proxy, tasks=1, endpoint=endpoint, extra_body=THROUGH)
    [row] = [orjson.loads(line) for line in run.lines]
    assert row["meta"]["timing"]["retries"] >= 1
    assert tokens(run) == [TOKENS]


def test_a_fault_that_stays_is_blamed_on_the_model(proxy: str, upstream: Upstream) -> None:
    upstream.faults = [(400, None)]
    [failure] = collected(proxy, tasks=1, endpoint="chat").failed_attempts
    assert (failure["boundary"], "400" in failure["error"]) == ("model", True)
