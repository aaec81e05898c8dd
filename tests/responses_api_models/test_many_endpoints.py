"""`openai_base_url` as a list: which endpoint gets which call of a collection, and what the profile says of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import hosted as hosting
import pytest

import velodrome as velo
from velodrome import Environment, OpenAI, ScriptedModel, SimpleAgent, http, tool
from velodrome.collector.attempt import attempt
from velodrome.collector.plan import Job
from velodrome.errors import InputError
from velodrome.profiling.profile_text import profile_report
from velodrome.serving.remote import HttpAgent, HttpModel
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
    assert len(one) + len(two) == 32
    assert one
    assert two
    assert not set(one) & set(two)
    assert all((one + two).count(session) == 4 for session in {*one, *two})
    assert None not in (*one, *two)


def test_without_a_margin_the_least_busy_endpoint_gets_the_call(wire: Any, tmp_path: Path) -> None:
    async def main() -> tuple[list[Any], list[Any]]:
        async with wire(lambda seen: upstream(wire, seen)) as one, wire(lambda seen: upstream(wire, seen)) as two:
            live = agent(one, two, sticky_margin=0)
            live.model._at["responses"].targets[0].in_flight = 1  # somebody else's call, which never ends
            await collected(live, tmp_path / "out.jsonl", parallel=1)
            return sessions(one), sessions(two)

    one, two = asyncio.run(main())
    assert (len(one), len(two)) == (0, 32)


@pytest.mark.parametrize(("setting", "sent"), [("X-Route", True), ("", False)])
def test_the_session_header_has_the_name_of_the_setting_or_is_off(wire: Any, setting: Any, sent: bool) -> None:
    async def main() -> list[Any]:
        async with wire(lambda seen: upstream(wire, seen)) as server:
            live = agent(server, session_header=setting)
            await attempt(Job("t/0", 0, 0, "agent", TASKS[0]), {"agent": live}, verify=True)
            await live.model.respond({"input": [{"role": "user", "content": "outside of a rollout"}]})
            await http.close_shared()
            assert sessions(server) == [None] * 5
            return sessions(server, "X-Route")

    seen = asyncio.run(main())
    assert seen[4] is None
    assert len(set(seen[:4])) == 1
    assert (seen[0] is not None) is sent


def test_a_served_rollout_stays_with_its_endpoint_too(wire: Any) -> None:
    async def main() -> list[list[Any]]:
        async with wire(lambda seen: upstream(wire, seen)) as one, wire(lambda seen: upstream(wire, seen)) as two:
            urls = [f"{server.url}/v1" for server in (one, two)]
            model = OpenAI(urls, "m", endpoint="responses", sticky_margin=100)
            with hosting.hosted("responses_api_models", lambda: model) as model_url:
                live = SimpleAgent(model=HttpModel(model_url), environment=Watched())
                served = hosting.hosted("responses_api_agents", lambda: live)
                url = await asyncio.to_thread(served.__enter__)
                try:
                    for number in range(4):
                        job = Job(f"t/{number}", 0, number, "agent", TASKS[0])
                        assert (await attempt(job, {"agent": HttpAgent(url)}, verify=True)).failure is None
                finally:
                    await http.close_shared()
                    await asyncio.to_thread(served.__exit__, None, None, None)
            return [sessions(one), sessions(two)]

    one, two = asyncio.run(main())
    assert sorted((one + two).count(session) for session in {*one, *two}) == [4, 4, 4, 4]
    assert not set(one) & set(two)


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
    assert broken in table
    assert alive in table


def test_a_rollout_over_one_endpoint_has_no_span_for_it(tmp_path: Path) -> None:
    async def main() -> Any:
        async with ScriptedServer(ScriptedModel(answers=["done"])) as alive:
            live = SimpleAgent(model=OpenAI([alive.url], "m", endpoint="responses"), environment=Watched())
            return await collected(live, tmp_path / "out.jsonl")

    run = asyncio.run(main())
    assert run.profile["endpoints"] == []
    assert b"endpoint:" not in (tmp_path / "out.jsonl").read_bytes()


@pytest.mark.parametrize(
    "settings",
    [
        {"base_url": ["http://a/v1", "http://a/v1/"]},
        {"base_url": ["http://a/v1", "b"]},
        {"base_url": []},
        {"sticky_margin": -1},
        {"health_check_s": 0},
        {"session_header": "X-Session\n"},
    ],
)
def test_a_mistake_in_the_settings_is_one_clear_line(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(settings))):
        OpenAI(**{"base_url": "http://a/v1", "model": "m", **settings})
