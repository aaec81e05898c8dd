"""One rollout, one trace: its `traceparent` reaches every server, and the model behind them."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from tests.support import hosted as hosting
from velodrome import Environment, http, tool
from velodrome.collector.attempt import Kept, attempt
from velodrome.collector.plan import Job
from velodrome.context import RolloutContext, current
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.openai_model.app import OpenAI
from velodrome.serving.remote import HttpAgent, HttpModel, HttpResources

VALID = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TASK = {"responses_create_params": {"input": "go"}}


def trace() -> str | None:
    rollout = current()
    return None if rollout is None else rollout.trace


class Recording(Environment):
    """Writes down the trace of every call it gets."""

    def setup(self) -> None:
        self.seen: list[tuple[str, str | None]] = []

    async def seed_session(self, task: dict[str, Any]) -> None:
        self.seen.append(("seed", trace()))

    @tool
    async def look(self) -> str:
        """Look."""
        self.seen.append(("tool", trace()))
        return "seen"

    async def verify(self, task: dict[str, Any], response: Any) -> dict[str, Any]:
        self.seen.append(("verify", trace()))
        return {"reward": 1.0}

    async def close_session(self, session: Any) -> None:
        self.seen.append(("close", trace()))


def upstream(wire: Any, seen: Any) -> Any:
    """A model that calls `look` once."""
    items = seen.json["input"] if isinstance(seen.json["input"], list) else []
    item: dict[str, Any] = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    if any(item.get("type") == "function_call_output" for item in items):
        content = [{"type": "output_text", "text": "done", "annotations": []}]
        item = {"type": "message", "role": "assistant", "content": content}
    return wire.reply(200, {"id": "r", "object": "response", "status": "completed", "output": [item]})


async def served(wire: Any, use: Any) -> list[tuple[str, str | None]]:
    """What the upstream and the environment behind three servers see of `use(agent_url)`."""
    environment = Recording()
    async with wire(partial(upstream, wire)) as server:
        settings = {"openai_base_url": f"{server.url}/v1", "openai_model": "m", "endpoint": "responses"}
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
    headers = [{name.lower(): value for name, value in seen.headers.items()} for seen in server.seen]
    return [*environment.seen, *(("upstream", each.get("traceparent")) for each in headers)]


WHERE = ["close", "seed", "tool", "upstream", "upstream", "verify"]


def test_one_rollout_carries_one_trace_to_every_server_and_the_next_rollout_another(wire: Any) -> None:
    outcomes = []

    async def two_rollouts(agent_url: str) -> None:
        for index in range(2):
            job = Job(f"task/{index}", 0, index, "agent", TASK)
            outcomes.append(await attempt(job, {job.agent: HttpAgent(agent_url)}, verify=True))

    seen = asyncio.run(served(wire, two_rollouts))

    assert [type(outcome.result) for outcome in outcomes] == [Kept, Kept]
    traces = {header for _, header in seen}
    assert len(traces) == 2
    for header in traces:
        assert header is not None
        assert RolloutContext(trace=header).trace == header
        assert sorted(where for where, its in seen if its == header) == WHERE


def test_an_invalid_header_begins_a_new_trace_and_a_later_version_is_passed_on_in_the_one_that_is_known() -> None:
    no_trace, no_span = VALID.replace(VALID[3:35], "0" * 32), VALID.replace(VALID[36:52], "0" * 16)
    for header in (no_trace, no_span, VALID.upper(), VALID + "-more", "nonsense", None, "ff" + VALID[2:]):
        fresh = RolloutContext(trace=header).trace
        assert fresh not in (header, VALID)
        assert RolloutContext(trace=fresh).trace == fresh
    assert RolloutContext(trace="cc" + VALID[2:] + "-what-comes-next").trace == VALID
