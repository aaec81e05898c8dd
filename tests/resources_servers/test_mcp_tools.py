"""`mcp_tools` against servers of the official SDK: real processes, real pipes, real HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer
from patience import DEADLINE_S

from velodrome.errors import InputError, TaskError, ToolError
from velodrome.records.conversation import Response
from velodrome.resources_servers.environment import tool
from velodrome.resources_servers.mcp_tools.app import McpTools
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.serving.process.listen import listening
from velodrome.serving.web_server import running

Json = dict[str, Any]
Says = Callable[..., Json]
SERVER = ["{python}", str(Path(__file__).with_name("mcp_server.py"))]
EXAMPLES = Path(__file__).parents[2] / "velodrome/resources_servers/mcp_tools/data/example.jsonl"
TASKS = [json.loads(line) for line in EXAMPLES.read_text().splitlines()]


def using(check: Callable[[McpTools], Awaitable[Any]], **settings: Any) -> Any:
    """What a check returns; the environment is closed after it."""

    async def whole() -> Any:
        environment = McpTools(**{"command": SERVER, **settings})
        try:
            return await check(environment)
        finally:
            await environment.aclose()

    return asyncio.run(whole())


def in_session(*calls: tuple[str, Any], **settings: Any) -> list[str]:
    """The results of calls in one session."""

    async def check(environment: McpTools) -> list[str]:
        session = await environment.open({})
        results = [await environment.call(session, name, arguments) for name, arguments in calls]
        await environment.close(session)
        return results

    results: list[str] = using(check, **settings)
    return results


async def gone(pid: int) -> None:
    """Wait for the end of a process that is not a child."""
    for _ in range(int(DEADLINE_S * 100)):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{pid} still runs")


def test_tools_and_their_schemas_are_those_of_the_server():
    tools = {each["name"]: each for each in using(lambda environment: environment.tools())}
    assert list(tools) == ["remember", "variables_of_it", "picture", "record", "refuse", "die", "hang"]
    assert tools["remember"]["parameters"]["properties"]["note"]["type"] == "string"
    assert tools["remember"]["description"] == "Keep a note; how many there are."
    few = using(lambda environment: environment.tools(), only_tools=["variables.of/it"])
    assert [each["name"] for each in few] == ["variables_of_it"]
    with pytest.raises(ToolError, match="has no nothing; there are: remember"):
        using(lambda environment: environment.tools(), only_tools=["nothing"])


def test_results_become_text():
    results = in_session(
        ("remember", {"note": "a"}), ("picture", {}), ("record", {"size": 2}), max_tool_output_bytes=1000
    )
    assert results[0] == "1"
    assert results[1] == "look:\n[image: image/png, 3 bytes]"
    assert json.loads(results[2]) == {"text": "éé"}
    (cut,) = in_session(("record", {"size": 5000}), max_tool_output_bytes=100)
    assert "[cut: the first 100 of" in cut


def test_what_the_server_refuses_is_told_to_the_model():
    wrong, refused, unknown, no_object = in_session(
        ("remember", {"nota": 1}), ("refuse", {}), ("remembr", {}), ("remember", [1])
    )
    assert wrong.startswith("error:")
    assert "note" in wrong
    assert refused.startswith("error:")
    assert "the moon is wrong" in refused
    assert unknown == 'error: there is no tool "remembr"; did you mean "remember"?'
    assert no_object == "error: remember: the arguments must be a JSON object"


def test_a_server_that_dies_is_a_fault_of_the_tool_with_its_last_words():
    with pytest.raises(ToolError, match=r"die: MCP server .*\(exit code 3: out of cheese\)"):
        in_session(("die", {}))
    (told,) = in_session(("die", {}), tell_tool_errors=True)
    assert told.startswith("error: die: ")


def test_a_server_that_hangs_is_given_up_and_ended(tmp_path: Path):
    pids = tmp_path / "pids"

    async def check(environment: McpTools) -> None:
        session = await environment.open({})
        with pytest.raises(ToolError, match=r"hang: .*0.5"):
            await environment.call(session, "hang", {})
        await environment.close(session)

    using(check, command=[*SERVER, str(pids)], tool_timeout_s=0.5)
    for pid in pids.read_text().split():
        asyncio.run(gone(int(pid)))


@pytest.mark.parametrize("command", ["sleep 1000", "yes", "cat /dev/zero"])
def test_a_server_that_never_says_anything_of_use_is_given_up(command: str):
    with pytest.raises(ToolError, match=f"MCP server {command}"):
        using(lambda environment: environment.open({}), command=command, session_timeout_s=1.0)


def test_each_session_has_a_server_of_its_own_unless_one_is_shared():
    async def check(environment: McpTools) -> list[str]:
        first, second = await asyncio.gather(environment.open({}), environment.open({}))
        return [await environment.call(session, "remember", {"note": "x"}) for session in (first, second, first)]

    assert using(check) == ["1", "1", "2"]
    assert using(check, per_session=False) == ["1", "2", "3"]


def test_a_shared_server_that_died_is_started_again():
    async def check(environment: McpTools) -> str:
        session = await environment.open({})
        with pytest.raises(ToolError):
            await environment.call(session, "die", {})
        return await environment.call(session, "remember", {"note": "x"})

    assert using(check, per_session=False) == "1"


def test_sixty_four_sessions_of_the_example_do_not_mix():
    async def check(environment: McpTools) -> list[str]:
        async def one(pieces: int) -> str:
            session = await environment.open({})
            await environment.call(session, "reserve", {"item": "washer", "pieces": pieces})
            left = await environment.call(session, "count_stock", {"item": "washer"})
            await environment.close(session)
            return left

        return await asyncio.gather(*(one(pieces) for pieces in range(1, 65)))

    assert using(check, **McpTools.example_settings()) == [str(120 - pieces) for pieces in range(1, 65)]


def test_secrets_of_the_server_are_masked_and_ours_are_not_passed_on(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "ours-and-nobody-elses")
    own, ours = in_session(
        ("variables_of_it", {"name": "SERVICE_TOKEN"}),
        ("variables_of_it", {"name": "OPENAI_API_KEY"}),
        env={"SERVICE_TOKEN": "hunter2hunter2"},
    )
    assert (own, ours) == ("***", "(not set)")


def test_a_server_ends_when_velo_is_killed(tmp_path: Path):
    pids = tmp_path / "pids"
    script = f"""
