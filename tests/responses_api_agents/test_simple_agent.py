"""The loop of model and tools: what ends it, what is told to the model, and sessions that are always closed."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tests.support.patience import DEADLINE_S
from velodrome import Environment, tool
from velodrome.errors import AgentError, ModelError, RolloutError, ToolError, VerifyError
from velodrome.records.turns import add_usage
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.timing.spans import root

TASK = {"responses_create_params": {"input": "go"}, "expected": "3"}


class Desk(Environment):
    """Tools for every case, and a count of sessions."""

    close_fails: bool = False

    def setup(self) -> None:
        self.open_now: set[str] = set()
        self.opened = 0
        self.together = threading.Barrier(2, timeout=DEADLINE_S)
        self.at_once = 0
        self.most_at_once = 0

    def seed_session(self, task: dict[str, Any]) -> str:
        if task.get("unseedable"):
            raise OSError("no room")
        self.opened += 1
        self.open_now.add(f"s{self.opened}")
        return f"s{self.opened}"

    def close_session(self, session: str) -> None:
        self.open_now.discard(session)
        if self.close_fails:
            raise OSError("stuck")

    @tool
    def add(self, a: int, b: int) -> int:
        """Add."""
        return a + b

    @tool
    def meet(self) -> str:
        """Comes back only when somebody else is here at the same time."""
        self.together.wait()
        return "met"

    @tool
    async def linger(self) -> str:
        """Gives way once."""
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        return "done"

    @tool
    def scold(self, text: str) -> str:
        """The model's own mistake."""
        raise ValueError(f"not like {text}")

    @tool
    def explode(self) -> str:
        """A bug in the tool."""
        raise ZeroDivisionError("oops")

    @tool
    async def hang(self) -> str:
        """Never comes back."""
        await asyncio.Event().wait()
        return "never"

    def verify(self, task: dict[str, Any], response: Any) -> Any:
        if task.get("unscorable"):
            raise KeyError("expected")
        return {"reward": float(task["expected"] in response.text), "calls": len(response.tool_calls)}


def calls(*named: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments} for name, arguments in named]}


def make(
    *answers: Any, env: dict[str, Any] | None = None, model: Any = None, **config: Any
) -> tuple[SimpleAgent, Desk]:
    desk = Desk(**(env or {}))
    model = model or ScriptedModel(answers=list(answers))
    return SimpleAgent(**config, model=model, environment=desk), desk


def run(agent: SimpleAgent, task: dict[str, Any] = TASK, *, verify: bool = True) -> dict[str, Any]:
    async def main() -> dict[str, Any]:
        try:
            return await asyncio.wait_for(agent.run(task, verify=verify), DEADLINE_S)
        finally:
            await agent.environment.aclose()

    return asyncio.run(main())


def failure(agent: SimpleAgent, task: dict[str, Any] = TASK) -> RolloutError:
    with pytest.raises(RolloutError) as caught:
        run(agent, task)
    return caught.value


def outputs(result: dict[str, Any]) -> list[str]:
    return [item["output"] for item in result["response"]["output"] if item["type"] == "function_call_output"]


def kinds(items: list[dict[str, Any]] | None) -> list[str]:
    return [item["type"] for item in items or []]


def test_a_task_is_run_from_its_prompt_to_its_score():
    agent, desk = make(calls(("add", {"a": 1, "b": 2})), "It is {tool_result}")
    result = run(agent)
    response = result.pop("response")
    tools = [schema["name"] for schema in result["responses_create_params"].pop("tools")]
    assert tools == ["add", "meet", "linger", "scold", "explode", "hang"]
    assert result == {"responses_create_params": {"input": "go"}, "expected": "3", "reward": 1.0, "calls": 1}
    assert kinds(response["output"]) == ["function_call", "function_call_output", "message"]
    made = {"id": "fco_resp_1_1", "status": "completed"}
    assert response["output"][1] == {"type": "function_call_output", "call_id": "call_0_0", "output": "3", **made}
    counts = {"input_tokens": 1 + 17, "output_tokens": 8 + 3, "total_tokens": 29}
    assert response["usage"].items() >= counts.items()
    assert response["status"] == "completed"
    assert (desk.opened, desk.open_now) == (1, set())
    assert TASK == {"responses_create_params": {"input": "go"}, "expected": "3"}


def test_a_task_with_nothing_to_ask_is_blamed_on_the_input_and_instructions_are_something():
    agent, desk = make("It is 3")
    error = failure(agent, {"responses_create_params": {"input": []}})
    assert (error.boundary, "nothing to ask" in str(error)) == ("input", True)
    assert (desk.opened, desk.open_now) == (1, set())
    agent, _ = make("It is 3")
    assert run(agent, {"responses_create_params": {"input": [], "instructions": "Say 3."}, "expected": "3"})["reward"]


