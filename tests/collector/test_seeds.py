"""Seeds of model calls: reruns agree, repeats and other seeds differ, for every agent and every model."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

import velodrome as velo
from tests.support import hosted as hosting
from velodrome import Environment, ScriptedModel, SimpleAgent, http, tool
from velodrome.collector.attempt import Kept, attempt
from velodrome.collector.plan import Job
from velodrome.context import RolloutContext, rollout_seed
from velodrome.contracts import as_agent, as_model
from velodrome.errors import InputError
from velodrome.responses_api_models.openai_model.app import OpenAI
from velodrome.serving.remote import HttpAgent, HttpModel, HttpResources

TASKS = [{"id": f"t{number}", "responses_create_params": {"input": f"task {number}"}} for number in range(6)]
CALL = {"tool_calls": [{"name": "look", "arguments": {}}]}


class Judged(Environment):
    """One tool, and a reward that a judge gives."""

    judge: velo.Model | None = None

    @tool
    async def look(self) -> str:
        """Look."""
        return "seen"

    async def verify(self, task: dict[str, Any], response: Any) -> float:
        return 1.0 if self.judge is None else float((await self.judge.ask("how good?")).text)


def agent(model: Any = None, judge: Any = None) -> SimpleAgent:
    script = ScriptedModel(answers=[CALL, [f"answer {number}" for number in range(1000)]])
    return SimpleAgent(model=model or script, environment=Judged(judge=judge))


def rows(lines: Any) -> dict[str, dict[str, Any]]:
    """Rollouts by key, without times."""
    result = {}
    for line in lines:
        row = orjson.loads(line)
        meta = {name: row["meta"][name] for name in row["meta"] if name not in ("timing", "finished_at")}
        response = {name: value for name, value in row["response"].items() if name != "created_at"}
        result[meta["key"]] = {**row, "meta": meta, "response": response}
    return result


def collected(out: Path, **settings: Any) -> dict[str, dict[str, Any]]:
    settings = {"repeats": 3, "progress": False, **settings}
    asyncio.run(velo.collect(TASKS, agent(), out=out, **settings))
    return rows(out.read_bytes().splitlines())


def texts(made: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {key: row["output"][-1]["content"] for key, row in made.items()}


def test_the_same_seed_gives_the_same_rollouts_another_gives_others_and_repeats_differ(tmp_path: Path):
    first = collected(tmp_path / "1.jsonl", seed=7, parallel=4)
    again = collected(tmp_path / "2.jsonl", seed=7, parallel=1)
    other = collected(tmp_path / "3.jsonl", seed=8)
    assert len(first) == 18
    assert first == again
    assert all(text != texts(other)[key] for key, text in texts(first).items())
    assert len(set(texts(first).values())) > 15


def test_a_resumed_run_gives_what_an_undisturbed_one_gives(tmp_path: Path):
    whole = collected(tmp_path / "whole.jsonl", seed=7)
    stopped = collected(tmp_path / "stopped.jsonl", seed=7, max_total_tokens=60, parallel=2)
    assert 0 < len(stopped) < len(whole)
    assert collected(tmp_path / "stopped.jsonl", seed=7) == whole


def test_another_seed_is_not_mixed_into_an_output_unless_allowed_and_a_negative_one_is_refused(tmp_path: Path):
    out = tmp_path / "out.jsonl"
    collected(out, seed=7, repeats=1)
    with pytest.raises(InputError, match="seed: was 7, now"):
        collected(out, seed=8, repeats=2)
    with pytest.raises(InputError, match="seed"):
        collected(tmp_path / "other.jsonl", seed=-1)
    assert len(collected(out, seed=8, repeats=2, allow_mixed=True)) == 12


class Asked:
    """A model of somebody's own that writes down the seeds it gets."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def respond(self, request: dict[str, Any]) -> dict[str, Any]:
        self.seen.append(request.get("seed"))
        calls = request["input"][-1].get("type") == "function_call_output" or not request.get("tools")
        item: dict[str, Any] = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
        if calls:
            item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "0.5"}]}
        return {"output": [item]}

    async def aclose(self) -> None: ...


def run(live: Any, task: dict[str, Any] = TASKS[0], *, seed: int | None = 7, key: str = "t0/0") -> Any:
    async def main() -> Any:
        try:
            return await attempt(Job(key, 0, 0, "agent", task, seed=seed), {"agent": as_agent(live)}, verify=True)
        finally:
            await http.close_shared()

    return asyncio.run(main())


def test_each_turn_has_its_own_seed_in_31_bits_and_a_judge_has_its_own():
    model, judge = Asked(), Asked()
    assert isinstance(run(agent(model, judge)).result, Kept)
    asked = [*model.seen, *judge.seen]
    assert (len(model.seen), len(judge.seen), len(set(asked))) == (2, 1, 3)
    assert all(0 <= seed < 2**31 for seed in asked)
    more, unasked, own = Asked(), Asked(), Asked()
    run(agent(more, Asked()), key="t0/1")
    run(agent(unasked), seed=None)
    run(agent(own), {"responses_create_params": {"input": "go", "seed": 5}})
    assert not set(more.seen) & set(model.seen)
    assert (unasked.seen, own.seen) == ([None, None], [5, 5])  # a task keeps its own


def test_any_agent_that_calls_a_model_sends_seeds(wire: Any):
    """A function as an agent, which knows nothing of seeds, with each model of the house."""
    answer = {"id": "r", "output": [{"type": "message", "role": "assistant", "content": "x"}]}
    script = ScriptedModel(function=lambda request: str(request["seed"]))
    seen: list[Any] = []

    async def function(request: dict[str, Any]) -> str:
        seen.append(request["seed"])
        return "x"

    async def main() -> list[Any]:
        async with wire(wire.reply(200, answer)) as server:
            settings = {"base_url": f"{server.url}/v1", "model": "m", "endpoint": "responses"}
            models = [OpenAI(**settings), HttpModel(server.url), as_model(function), script]

            async def asks(task: dict[str, Any]) -> dict[str, Any]:
                for model in models:
                    response = await model.respond({"input": "go"})
                stream = [event async for event in models[0].stream({"input": "go"})]  # type: ignore[attr-defined]
                return {"reward": len(stream), "response": response}

            job = Job("t0/0", 0, 0, "agent", TASKS[0], seed=7)
            made = await attempt(job, {"agent": as_agent(asks)}, verify=True)
            await http.close_shared()
            assert isinstance(made.result, Kept)
            text = orjson.loads(made.result.line)["output"][-1]["content"]
            requests = [each.json["seed"] for each in server.seen]
            return [*requests[:2], *seen, int(text), *requests[2:]]

    here = RolloutContext(seed=rollout_seed(7, "t0/0"))
    assert asyncio.run(main()) == [here.next_seed("model") for _ in range(5)]


@pytest.mark.slow
def test_a_served_agent_environment_and_model_get_the_seeds_that_embedded_ones_get():
    model, judge = Asked(), Asked()
    run(agent(model, judge))
    there, judges = Asked(), Asked()
    with (
        hosting.hosted("resources_servers", lambda: Judged(judge=judges)) as resources,
        hosting.hosted("responses_api_models", lambda: there) as served,
        hosting.hosted(
            "responses_api_agents",
            lambda: SimpleAgent(model=HttpModel(served), environment=HttpResources(resources)),
        ) as url,
    ):
        made = run(HttpAgent(url))
    assert isinstance(made.result, Kept)
    assert (there.seen, judges.seen) == (model.seen, judge.seen)
