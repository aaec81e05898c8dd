"""An environment that takes turns, played by the simple agent: who speaks when, what is kept, and what ends it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.patience import DEADLINE_S
from velodrome import TurnEnvironment, tool
from velodrome.errors import RolloutError, TaskError, ToolError
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.scripted_model.app import ScriptedModel

Json = dict[str, Any]
TASK: Json = {"responses_create_params": {"input": []}, "secret": 7}


class Guess(TurnEnvironment):
    """Guess a number, with a tool that halves the range."""

    most: int = 4

    def reset(self, task: Json, session: Json) -> str:
        session.update(secret=task["secret"], guesses=0)
        return "Guess a number up to 9."

    @tool
    def is_even(self, session: Json) -> bool:
        """Whether the number is even."""
        return session["secret"] % 2 == 0

    async def step(self, action: str, session: Json) -> Any:
        if action == "break":
            raise KeyError("board")
        number = int(action)
        session["guesses"] += 1
        if number == session["secret"]:
            return "Right.", 1.0, True, False, {"guesses": session["guesses"]}
        word = "Too low." if number < session["secret"] else "Too high."
        return word, -0.25, False, session["guesses"] >= self.most, {"guesses": session["guesses"]}


def play(*answers: Any, task: Json = TASK, env: Json | None = None, model: Any = None, **config: Any) -> Json:
    model = model or ScriptedModel(answers=list(answers))
    agent = SimpleAgent(model=model, environment=Guess(**(env or {})), **config)

    async def main() -> Json:
        try:
            return await asyncio.wait_for(agent.run(task), DEADLINE_S)
        finally:
            await agent.environment.aclose()

    return asyncio.run(main())


def said(result: Json) -> list[tuple[str, str]]:
    """Who said what after the prompt."""
    items = result["response"]["output"]
    parts = [
        (item.get("role", item["type"]), item.get("content", item.get("output", item.get("name")))) for item in items
    ]
    return [(role, text if isinstance(text, str) else text[0]["text"]) for role, text in parts]


def test_what_the_model_answers_is_the_action_and_the_observation_is_the_next_user_message():
    result = play("3", "8", "7")
    talk = [("3", "Too low."), ("8", "Too high."), ("7", "Right.")]
    assert said(result) == [turn for ours, theirs in talk for turn in (("assistant", ours), ("user", theirs))]
    assert result["responses_create_params"]["input"] == [{"role": "user", "content": "Guess a number up to 9."}]
    assert (result["reward"], result["guesses"]) == (0.5, 3)
    assert (result["step_rewards"], result["terminated"], result["truncated"]) == ([-0.25, -0.25, 1.0], True, False)
    assert result["response"]["status"] == "completed"
    cut = play({"output": [{"type": "message", "content": "7"}], "status": "incomplete"})
    assert (cut["step_rewards"], cut["reward"], cut["response"]["status"]) == ([], 0.0, "incomplete")  # not played
    agent = SimpleAgent(model=ScriptedModel(answers=["3"]), environment=Guess())
    response = asyncio.run(agent.respond({"input": "Guess."}))  # without a task, its caller continues it
    assert [item["role"] for item in response["output"]] == ["assistant"]


def test_the_model_is_shown_the_whole_conversation_at_every_turn():
    seen: list[list[str]] = []

    async def model(request: Json) -> str:
        seen.append([item["content"] for item in request["input"] if item.get("role") == "user"])
        return str(4 + len(seen))

    prompt = [{"role": "system", "content": "Play well."}, {"role": "user", "content": "Begin."}]
    play(task={"responses_create_params": {"input": prompt}, "secret": 6}, model=model)
    assert seen == [["Begin.", "Guess a number up to 9."], ["Begin.", "Guess a number up to 9.", "Too low."]]


def stop(result: Json) -> tuple[str, Any]:
    response = result["response"]
    return response["status"], (response.get("metadata") or {}).get("stop")


def test_what_the_environment_or_a_limit_stops_is_verified_and_is_no_clean_finish():
    truncated = play("1", env={"most": 2})
    assert (stop(truncated), truncated["truncated"], truncated["reward"]) == (("incomplete", "truncated"), True, -0.5)
    steps = play("1", max_steps=3)
    assert (stop(steps), steps["truncated"], steps["step_rewards"]) == (("incomplete", "max_steps"), False, [-0.25] * 3)
    tokens = play("1", max_rollout_tokens=9)
    assert stop(tokens) == ("incomplete", "max_rollout_tokens")
    assert 0 < len(tokens["step_rewards"]) < 4
    assert tokens["response"]["usage"]["total_tokens"] >= 9


class Ahead(asyncio.SelectorEventLoop):
    """A loop whose clock can be put forward."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


def test_after_its_time_no_further_model_call_begins_and_what_there_is_is_verified():
    async def model(request: Json) -> str:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Ahead)
        loop.ahead += 40.0
        return "1"

    agent = SimpleAgent(model=model, environment=Guess(most=9), max_rollout_s=100.0)
    with asyncio.Runner(loop_factory=Ahead) as runner:
        result = runner.run(agent.run(TASK))
    assert (stop(result), len(result["step_rewards"])) == (("incomplete", "max_rollout_s"), 3)


def test_tools_work_within_a_turn_and_an_illegal_move_is_told_to_the_model():
    result = play({"tool_calls": [{"name": "is_even", "arguments": {}}]}, "seven", "7")
    *before, told = said(result)[:4]
    assert before == [("function_call", "is_even"), ("function_call_output", "false"), ("assistant", "seven")]
    assert told[1].startswith("error: invalid literal")
    assert (result["reward"], result["step_rewards"]) == (1.0, [0.0, 1.0])


def failure(*answers: Any, **config: Any) -> RolloutError:
    with pytest.raises(RolloutError) as caught:
        play(*answers, **config)
    return caught.value


def test_a_fault_of_the_environment_is_its_own_and_carries_the_conversation():
    error = failure("3", "break")
    assert isinstance(error, ToolError)
    assert str(error) == "step: KeyError: 'board'"
    assert [item.get("role", item["type"]) for item in error.partial or ()] == ["assistant", "user", "assistant"]
    assert "in Guess.step" in str(error.place)
    assert str(failure("3", task={"responses_create_params": {"input": []}})) == "reset: KeyError: 'secret'"


def test_an_environment_that_does_not_begin_needs_a_prompt():
    class Silent(TurnEnvironment):
        def step(self, action: str) -> Any:
            return None, 1, True, False, {}

    async def main(prompt: Any) -> Json:
        agent = SimpleAgent(model=ScriptedModel(answers=["x"]), environment=Silent())
        return await agent.run({"responses_create_params": {"input": prompt}})

    with pytest.raises(TaskError, match="nothing to ask"):
        asyncio.run(main([]))
    assert said(asyncio.run(main("Go."))) == [("assistant", "x")]