def test_a_task_that_names_its_tools_gets_those_and_without_verify_there_is_no_score():
    task = {**TASK, "responses_create_params": {"input": "go", "tools": []}}
    assert run(make("3")[0], task)["responses_create_params"] == {"input": "go", "tools": []}
    result = run(make("3", offer_tools=False)[0], verify=False)
    assert result.pop("response")["status"] == "completed"
    assert result == TASK


def test_tool_calls_of_one_turn_really_run_side_by_side():
    agent, _ = make(calls(("meet", {}), ("meet", {})), "3")
    assert outputs(run(agent)) == ["met", "met"]
    agent, desk = make(calls(*[("linger", {})] * 5), "3")
    assert outputs(run(agent)) == ["done"] * 5
    assert desk.most_at_once == 5
    add = ("add", {"a": 1, "b": 2})
    agent, _ = make(calls(add, add), calls(add), "3")
    with root("rollout") as spans:
        run(agent)
    parts = spans.children[1:-2]
    assert [part.name for part in parts] == ["model", "tools", "model", "tool:add", "model"]
    assert [each.name for each in parts[1].children if each.name != "limit:threads"] == ["tool:add", "tool:add"]


def test_the_models_own_mistakes_are_told_to_the_model():
    wrong = calls(("add", "{bad"), ("ad", {"a": 1}), ("add", {"a": "x"}), ("add", "[1]"), ("scold", {"text": "this"}))
    result = run(make(wrong, "3")[0])
    bad_json, unknown, bad_value, no_object, scolded = outputs(result)
    assert bad_json.startswith("error: the arguments of add are not JSON: ")
    assert unknown == 'error: there is no tool "ad"; did you mean "add"?'
    assert bad_value.startswith("error: add: ")
    assert no_object == "error: add: the arguments must be a JSON object"
    assert scolded == "error: not like this"
    assert result["reward"] == 1.0


def test_a_bug_in_a_tool_fails_the_rollout_with_the_conversation_so_far_and_ends_the_other_tools():
    alone = [calls(("add", {"a": 1, "b": 1})), calls(("explode", {}))]
    among_others = [calls(("hang", {}), ("explode", {}), ("add", {"a": 1, "b": 1}))]
    for answers in (alone, among_others):
        agent, desk = make(*answers, "3")
        error = failure(agent)
        assert (type(error), str(error)) == (ToolError, "explode: ZeroDivisionError: oops")
        results = ["function_call", "function_call_output"] if answers is alone else ["function_call"] * 2
        assert (kinds(error.partial), desk.open_now) == ([*results, "function_call"], set())


def test_max_steps_ends_a_model_that_never_stops_calling():
    agent, desk = make(calls(("add", {"a": 1, "b": 2})), max_steps=3)
    with root("rollout") as spans:
        result = run(agent)
    response = result["response"]
    assert (outputs(result), result["calls"], desk.open_now) == (["3", "3", "3"], 3, set())
    assert (response["status"], response["incomplete_details"]) == ("incomplete", None)
    assert response["metadata"] == {"stop": "max_steps"}
    assert [part.name for part in spans.children] == ["session", *["model", "tool:add"] * 3, "verify", "session"]
    call = {"type": "function_call", "call_id": "c", "name": "add", "arguments": '{"a": 1, "b": 2}'}
    for metadata in ("a text", {"stop": "my own label"}):  # what the model has as metadata does not hide the limit
        response = run(make({"id": "r", "output": [call], "metadata": metadata}, max_steps=1)[0])["response"]
        assert (response["status"], response["metadata"]) == ("incomplete", {"stop": "max_steps"})


def test_an_empty_answer_is_the_models_fault_unless_it_was_cut_short():
    usage = {"total_tokens": 7}
    bare = [{"type": "reasoning", "summary": []}, {"type": "message", "content": None}]
    for output in ([], [{"type": "message", "content": []}], bare):
        with root("rollout") as spans:
            error = failure(make({"output": output, "usage": usage})[0])
        assert (type(error), error.partial) == (ModelError, [])
        assert "empty" in str(error)
        assert spans.count("tokens") == 7  # they were paid for
        assert run(make({"output": output, "status": "incomplete"})[0])["reward"] == 0.0
    half_a_call = [{"type": "function_call", "call_id": "c", "name": "add", "arguments": "{"}]
    result = run(make({"output": half_a_call, "status": "incomplete"})[0])
    assert kinds(result["response"]["output"]) == ["function_call"]


def test_a_rollout_has_its_time_and_no_more():
    agent, desk = make(calls(("hang", {})), timeout_s=0.05)
    error = failure(agent)
    assert (type(error), str(error)) == (AgentError, "the rollout took longer than timeout_s=0.05")
    assert kinds(error.partial) == ["function_call"]
    assert desk.open_now == set()


