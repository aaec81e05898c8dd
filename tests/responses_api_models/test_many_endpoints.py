"""`openai_base_url` as a list: which endpoint gets which call of a collection, and what the profile says of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import velodrome as velo
from velodrome import Environment, OpenAI, ScriptedModel, SimpleAgent, http, tool
from velodrome.collector.attempt import attempt
from velodrome.collector.plan import Job
from velodrome.profiling.profile_text import profile_report
from velodrome.serving.scripted import ScriptedServer

TASKS = [{"id": f"t{number}", "responses_create_params": {"input": f"task {number}"}} for number in range(8)]
LOOK = {"tool_calls": [{"name": "look", "arguments": {}}]}


class Watched(Environment):
    @tool
    async def look(self) -> str:
        """Look."""
        return "seen"

    async def verify(self, task: dict[str, Any], response: Any) -> float:
        return 1.0


def upstream(wire: Any, seen: Any) -> Any:
    """A model that calls `look` three times."""
    if seen.method == "GET":
        return wire.reply(200, {"data": []})
    turns = sum(item.get("type") == "function_call_output" for item in seen.json["input"])
    item: dict[str, Any] = {"type": "function_call", "call_id": f"c{turns}", "name": "look", "arguments": "{}"}
    if turns == 3:
        item = {"type": "message", "role": "assistant", "content": "done"}
    return wire.reply(200, {"id": "r", "object": "response", "status": "completed", "output": [item]})


def agent(*servers: Any, **settings: Any) -> SimpleAgent:
    urls = [f"{server.url}/v1" for server in servers]
    model = OpenAI(urls, "m", **{"endpoint": "responses", "backoff_s": 0.0, **settings})
    return SimpleAgent(model=model, environment=Watched())


def sessions(server: Any, header: str = "X-Session-ID") -> list[str | None]:
    return [seen.headers.get(header) for seen in server.seen if seen.method == "POST"]


def collected(live: Any, out: Path, **settings: Any) -> Any:
    return velo.collect(TASKS, live, out=out, progress=False, **settings)


def test_the_calls_of_a_rollout_go_to_one_endpoint_and_carry_its_id(wire: Any, tmp_path: Path) -> None:
    async def main() -> tuple[list[Any], list[Any]]:
        async with wire(lambda seen: upstream(wire, seen)) as one, wire(lambda seen: upstream(wire, seen)) as two:
            run = await collected(agent(one, two, sticky_margin=100), tmp_path / "out.jsonl", parallel=4)
            assert run.kept == 8
            return sessions(one), sessions(two)

    one, two = asyncio.run(main())
    assert (len(one) + len(two), bool(one), bool(two), set(one) & set(two)) == (32, True, True, set())
    assert all((one + two).count(session) == 4 for session in {*one, *two})
    assert None not in (*one, *two)


def test_the_session_header_has_the_name_of_the_setting_or_is_off(wire: Any) -> None:
    async def routes(setting: str) -> list[Any]:
        async with wire(lambda seen: upstream(wire, seen)) as server:
            live = agent(server, session_header=setting)
            await attempt(Job("t/0", 0, 0, "agent", TASKS[0]), {"agent": live}, verify=True)
            await live.model.respond({"input": [{"role": "user", "content": "outside of a rollout"}]})
            await http.close_shared()
            assert sessions(server) == [None] * 5
            return sessions(server, "X-Route")

    *inside, outside = asyncio.run(routes("X-Route"))
    assert (len(inside), len(set(inside)), inside[0] is not None, outside) == (4, 1, True, None)
    assert asyncio.run(routes("")) == [None] * 5


def test_a_collection_outlives_an_endpoint_and_the_profile_has_a_table_of_them(tmp_path: Path) -> None:
    """The scripted model's server, one of two, which breaks every call."""

    async def main() -> Any:
        bad = ScriptedModel(answers=["never"], faults=[{"kind": "reset"}])
        good = ScriptedModel(answers=[LOOK, "done"])
        async with ScriptedServer(bad) as broken, ScriptedServer(good) as alive:
            model = OpenAI([broken.url, alive.url], "m", endpoint="responses", backoff_s=0.0)
            live = SimpleAgent(model=model, environment=Watched())
            run = await collected(live, tmp_path / "out.jsonl", parallel=1)
            return run, broken.url, alive.url

    run, broken, alive = asyncio.run(main())
    assert (run.kept, run.failed) == (8, 0)
    profile = run.profile
    figures = {each["name"]: (each["calls"], each["failed"]) for each in profile["endpoints"]}
    assert figures[alive] == (16, 0)
    assert figures[broken][0] == figures[broken][1] > 0
    again = velo.profile(tmp_path / "out.jsonl")
    assert again["endpoints"] == profile["endpoints"]
    table = profile_report(profile).partition("Endpoints")[2]
    assert (broken in table, alive in table) == (True, True)
