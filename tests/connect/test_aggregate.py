"""`/aggregate_metrics`: the numbers of rollouts, over all of them and by task, on agents and environments."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import hosted as hosting
from tests.support.running import http
from velodrome.connect.nemo_gym.aggregate import aggregate
from velodrome.resources_servers.calculator.app import Calculator
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.scripted_model.app import ScriptedModel

ROLLOUTS: list[dict[str, Any]] = [
    {"_ng_task_index": 7, "_ng_rollout_index": 0, "reward": 1.0, "right": True, "response": {"usage": {"tokens": 10}}},
    {"_ng_task_index": 7, "_ng_rollout_index": 1, "reward": 0.0, "right": False, "note": "no number"},
    {"_ng_task_index": 2, "_ng_rollout_index": 0, "reward": 0.5, "response": {}},
]
SINGLE = {"mean/reward": 0.5, "max/reward": 0.5, "min/reward": 0.5, "median/reward": 0.5, "std/reward": 0.0}


def agent() -> SimpleAgent:
    return SimpleAgent(model=ScriptedModel(answers=["1"]), environment=Calculator())


@pytest.mark.parametrize(("kind", "make"), [("responses_api_agents", agent), ("resources_servers", Calculator)])
def test_an_agent_and_an_environment_describe_every_number(kind: str, make: Any):
    with hosting.hosted(kind, make) as url:
        status, answer = http(f"{url}/aggregate_metrics", {"verify_responses": ROLLOUTS})
        refused = [
            http(f"{url}/aggregate_metrics", body)[0]
            for body in ({"rows": ROLLOUTS}, {"verify_responses": [5]}, {"verify_responses": [{"_ng_task_index": "x"}]})
        ]
    assert (status, refused) == (200, [422, 422, 422])
    assert aggregate([]) == {"agent_metrics": {}, "key_metrics": {}, "group_level_metrics": []}
    assert answer["key_metrics"] == {"mean/reward": 0.5, "mean/right": 0.5, "mean/tokens": 10.0}
    assert answer["agent_metrics"]["std/reward"] == 0.5
    assert "std/tokens" not in answer["agent_metrics"]  # one value among several rollouts
    first, second = answer["group_level_metrics"]
    assert first == {"_ng_task_index": 2, "num_rollouts": 1, **SINGLE}
    assert (second["_ng_task_index"], second["num_rollouts"], second["mean/reward"]) == (7, 2, 0.5)