class SlowToClose(Desk):
    """Closing a session begins, and ends when it may."""

    def setup(self) -> None:
        super().setup()
        self.began, self.may_end = asyncio.Event(), asyncio.Event()

    async def close_session(self, session: str) -> None:  # type: ignore[override]
        self.began.set()
        await self.may_end.wait()
        super().close_session(session)


@pytest.mark.parametrize("way", ["run", "respond"])
def test_a_session_that_is_being_closed_is_closed_though_the_rollout_is_cancelled(way: str):
    async def main() -> set[str]:
        desk = SlowToClose()
        agent = SimpleAgent(model=ScriptedModel(answers=["3"]), environment=desk)

        task = asyncio.create_task(agent.run(TASK) if way == "run" else agent.respond({"input": "go"}))
        await desk.began.wait()
        task.cancel()
        asyncio.get_running_loop().call_later(0, desk.may_end.set)
        with pytest.raises(asyncio.CancelledError):
            await task
        return desk.open_now

    assert asyncio.run(asyncio.wait_for(main(), DEADLINE_S)) == set()


def test_a_session_that_cannot_be_closed_does_not_cost_the_rollout(caplog: pytest.LogCaptureFixture):
    assert run(make("3", env={"close_fails": True})[0])["reward"] == 1.0
    assert "a session could not be closed" in caplog.text


def test_a_verifier_that_fails_leaves_the_conversation_and_its_tokens_and_cannot_rewrite_it():
    agent, desk = make(calls(("add", {"a": 1, "b": 2})), "3")
    with root("rollout") as spans:
        error = failure(agent, {**TASK, "unscorable": True})
    assert (type(error), str(error)) == (VerifyError, "verify: KeyError: 'expected'")
    assert kinds(error.partial) == ["function_call", "function_call_output", "message"]
    assert (spans.count("tokens"), desk.open_now) == (27, set())

    class Forger(Desk):
        async def verify(self, task: dict[str, Any], response: Any) -> dict[str, Any]:
            return {"reward": 1.0, "responses_create_params": {"input": "easy"}, "response": {"output": []}}

    result = run(SimpleAgent(model=ScriptedModel(answers=["hi"]), environment=Forger(), offer_tools=False))
    assert result["responses_create_params"] == {"input": "go"}
    assert kinds(result["response"]["output"]) == ["message"]


class Odd:
    """A model that returns, or raises, what it was made with."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.asked: list[dict[str, Any]] = []

    async def respond(self, request: dict[str, Any]) -> Any:
        self.asked.append(request)
        answer = self._answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (None, "the answer is not an object but None"),
        ({"output": [{"type": "function_call_output"}]}, "output[0]: a model may not produce a function_call_output"),
        ({"output": [{"content": "3"}], "usage": {"total_tokens": 2**64 - 1}}, "usage.total_tokens is 1844674407370"),
        ({"output": ["text"]}, "output[0]: not an object but 'text'"),
        ({"output": [{"type": "function_call", "call_id": "c"}]}, 'output[0]: function_call: "name" is not a text'),
        (RuntimeError("cuda"), "model call: RuntimeError: cuda"),
        (SystemExit(3), "model call: SystemExit: 3"),
        (ModelError("401", status=401), "401"),
    ],
)
def test_garbage_from_a_model_is_the_models_error_and_the_session_is_closed(answer: Any, text: str):
    good = {"output": [{"type": "function_call", "call_id": "c", "name": "linger"}]}  # no arguments are empty ones
    agent, desk = make(model=Odd(good, answer))
    error = failure(agent)
    assert (type(error), str(error).startswith(text)) == (ModelError, True), str(error)
    assert (kinds(error.partial), desk.open_now) == (["function_call", "function_call_output"], set())


def test_every_call_of_the_model_is_given_the_whole_conversation_and_the_sampling_fields():
    reasoning = {"type": "reasoning", "summary": []}
    call = {"type": "function_call", "call_id": "c", "name": "linger", "arguments": "{}"}
    model = Odd({"output": [reasoning, call]}, {"output": [{"content": "3"}]})
    params = {"input": [{"role": "system", "content": "s"}], "temperature": 0.5, "tools": []}
    run(make(model=model)[0], {**TASK, "responses_create_params": params})
    answered = {"type": "function_call_output", "call_id": "c", "output": "done"}
    assert model.asked == [params, {**params, "input": [*params["input"], reasoning, call, answered]}]


def test_token_counts_add_up_and_odd_ones_are_passed_over():
    total: dict[str, Any] = {}
    add_usage(total, {"total_tokens": 3, "details": {"cached": 1}, "note": "x", "odd": {}})
    add_usage(total, {"total_tokens": 4, "details": {"cached": 2}, "odd": 5})
    add_usage(total, {"total_tokens": {"a": 1}, "details": 7, "none": None})
    assert total == {"total_tokens": 7, "details": {"cached": 3}, "odd": {}}
