"""A help desk whose customers are a model: what is scored and who is blamed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.resources_servers.playing import Json, Judge, documented, example_tasks, play
from velodrome.environments.simulated_user import DONE
from velodrome.environments.user_simulator.app import UserSimulator
from velodrome.errors import TaskError, ToolError
from velodrome.responses_api_models.scripted_model.app import ScriptedModel

TASKS = example_tasks("user_simulator")
CANCEL = {"tool_calls": [{"name": "cancel_order", "arguments": {"order_id": "A-101"}}]}


def talk(*answers: Any, user: Any, task: Json | None = None, **settings: Any) -> Json:
    return play(UserSimulator(user=user, **settings), task or TASKS["cancel_blue_kettle"], *answers)


def test_the_user_sees_the_talk_from_its_own_side_and_the_policy_never_sees_its_instructions():
    seen: list[list[Json]] = []

    async def user(request: Json) -> str:
        seen.append(request["input"])
        return ["Cancel a kettle.", "The blue one.", f"Thanks! {DONE}"][len(seen) - 1]

    result = talk("Which one?", CANCEL, "Done.", user=user)
    assert [(each["role"], each["content"]) for each in seen[2][1:]] == [
        ("user", "Hello! How can I help you?"),
        ("assistant", "Cancel a kettle."),
        ("user", "Which one?"),
        ("assistant", "The blue one."),
        ("user", "Done."),
    ]
    assert "You ordered two kettles." in seen[0][0]["content"]
    asked = result["responses_create_params"]["input"]
    assert [each["role"] for each in asked] == ["system", "user"]
    assert asked[1]["content"] == "Cancel a kettle."
    assert "ada@example.com" not in json.dumps(asked)
    assert (result["reward"], result["terminated"], result["orders_right"]) == (1.0, True, 1.0)
    roles = [item.get("role") for item in result["response"]["output"] if item["type"] == "message"]
    assert roles == ["assistant", "user", "assistant"]


def test_a_user_that_never_ends_is_a_limit_and_what_was_done_counts():
    result = talk(CANCEL, "Done.", user=ScriptedModel(answers=["And?"]), max_user_turns=3)
    assert (result["truncated"], result["reward"], len(result["step_rewards"])) == (True, 1.0, 2)
    assert result["response"]["metadata"]["stop"] == "truncated"


@pytest.mark.parametrize(
    ("replies", "says"),
    [
        ([ConnectionError("away")], "user: ConnectionError: away"),
        (["Hm.", ConnectionError("away")], "user: ConnectionError: away"),
        ([" "], "said nothing"),
        ([DONE], "before it began"),
    ],
)
def test_a_failure_of_the_users_model_is_never_the_policys(replies: list[Any], says: str):
    with pytest.raises(ToolError, match=says):
        talk("Yes?", user=Judge(*replies))


def test_a_task_that_lacks_a_field_is_blamed_on_the_input():
    task = {name: value for name, value in TASKS["cancel_blue_kettle"].items() if name != "user_instructions"}
    with pytest.raises(TaskError, match='no "user_instructions"'):
        talk("Yes?", user=UserSimulator.example_settings()["user"], task=task)


def test_the_documented_simulator_works():
    library = documented("from velodrome import tool\nfrom velodrome.environments.simulated_user")["Library"]
    renew = {"tool_calls": [{"name": "renew", "arguments": {"title": "Emma"}}]}
    user = ScriptedModel(answers=["I want to keep Emma longer.", DONE])
    task = {"user_instructions": "You want to renew Emma.", "renewed": ["Emma"]}
    assert play(library(user=user), task, renew, "Done.")["reward"] == 1.0
