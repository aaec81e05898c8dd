"""One rollout, one trace: its `traceparent` reaches every server, and the model behind them."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import hosted as hosting
import pytest
from aiohttp import web

from velodrome import Environment, http, tool
from velodrome.collector.attempt import attempt
from velodrome.collector.plan import Job
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.openai_model.app import OpenAI
from velodrome.serving.remote import HttpAgent, HttpModel, HttpResources
from velodrome.timing import trace

VALID = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TASK = {"responses_create_params": {"input": "go"}}


class Recording(Environment):
    """Writes down the trace of every call it gets."""

    def setup(self) -> None:
        self.seen: list[tuple[str, str | None]] = []

    async def seed_session(self, task: dict[str, Any]) -> None:
        self.seen.append(("seed", trace.header()))

    @tool
    async def look(self) -> str:
        """Look."""
        self.seen.append(("tool", trace.header()))
        return "seen"

    async def verify(self, task: dict[str, Any], response: Any) -> dict[str, Any]:
        self.seen.append(("verify", trace.header()))
        return {"reward": 1.0}

    async def close_session(self, session: Any) -> None:
        self.seen.append(("close", trace.header()))


class Upstream:
    """A model that calls `look` once, and writes down the header of every request."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str | None]] = []

    async def respond(self, request: web.Request) -> web.Response:
        self.seen.append(("upstream", request.headers.get("traceparent")))
        body = await request.json()
        items = body["input"] if isinstance(body["input"], list) else []
        if any(item.get("type") == "function_call_output" for item in items):
            content = [{"type": "output_text", "text": "done", "annotations": []}]
            item: dict[str, Any] = {"type": "message", "role": "assistant", "content": content}
        else:
            item = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
        return web.json_response({"id": "r", "object": "response", "status": "completed", "output": [item]})

    async def __aenter__(self) -> Upstream:
        app = web.Application()
        app.router.add_post("/v1/responses", self.respond)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._runner.cleanup()


async def served(use: Any) -> list[tuple[str, str | None]]:
    """What the upstream and the environment behind three servers see of `use(agent_url)`."""
    environment = Recording()
    async with Upstream() as upstream:
        settings = {"openai_base_url": upstream.url, "openai_model": "m", "endpoint": "responses"}
        with (
            hosting.hosted("resources_servers", lambda: environment) as resources_url,
            hosting.hosted("responses_api_models", lambda: OpenAI(**settings)) as model_url,
        ):
            links = {"environment": HttpResources(resources_url), "model": HttpModel(model_url)}
            # Servers start in threads of their own; this loop has the upstream to run meanwhile.
            agent = hosting.hosted("responses_api_agents", lambda: SimpleAgent(**links))
            agent_url = await asyncio.to_thread(agent.__enter__)
            try:
                await use(agent_url)
            finally:
                await http.close_shared()
                await asyncio.to_thread(agent.__exit__, None, None, None)
    return [*environment.seen, *upstream.seen]


WHERE = ["close", "seed", "tool", "upstream", "upstream", "verify"]


def test_one_rollout_carries_one_trace_to_every_server_and_the_next_rollout_another() -> None:
    outcomes = []

    async def two_rollouts(agent_url: str) -> None:
        for index in range(2):
            job = Job(f"task/{index}", 0, index, "agent", TASK)
            outcomes.append(await attempt(job, {job.agent: HttpAgent(agent_url)}, verify=True))

    seen = asyncio.run(served(two_rollouts))

    assert [outcome.failure for outcome in outcomes] == [None, None]
    traces = {header for _, header in seen}
    assert len(traces) == 2
    for header in traces:
        assert header is not None
        assert trace.Trace(header).header == header
        assert sorted(where for where, its in seen if its == header) == WHERE


@pytest.mark.parametrize(
    "header",
    [
        "00-" + "0" * 32 + "-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01",
        VALID.upper(),
        VALID + "-more",
        "nonsense",
        None,
    ],
)
def test_an_invalid_header_begins_a_new_trace(header: str | None) -> None:
    fresh = trace.Trace(header).header
    assert fresh != header
    assert trace.Trace(fresh).header == fresh


@pytest.mark.parametrize(("header", "kept"), [(VALID, True), ("nonsense", False)])
def test_a_valid_header_of_the_caller_is_passed_on_and_an_invalid_one_is_not(header: str, kept: bool) -> None:
    async def curl(agent_url: str) -> None:
        headers = {"traceparent": header}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{agent_url}/run", json=TASK, headers=headers) as r,
        ):
            assert r.status == 200, await r.text()

    seen = asyncio.run(served(curl))

    assert sorted(where for where, _ in seen) == WHERE
    [passed_on] = {each for _, each in seen}
    assert (passed_on == header) is kept


def test_a_later_version_is_passed_on_in_the_one_that_is_known() -> None:
    assert trace.Trace("cc" + VALID[2:] + "-what-comes-next").header == VALID
    assert trace.Trace("ff" + VALID[2:]).header != VALID


def test_outside_of_a_trace_a_call_carries_none() -> None:
    async def call() -> list[tuple[str, str | None]]:
        async with Upstream() as upstream:
            model = OpenAI(openai_base_url=upstream.url, openai_model="m", endpoint="responses")
            await model.respond({"input": "go"})
            await http.close_shared()
        return upstream.seen

    assert asyncio.run(call()) == [("upstream", None)]