import asyncio
from velodrome.resources_servers.mcp_tools.app import McpTools
async def main():
    environment = McpTools(command={[*SERVER, str(pids)]!r})
    session = await environment.open({{}})
    print("open", flush=True)
    await environment.call(session, "hang", {{}})
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        process.send_signal(signal.SIGKILL)
    asyncio.run(gone(int(pids.read_text())))


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"command": "no-such-program-here --flag"}, "there is no program 'no-such-program-here'"),
        ({"command": None}, "give one of command and mcp_url"),
        ({"command": "true", "mcp_url": "http://127.0.0.1:1/mcp"}, "give one of command and mcp_url"),
        ({"command": None, "mcp_url": "127.0.0.1:1"}, "mcp_url is an http:// or https:// URL"),
    ],
)
def test_a_setting_that_cannot_work_is_one_line(settings: Json, line: str):
    with pytest.raises(InputError, match=line):
        McpTools(**settings)


@pytest.mark.parametrize(
    "settings", [{"command": ["{python}", "-c", "import sys; sys.exit('no licence')"]}, {"url": 1}]
)
def test_a_server_that_does_not_start_says_why(settings: Json):
    wanted = "did not start: .*exit code 1: no licence"
    if "url" in settings:
        settings, wanted = (
            {"command": None, "mcp_url": "http://127.0.0.1:9/mcp"},
            "9/mcp cannot be reached; is it running",
        )
    with pytest.raises(ToolError, match=wanted):
        using(lambda environment: environment.open({}), **settings)


