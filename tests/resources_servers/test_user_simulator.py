"""A help desk whose customers are a model: what is scored, who is blamed, and how many are asked at once."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from velodrome import SimpleAgent, examine
from velodrome.errors import TaskError, ToolError
from velodrome.resources_servers.simulated_user import DONE
from velodrome.resources_servers.user_simulator.app import UserSimulator
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.timing.spans import root

Json = dict[str, Any]
HOME = Path(__file__).parents[2]
DATA = HOME / "velodrome" / "resources_servers" / "user_simulator" / "data" / "example.jsonl"
TASKS = {task["id"]: task for task in map(json.loads, DATA.read_text().splitlines())}
CANCEL = {"tool_calls": [{"name": "cancel_order", "arguments": {"order_id": "A-101"}}]}


def play(*answers: Any, user: Any, task: Json | None = None, **settings: Any) -> Json:
    agent = SimpleAgent(model=ScriptedModel(answers=list(answers)), environment=UserSimulator(user=user, **settings))

    async def main() -> Json:
        try:
            return await agent.run(task or TASKS["cancel_blue_kettle"])
        finally:
            await agent.environment.aclose()

    return asyncio.run(main())


def test_it_passes_its_examination() -> None:
    report = asyncio.run(examine("user_simulator"))
    assert report.passed, str(report)


def test_the_user_sees_the_talk_from_its_own_side_and_the_policy_never_sees_its_instructions() -> None:
    seen: list[list[Json]] = []

    async def user(request: Json) -> str:
        seen.append(request["input"])
        return ["Cancel a kettle.", "The blue one.", f"Thanks! {DONE}"][len(seen) - 1]

    result = play("Which one?", CANCEL, "Done.", user=user)
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


def test_a_user_that_never_ends_is_a_limit_and_what_was_done_counts() -> None:
    result = play(CANCEL, "Done.", user=ScriptedModel(answers=["And?"]), max_user_turns=3)
    assert (result["truncated"], result["reward"], len(result["step_rewards"])) == (True, 1.0, 2)
    assert result["response"]["metadata"]["stop"] == "truncated"


@pytest.mark.parametrize("fails", [1, 2])
def test_a_failure_of_the_users_model_is_never_the_policys(fails: int) -> None:
    calls = 0

    async def user(request: Json) -> str:
        nonlocal calls
        calls += 1
        if calls == fails:
            raise ConnectionError("away")
        return "Hm."

    with pytest.raises(ToolError) as caught:
        play("Yes?", user=user)
    assert (caught.value.boundary, "user: ConnectionError: away" in str(caught.value)) == ("tool", True)


@pytest.mark.parametrize(("answer", "says"), [(" ", "said nothing"), (DONE, "before it began")])
def test_a_user_that_says_nothing_is_a_failure_and_not_an_end(answer: str, says: str) -> None:
    with pytest.raises(ToolError, match=says):
        play("Yes?", user=ScriptedModel(answers=[answer]))


def test_calls_of_the_users_model_wait_for_their_own_places() -> None:
    most = now = 0

    async def user(request: Json) -> str:
        nonlocal most, now
        now += 1
        most = max(most, now)
        for _ in range(5):
            await asyncio.sleep(0)
        now -= 1
        return DONE if len(request["input"]) > 2 else "Hello."

    async def main() -> list[Json]:
        environment = UserSimulator(user=user, judge_max_concurrent=2)
        agent = SimpleAgent(model=ScriptedModel(answers=["Yes?"]), environment=environment)
        with root("rollout"):
            return await asyncio.gather(*(agent.run(TASKS["cancel_blue_kettle"]) for _ in range(8)))

    assert len(asyncio.run(main())) == 8
    assert most == 2


@pytest.mark.parametrize("field", ["user_instructions", "orders", "expected_changes"])
def test_a_task_that_lacks_a_field_is_blamed_on_the_input(field: str) -> None:
    task = {name: value for name, value in TASKS["cancel_blue_kettle"].items() if name != field}
    with pytest.raises(TaskError, match=f'no "{field}"'):
        play("Yes?", user=UserSimulator.example_settings()["user"], task=task)


@pytest.mark.parametrize("text", ["\ud800" * 1000, "[" * 100_000, "\0", "x" * 3_000_000, DONE * 1000])
def test_hostile_answers_are_scored(text: str) -> None:
    assert play(text, user=UserSimulator.example_settings()["user"])["reward"] == 0.0


def test_the_documented_simulator_works() -> None:
    page = (HOME / "docs" / "environments.md").read_text()
    (code,) = re.findall(
        r"```python\n(from velodrome import tool\nfrom velodrome.res.*?class Library.*?)```", page, re.DOTALL
    )
    scope: Json = {"__name__": "documented"}
    exec(compile(code, "docs/environments.md", "exec", dont_inherit=True), scope)
    renew = {"tool_calls": [{"name": "renew", "arguments": {"title": "Emma"}}]}
    user = ScriptedModel(answers=["I want to keep Emma longer.", DONE])
    agent = SimpleAgent(model=ScriptedModel(answers=[renew, "Done."]), environment=scope["Library"](user=user))
    task = {
        "responses_create_params": {"input": []},
        "user_instructions": "You want to renew Emma.",
        "renewed": ["Emma"],
    }
    assert asyncio.run(agent.run(task))["reward"] == 1.0
