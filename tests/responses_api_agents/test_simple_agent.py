"""The loop of model and tools: what ends it, what is told to the model, and sessions that are always closed."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import orjson
import pytest
from patience import DEADLINE_S

from velodrome import Environment, tool
from velodrome.errors import AgentError, InputError, ModelError, RolloutError, ToolError, VerifyError
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent, add_usage
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


def test_a_score_does_not_say_what_was_asked_or_answered():
    class Forger(Desk):
        async def verify(self, task: dict[str, Any], response: Any) -> dict[str, Any]:
            return {"reward": 1.0, "responses_create_params": {"input": "easy"}, "response": {"output": []}}

    result = run(SimpleAgent(model=ScriptedModel(answers=["hi"]), environment=Forger(), offer_tools=False))
    assert result["responses_create_params"] == {"input": "go"}
    assert kinds(result["response"]["output"]) == ["message"]


def test_a_task_with_nothing_to_ask_is_blamed_on_the_input_and_instructions_are_something():
    agent, desk = make("It is 3")
    error = failure(agent, {"responses_create_params": {"input": []}})
    assert (error.boundary, str(error)) == (
        "input",
        'the task has nothing to ask ("input" is empty); simple_agent brings no prompt of its own, so give the task '
        "one, or an agent or an environment that does",
    )
    assert (desk.opened, desk.open_now) == (1, set())
    agent, _ = make("It is 3")
    assert run(agent, {"responses_create_params": {"input": [], "instructions": "Say 3."}, "expected": "3"})["reward"]


def test_without_verify_there_is_no_score():
    agent, desk = make("3")
    result = run(agent, verify=False)
    assert result.keys() == {"responses_create_params", "expected", "response"}
    assert desk.open_now == set()


def test_a_task_that_names_its_tools_gets_those_and_no_others():
    agent, _ = make("3")
    task = {**TASK, "responses_create_params": {"input": "go", "tools": []}}
    assert run(agent, task)["responses_create_params"] == {"input": "go", "tools": []}
    agent, _ = make("3", offer_tools=False)
    assert run(agent)["responses_create_params"] == {"input": "go"}


def test_tool_calls_of_one_turn_really_run_side_by_side():
    agent, _ = make(calls(("meet", {}), ("meet", {})), "3")
    assert outputs(run(agent)) == ["met", "met"]
    agent, desk = make(calls(*[("linger", {})] * 5), "3")
    assert outputs(run(agent)) == ["done"] * 5
    assert desk.most_at_once == 5


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


def test_a_bug_in_a_tool_fails_the_rollout_with_the_conversation_so_far():
    agent, desk = make(calls(("add", {"a": 1, "b": 1})), calls(("explode", {})), "3")
    error = failure(agent)
    assert (type(error), str(error)) == (ToolError, "explode: ZeroDivisionError: oops")
    assert kinds(error.partial) == ["function_call", "function_call_output", "function_call"]
    assert desk.open_now == set()


def test_a_bug_in_one_of_several_tools_is_that_tools_error_and_ends_the_others():
    agent, desk = make(calls(("hang", {}), ("explode", {}), ("add", {"a": 1, "b": 1})), "3")
    error = failure(agent)
    assert (type(error), str(error)) == (ToolError, "explode: ZeroDivisionError: oops")
    assert kinds(error.partial) == ["function_call"] * 3
    assert desk.open_now == set()


@pytest.mark.parametrize("metadata", ["a text", {"stop": "my own label"}])
def test_a_response_out_of_steps_says_so_whatever_the_model_has_as_metadata(metadata: Any):
    call = {"type": "function_call", "call_id": "c", "name": "add", "arguments": '{"a": 1, "b": 2}'}
    response = run(make({"id": "r", "output": [call], "metadata": metadata}, max_steps=1)[0])["response"]
    assert (response["status"], response["metadata"]) == ("incomplete", {"stop": "max_steps"})


def test_max_steps_ends_a_model_that_never_stops_calling():
    agent, desk = make(calls(("add", {"a": 1, "b": 2})), max_steps=3)
    with root("rollout") as spans:
        result = run(agent)
    assert outputs(result) == ["3", "3", "3"]
    assert result["response"]["status"] == "incomplete"
    assert result["response"]["incomplete_details"] is None
    assert result["response"]["metadata"] == {"stop": "max_steps"}
    assert (result["calls"], desk.open_now) == (3, set())
    assert [part.name for part in spans.children] == ["session", *["model", "tool:add"] * 3, "verify", "session"]


def test_calls_of_one_turn_share_a_span_and_a_single_call_is_its_own():
    add = ("add", {"a": 1, "b": 2})
    agent, _ = make(calls(add, add), calls(add), "3")
    with root("rollout") as spans:
        run(agent)
    assert [
        (part.name, [each.name for each in part.children if each.name != "limit:threads"])
        for part in spans.children[1:-2]
    ] == [
        ("model", []),
        ("tools", ["tool:add", "tool:add"]),
        ("model", []),
        ("tool:add", []),
        ("model", []),
    ]


def test_an_answer_that_was_cut_off_is_the_last_one():
    cut = {
        "status": "incomplete",
        "output": [{"type": "function_call", "call_id": "c", "name": "add", "arguments": "{"}],
    }
    result = run(make(cut)[0])
    assert kinds(result["response"]["output"]) == ["function_call"]
    assert result["response"]["status"] == "incomplete"


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


@pytest.mark.parametrize(
    "item",
    [
        {"type": "function_call_output", "call_id": "c0", "output": "3"},
        {"role": "user", "content": "well done"},
    ],
)
def test_what_only_its_caller_can_say_is_refused_from_a_model(item: dict[str, Any]):
    good = {"output": [{"type": "function_call", "call_id": "c0", "name": "linger", "arguments": "{}"}]}
    error = failure(make(model=Odd(good, {"output": [item, {"type": "message", "content": "3"}]}))[0])
    assert (type(error), kinds(error.partial)) == (ModelError, ["function_call", "function_call_output"])
    assert "output[0]: a model may not" in str(error)


def test_a_token_count_out_of_bounds_is_the_models_fault():
    answer = {"output": [{"type": "message", "content": "3"}], "usage": {"input_tokens": 4, "total_tokens": 2**64 - 1}}
    with root("rollout") as spans:
        error = failure(make(answer)[0])
    assert (type(error), spans.count("tokens")) == (ModelError, 0)
    assert "usage.total_tokens" in str(error)


def test_a_rollout_has_its_time_and_no_more():
    agent, desk = make(calls(("hang", {})), timeout_s=0.05)
    error = failure(agent)
    assert (type(error), str(error)) == (AgentError, "the rollout took longer than timeout_s=0.05")
    assert kinds(error.partial) == ["function_call"]
    assert desk.open_now == set()


class SlowToClose:
    """An environment of a bare class: closing a session begins, and ends when it may."""

    def __init__(self) -> None:
        self.began, self.may_end = asyncio.Event(), asyncio.Event()
        self.closed = 0

    async def open(self, task: dict[str, Any]) -> str:
        return "s1"

    async def close(self, session: str) -> None:
        self.began.set()
        await self.may_end.wait()
        self.closed += 1

    async def tools(self) -> list[dict[str, Any]]:
        return []

    async def call(self, session: str, name: str, arguments: Any) -> str:
        raise AssertionError

    async def score(self, session: str, task: dict[str, Any], response: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError

    async def deferrable(self) -> bool:
        return False

    async def aclose(self) -> None: ...


@pytest.mark.parametrize("way", ["run", "respond", "stream"])
def test_a_session_that_is_being_closed_is_closed_though_the_rollout_is_cancelled(way: str):
    async def main() -> int:
        environment = SlowToClose()
        agent = SimpleAgent(model=ScriptedModel(answers=["3"]), environment=environment)

        async def work() -> None:
            if way == "run":
                await agent.run(TASK, verify=False)
            elif way == "respond":
                await agent.respond({"input": "go"})
            else:
                async for _ in agent.stream({"input": "go"}):
                    pass

        task = asyncio.create_task(work())
        await environment.began.wait()
        task.cancel()
        asyncio.get_running_loop().call_later(0, environment.may_end.set)
        with pytest.raises(asyncio.CancelledError):
            await task
        return environment.closed

    assert asyncio.run(asyncio.wait_for(main(), DEADLINE_S)) == 1


def test_a_session_that_cannot_be_closed_does_not_cost_the_rollout(caplog: pytest.LogCaptureFixture):
    assert run(make("3", env={"close_fails": True})[0])["reward"] == 1.0
    assert "a session could not be closed" in caplog.text


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
        ({}, '"output" is not a list but None'),
        ({"output": ["text"]}, "output[0]: not an object but 'text'"),
        (
            {"output": [{"type": "function_call", "call_id": "c"}]},
            'output[0]: function_call: "name" is not a text but None',
        ),
        ({"output": [{"content": "3"}], "usage": [1]}, "usage is not an object but [1]"),
        (RuntimeError("cuda"), "model call: RuntimeError: cuda"),
        (TimeoutError(), "model call: TimeoutError"),
        (SystemExit(3), "model call: SystemExit: 3"),
        (ModelError("401", status=401), "401"),
    ],
)
def test_garbage_from_a_model_is_the_models_error_and_the_session_is_closed(answer: Any, text: str):
    good = {"output": [{"type": "function_call", "call_id": "c", "name": "linger"}]}  # no arguments are empty ones
    agent, desk = make(model=Odd(good, answer))
    error = failure(agent)
    assert (type(error), str(error)) == (ModelError, text)
    assert kinds(error.partial) == ["function_call", "function_call_output"]
    assert desk.open_now == set()


def test_every_call_of_the_model_is_given_the_whole_conversation_and_the_sampling_fields():
    reasoning = {"type": "reasoning", "summary": []}
    call = {"type": "function_call", "call_id": "c", "name": "linger", "arguments": "{}"}
    model = Odd({"output": [reasoning, call]}, {"output": [{"content": "3"}]})
    params = {"input": [{"role": "system", "content": "s"}], "temperature": 0.5, "tools": []}
    run(make(model=model)[0], {**TASK, "responses_create_params": params})
    assert model.asked == [
        params,
        {
            **params,
            "input": [
                {"role": "system", "content": "s"},
                reasoning,
                call,
                {"type": "function_call_output", "call_id": "c", "output": "done"},
            ],
        },
    ]


def test_a_conversation_can_be_continued_without_a_score():
    async def main() -> dict[str, Any]:
        agent, desk = make(calls(("add", {"a": 1, "b": 2})), "It is {tool_result}")
        response = await agent.respond({"input": "go"})
        assert desk.open_now == set()
        await desk.aclose()
        return response

    response = asyncio.run(main())
    assert kinds(response["output"]) == ["function_call", "function_call_output", "message"]
    orjson.dumps(response)


def test_token_counts_add_up_and_odd_ones_are_passed_over():
    total: dict[str, Any] = {}
    add_usage(total, {"total_tokens": 3, "details": {"cached": 1}, "note": "x", "odd": {}})
    add_usage(total, {"total_tokens": 4, "details": {"cached": 2}, "odd": 5})
    add_usage(total, {"total_tokens": {"a": 1}, "details": 7, "none": None})
    assert total == {"total_tokens": 7, "details": {"cached": 3}, "odd": {}}


def test_a_sum_of_tokens_that_the_server_left_out_is_made():
    message = {"type": "message", "role": "assistant", "content": "3"}
    script = {"output": [message], "usage": {"input_tokens": 4, "output_tokens": 5}}
    agent, _ = make(script)
    assert run(agent)["response"]["usage"]["total_tokens"] == 9


def test_the_tokens_of_a_rollout_that_fails_are_counted_in_its_spans():
    agent, desk = make(calls(("add", {"a": 1, "b": 2})), "3")
    with root("rollout") as spans:
        error = failure(agent, {**TASK, "unscorable": True})
    assert (type(error), str(error)) == (VerifyError, "verify: KeyError: 'expected'")
    assert kinds(error.partial) == ["function_call", "function_call_output", "message"]
    assert (spans.count("tokens"), desk.open_now) == (27, set())


@pytest.mark.parametrize("missing", ["model_server", "resources_server"])
def test_an_agent_without_a_model_or_an_environment_is_a_mistake_in_the_config(missing: str):
    links = {"model_server": Odd(), "resources_server": Desk()}
    del links[missing]
    with pytest.raises(InputError, match=f'SimpleAgent: "{missing}" is required'):
        SimpleAgent(**links)