def test_a_server_by_url():
    server = MCPServer("counting")

    @server.tool()
    def double(number: int) -> int:
        """Twice a number."""
        return 2 * number

    async def check() -> str:
        with listening("mcp", "127.0.0.1", 0, None, way="") as sock:

            async def app() -> Any:
                return server.streamable_http_app()

            async with running(app, [sock], drain_s=1):
                url = f"http://127.0.0.1:{sock.getsockname()[1]}/mcp"
                environment = McpTools(mcp_url=url)
                session = await environment.open({})
                result = await environment.call(session, "double", {"number": 21})
                await environment.close(session)
                await environment.aclose()
                return result

    assert asyncio.run(check()) == "42"


class Shop(McpTools):
    """The server's tools, and one of its own that hides another."""

    async def seed_session(self, task: Json) -> list[str]:
        return []

    @tool
    async def note(self, text: str, session: list[str]) -> int:
        """Write something down."""
        session.append(text)
        return len(session)

    @tool
    async def refuse(self) -> str:
        """In place of the server's."""
        return "never"

    async def verify(self, task: Json, response: Response, session: list[str]) -> float:  # type: ignore[override]
        return float(session == ["a"] and response.tool_calls[-1].output == "1")


def test_tools_of_a_server_mix_with_those_of_an_environment():
    script = [
        {"tool_calls": [{"name": "note", "arguments": {"text": "a"}}]},
        {"tool_calls": [{"name": "refuse", "arguments": {}}]},
        {"tool_calls": [{"name": "remember", "arguments": {"note": "b"}}]},
        "done",
    ]

    async def check() -> Json:
        shop = Shop(command=SERVER)
        try:
            return await SimpleAgent(model=ScriptedModel(answers=script), environment=shop).run("go")
        finally:
            await shop.aclose()

    result = asyncio.run(check())
    outputs = [item["output"] for item in result["response"]["output"] if item["type"] == "function_call_output"]
    assert (result["reward"], outputs) == (1.0, ["1", "never", "1"])


def played(environment: McpTools, task: Json, answer: Any) -> Awaitable[Json]:
    answers = answer if isinstance(answer, list) else [answer]
    return SimpleAgent(model=ScriptedModel(answers=answers), environment=environment).run(task)


@pytest.mark.parametrize("task", TASKS, ids=[task["id"] for task in TASKS])
def test_reference_answers_earn_the_reward_and_wrong_ones_and_cheats_do_not(task: Json):
    async def check(environment: McpTools) -> list[float]:
        answers = [
            environment.reference_answer(task),
            *environment.wrong_answers(task).values(),
            *environment.cheats(task).values(),
        ]
        return [(await played(environment, task, answer))["reward"] for answer in answers]

    first, *others = using(check, **McpTools.example_settings())
    assert first == 1.0
    assert set(others) == {0.0}


@pytest.mark.parametrize(
    ("text", "expected", "reward"),
    [
        ("The total is 1,081.", "1081", 1.0),
        ("Thinking about nuts.\n**The answer is Nut.**\n", "nut", 1.0),
        ("nut\nbolt", "nut", 0.0),
        ("The answer is a bolt or a nut", "nut", 0.0),
        ("doughnut", "nut", 0.0),
        ("", "nut", 0.0),
        ("x" * 3_000_000, "nut", 0.0),
        ("[" * 100_000, 3, 0.0),
        ("\ud800 nut\x00", "nut", 0.0),
    ],
)
def test_the_answer_is_the_last_number_or_the_last_line(says: Says, text: str, expected: Any, reward: float):
    score = using(
        lambda environment: environment.score("1", {"expected_answer": expected}, says(text)),
        **McpTools.example_settings(),
    )
    assert score == {"reward": reward, "answer_right": reward}


@pytest.mark.parametrize("task", [{}, {"expected_calls": "reserve"}])
def test_a_task_that_says_nothing_of_what_is_right_is_at_fault(says: Says, task: Json):
    with pytest.raises(TaskError, match="expected_calls"):
        using(lambda environment: environment.score("1", task, says("x")), **McpTools.example_settings())
