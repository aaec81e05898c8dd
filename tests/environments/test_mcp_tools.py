"""`mcp_tools` against servers of the official SDK: real processes, real pipes, real HTTP."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer

from tests.resources_servers.playing import Json, closing, opened
from tests.support.patience import DEADLINE_S
from velodrome.environments.mcp_tools.app import McpTools
from velodrome.errors import InputError, ToolError
from velodrome.resources_servers.environment import tool
from velodrome.serving.process.listen import listening
from velodrome.serving.web_server import running

pytestmark = pytest.mark.slow
SERVER = ["{python}", str(Path(__file__).with_name("mcp_server.py"))]


def using(check: Callable[[McpTools], Awaitable[Any]], **settings: Any) -> Any:
    """What a check of an environment returns."""
    environment = McpTools(**{"command": SERVER, **settings})
    return closing(environment, check(environment))


def in_session(*calls: tuple[str, Any], **settings: Any) -> list[str]:
    """The results of calls in one session."""
    return opened(McpTools(**{"command": SERVER, **settings}), {}, *calls)


async def gone(pid: int):
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
    *texts, record = in_session(("remember", {"note": "a"}), ("picture", {}), ("record", {"size": 2}))
    assert texts == ["1", "look:\n[image: image/png, 3 bytes]"]
    assert json.loads(record) == {"text": "éé"}
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

    async def check(environment: McpTools):
        session = await environment.open({})
        with pytest.raises(ToolError, match=r"hang: .*0.5"):
            await environment.call(session, "hang", {})
        await environment.close(session)

    using(check, command=[*SERVER, str(pids)], tool_timeout_s=0.5)
    for pid in pids.read_text().split():
        asyncio.run(gone(int(pid)))


def test_a_server_that_never_says_anything_of_use_is_given_up():
    with pytest.raises(ToolError, match="MCP server cat /dev/zero"):
        using(lambda environment: environment.open({}), command="cat /dev/zero", session_timeout_s=1.0)


def test_each_session_has_a_server_of_its_own_unless_one_is_shared():
    async def check(environment: McpTools) -> list[str]:
        first, second = await asyncio.gather(environment.open({}), environment.open({}))
        return [await environment.call(session, "remember", {"note": "x"}) for session in (first, second, first)]

    assert using(check) == ["1", "1", "2"]
    assert using(check, per_session=False) == ["1", "2", "3"]

    async def dies(environment: McpTools) -> str:
        session = await environment.open({})
        with pytest.raises(ToolError):
            await environment.call(session, "die", {})
        return await environment.call(session, "remember", {"note": "x"})

    assert using(dies, per_session=False) == "1"  # a shared server is started again


def test_secrets_of_the_server_are_masked_and_ours_are_not_passed_on(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "ours-and-nobody-elses")
    own, ours = in_session(
        ("variables_of_it", {"name": "SERVICE_TOKEN"}),
        ("variables_of_it", {"name": "OPENAI_API_KEY"}),
        env={"SERVICE_TOKEN": "hunter2hunter2"},
    )
    assert (own, ours) == ("***", "(not set)")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"command": ["{python}", "-c", "import sys; sys.exit('no licence')"]}, "start: .*exit code 1: no licence"),
        ({"command": None, "mcp_url": "http://127.0.0.1:9/mcp"}, "9/mcp cannot be reached; is it running"),
    ],
)
def test_a_server_that_does_not_start_says_why(settings: Json, reason: str):
    with pytest.raises(ToolError, match=reason):
        opened(McpTools(**settings), {})


def test_a_setting_that_cannot_work_is_one_line():
    for settings, line in (
        ({"command": "no-such-program-here --flag"}, "there is no program 'no-such-program-here'"),
        ({"command": None}, "give one of command and mcp_url"),
        ({"command": None, "mcp_url": "127.0.0.1:1"}, "mcp_url is an http:// or https:// URL"),
    ):
        with pytest.raises(InputError, match=line):
            McpTools(**settings)


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
    async def refuse(self, session: list[str]) -> int:
        """In place of the server's."""
        session.append("a")
        return len(session)


def test_tools_of_a_server_mix_with_those_of_an_environment():
    assert opened(Shop(command=SERVER), {}, ("refuse", {}), ("remember", {"note": "b"}), ("refuse", {})) == [
        "1",
        "1",
        "2",
    ]
