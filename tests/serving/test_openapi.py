"""Every server's own description is fuzzed: whatever fits it gets an answer, and no fault of ours is among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hosted as hosting
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings

from velodrome.resources_servers.calculator.app import Calculator
from velodrome.resources_servers.example_session_state_mgmt.app import ExampleSessionStateMgmt
from velodrome.resources_servers.example_single_tool_call.app import ExampleSingleToolCall
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.scripted_model.app import ScriptedModel


def model() -> ScriptedModel:
    return ScriptedModel(answers=[{"tool_calls": [{"name": "calculator", "arguments": {"expression": "1"}}]}, "1"])


def agent() -> SimpleAgent:
    return SimpleAgent(model=model(), environment=Calculator())


SERVERS = {
    "calculator": ("resources_servers", Calculator),
    "weather": ("resources_servers", ExampleSingleToolCall),
    "counter": ("resources_servers", ExampleSessionStateMgmt),
    "model": ("responses_api_models", model),
    "agent": ("responses_api_agents", agent),
}
EVERY_WAY = [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("kind", "make"), SERVERS.values(), ids=SERVERS.keys())
def test_no_request_that_the_description_leads_to_is_met_by_a_fault_of_ours(kind: str, make: Callable[[], Any]) -> None:
    with hosting.hosted(kind, make) as url:
        schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
        operations = [result.ok() for result in schema.get_all_operations()]
        assert len(operations) >= 4
        for operation in operations:
            for mode in EVERY_WAY if operation.method == "post" else EVERY_WAY[:1]:  # nothing to get wrong in a GET
                fuzz(operation, mode)


def fuzz(operation: Any, mode: Any) -> None:
    quiet = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=25, deadline=None, suppress_health_check=quiet, database=None)
    def check(case: Any) -> None:
        reply = case.call()
        where = f"{operation.method} {operation.path}: {reply.status_code} {reply.text[:300]}"
        assert reply.status_code != 500, where
        if reply.status_code > 500:
            assert reply.json()["error"]["boundary"], where

    check()
