"""The two small environments, their example tasks, and the shape of every config file."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest
import yaml

from tests.resources_servers.playing import HOMES, Json, closing, example_tasks, opened, says, score
from velodrome.errors import InputError
from velodrome.examiner.subject import named_subject
from velodrome.resources_servers.example_session_state_mgmt.app import ExampleSessionStateMgmt
from velodrome.resources_servers.example_single_tool_call.app import ExampleSingleToolCall, sky_over
from velodrome.resources_servers.math_with_judge.app import MathWithJudge


def test_a_city_always_has_the_same_sky():
    calls = [("get_weather", {"city": city}) for city in (" Oslo ", " ")]
    sky, error = opened(ExampleSingleToolCall(), {}, *calls)
    assert (sky, error) == ('{"city":"Oslo","sky":"sunny"}', "error: city must not be empty")
    assert sky_over("oslo, Norway") == sky_over("Oslo")


@pytest.mark.parametrize(
    ("text", "looked_up", "task", "expected"),
    [
        ("It is sunny.", ["Oslo"], {"city": "oslo"}, (1.0, 1.0, 1)),
        ("It is lovely.", ["Oslo"], {"city": "Oslo"}, (0.0, 1.0, 1)),
        ("It is sunny.", ["Lima"], {"city": "Oslo"}, (0.0, 0.0, 1)),
        ("It is sunny.", ["Lima", "Oslo, Norway"], {"city": "Oslo"}, (1.0, 1.0, 2)),
    ],
)
def test_the_weather_must_be_looked_up_and_reported(
    text: str, looked_up: list[str], task: dict[str, Any], expected: tuple[float, float, int]
):
    response = says(text, *[("get_weather", json.dumps({"city": city}), "{}") for city in looked_up])
    assert score(ExampleSingleToolCall(), task, response) == {
        "reward": expected[0],
        "called_right_city": expected[1],
        "num_weather_calls": expected[2],
    }


def test_each_rollout_has_a_counter_of_its_own():
    counters = ExampleSessionStateMgmt()

    async def rollout(start: int) -> tuple[list[str], Json]:
        task = {"initial_count": start, "expected_count": start + 5 if start else 3}
        session = await counters.open(task)
        calls = [("increment_counter", {"count": 7}), ("increment_counter", {"count": -2}), ("get_counter_value", {})]
        texts = [await counters.call(session, *call) for call in calls]
        return texts, await counters.score(session, task, says("done"))

    async def use() -> list[tuple[list[str], Json]]:
        return await asyncio.gather(*[rollout(start) for start in range(10)])

    done = '{"success":true}'
    assert closing(counters, use()) == [
        ([done, done, f'{{"count":{at + 5}}}'], {"reward": float(at > 0), "final_count": at + 5}) for at in range(10)
    ]
    assert asyncio.run(counters.deferrable()) is False


@pytest.mark.parametrize("name", ["calculator", "example_single_tool_call", "example_session_state_mgmt"])
def test_example_tasks_offer_the_tools_as_they_are(name: str):
    tools = asyncio.run(named_subject(name).make().tools())
    assert all(row["responses_create_params"]["tools"] == tools for row in example_tasks(name).values())


def test_a_config_names_the_environment_its_agent_and_its_data():
    for path in (path for home in HOMES for path in home.glob("*/configs/*.yaml")):
        name, config = path.parent.parent.name, yaml.safe_load(path.read_text())
        if path.stem not in (name, "bytedtsinghua_dapo17k"):
            continue
        assert list(config) == [name, f"{name}_simple_agent"]
        assert list(config[name]["resources_servers"]) == [name]
        agent = config[f"{name}_simple_agent"]["responses_api_agents"]["simple_agent"]
        assert agent["entrypoint"] == "app.py"
        assert agent["resources_server"] == {"type": "resources_servers", "name": name}
        assert agent["model_server"] == {"type": "responses_api_models", "name": "policy_model"}
        jsonl = f"resources_servers/{name}/data/example.jsonl"
        assert agent["datasets"][-1] == {"name": "example", "type": "example", "jsonl_fpath": jsonl}
        assert len(example_tasks(name)) >= 10


def test_a_missing_library_is_one_line_with_the_way_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "math_verify", None)  # as if it were absent
    with pytest.raises(InputError, match=r'\A.*pip install "velodrome\[math\]".*\Z'):
        MathWithJudge()
