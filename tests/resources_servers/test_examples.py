"""The two small environments, their example tasks, and the shape of every config file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from velodrome.errors import TaskError
from velodrome.resources_servers.example_session_state_mgmt.app import ExampleSessionStateMgmt
from velodrome.resources_servers.example_single_tool_call.app import ExampleSingleToolCall, sky_over

Says = Callable[..., dict[str, Any]]
HOME = Path(__file__).parents[2] / "velodrome" / "resources_servers"
CONFIGS = {
    "blackjack": "blackjack.yaml",
    "gymnasium_text": "gymnasium_text.yaml",
    "sokoban": "sokoban.yaml",
    "word_guess": "word_guess.yaml",
    "tic_tac_toe": "tic_tac_toe.yaml",
    "user_simulator": "user_simulator.yaml",
    "calculator": "calculator.yaml",
    "example_single_tool_call": "example_single_tool_call.yaml",
    "example_session_state_mgmt": "example_session_state_mgmt.yaml",
    "math_with_judge": "bytedtsinghua_dapo17k.yaml",
    "reasoning_gym": "reasoning_gym.yaml",
    "text_to_sql": "text_to_sql.yaml",
    "workplace": "workplace.yaml",
    "code_gen": "code_gen.yaml",
    "python_tool": "python_tool.yaml",
    "terminal": "terminal.yaml",
    "mcqa": "mcqa.yaml",
    "equivalence_rule": "equivalence_rule.yaml",
    "equivalence_llm_judge": "equivalence_llm_judge.yaml",
    "structured_outputs": "structured_outputs.yaml",
    "instruction_following": "instruction_following.yaml",
    "mcp_tools": "mcp_tools.yaml",
}


def examples(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (HOME / name / "data" / "example.jsonl").read_text().splitlines()]


def test_a_city_always_has_the_same_sky() -> None:
    weather = ExampleSingleToolCall()
    assert asyncio.run(weather.call("1", "get_weather", {"city": " Oslo "})) == '{"city":"Oslo","sky":"sunny"}'
    assert sky_over("oslo, Norway") == sky_over("Oslo")
    assert asyncio.run(weather.call("1", "get_weather", {"city": " "})) == "error: city must not be empty"


@pytest.mark.parametrize(
    ("text", "looked_up", "task", "score"),
    [
        ("It is sunny.", ["Oslo"], {"city": "oslo"}, (1.0, 1.0, 1)),
        ("It is sunny.", ["Oslo"], {}, (1.0, 1.0, 1)),
        ("It is lovely.", ["Oslo"], {"city": "Oslo"}, (0.0, 1.0, 1)),
        ("It is sunny.", ["Lima"], {"city": "Oslo"}, (0.0, 0.0, 1)),
        ("It is sunny.", [], {"city": "Oslo"}, (0.0, 0.0, 0)),
        ("It is sunny.", ["Lima", "Oslo, Norway"], {"city": "Oslo"}, (1.0, 1.0, 2)),
    ],
)
def test_the_weather_must_be_looked_up_and_reported(
    says: Says, text: str, looked_up: list[str], task: dict[str, Any], score: tuple[float, float, int]
) -> None:
    response = says(text, *[("get_weather", json.dumps({"city": city}), "{}") for city in looked_up])
    assert asyncio.run(ExampleSingleToolCall().score("1", task, response)) == {
        "reward": score[0],
        "called_right_city": score[1],
        "num_weather_calls": score[2],
    }


def test_each_rollout_has_a_counter_of_its_own(says: Says) -> None:
    counters = ExampleSessionStateMgmt()

    async def rollout(start: int) -> tuple[list[str], dict[str, Any]]:
        task = {"initial_count": start, "expected_count": start + 5}
        session = await counters.open(task)
        texts = [
            await counters.call(session, "increment_counter", {"count": 7}),
            await counters.call(session, "increment_counter", {"count": -2}),
            await counters.call(session, "get_counter_value", {}),
        ]
        score = await counters.score(session, task, says("done"))
        await counters.close(session)
        return texts, score

    async def main() -> list[tuple[list[str], dict[str, Any]]]:
        return await asyncio.gather(*[rollout(start) for start in range(10)])

    assert asyncio.run(main()) == [
        (['{"success":true}', '{"success":true}', f'{{"count":{at + 5}}}'], {"reward": 1.0, "final_count": at + 5})
        for at in range(10)
    ]
    assert asyncio.run(counters.deferrable()) is False


def test_a_counter_elsewhere_than_expected_earns_nothing_and_a_bad_task_is_blamed(says: Says) -> None:
    async def main(task: dict[str, Any]) -> dict[str, Any]:
        counters = ExampleSessionStateMgmt()
        return await counters.score(await counters.open(task), task, says("it is 3"))

    assert asyncio.run(main({"expected_count": 3})) == {"reward": 0.0, "final_count": 0}
    for task in ({}, {"expected_count": "3"}, {"expected_count": 3, "initial_count": None}):
        with pytest.raises(TaskError, match="must be a whole number"):
            asyncio.run(main(task))


@pytest.mark.parametrize("owner", [ExampleSingleToolCall, ExampleSessionStateMgmt])
def test_example_tasks_offer_the_tools_as_they_are(owner: Any) -> None:
    name = {"ExampleSingleToolCall": "example_single_tool_call"}.get(owner.__name__, "example_session_state_mgmt")
    tools = asyncio.run(owner().tools())
    assert all(row["responses_create_params"]["tools"] == tools for row in examples(name))


@pytest.mark.parametrize("name", list(CONFIGS))
def test_a_config_names_the_environment_its_agent_and_its_data(name: str) -> None:
    config = yaml.safe_load((HOME / name / "configs" / CONFIGS[name]).read_text())
    assert list(config) == [name, f"{name}_simple_agent"]
    assert list(config[name]["resources_servers"]) == [name]
    agent = config[f"{name}_simple_agent"]["responses_api_agents"]["simple_agent"]
    assert agent["entrypoint"] == "app.py"
    assert agent["resources_server"] == {"type": "resources_servers", "name": name}
    assert agent["model_server"] == {"type": "responses_api_models", "name": "policy_model"}
    assert agent["datasets"][-1] == {
        "name": "example",
        "type": "example",
        "jsonl_fpath": f"resources_servers/{name}/data/example.jsonl",
    }
    assert len(examples(name)) >= 10
