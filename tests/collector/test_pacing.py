"""`auto` in real collections: what it is told, and where its decisions can be read."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

import velodrome as velo
from velodrome.collector.attempt import Attempt, Failed
from velodrome.collector.pace import Auto, Fixed, Pacing
from velodrome.collector.plan import Job
from velodrome.records.rollout import beside
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.scope import Scope
from velodrome.serving.scripted import ScriptedServer

Json = dict[str, Any]


class Anything(velo.Environment):
    def verify(self, task: Json, response: Any) -> Json:
        return {"reward": 1.0}


class Idle:
    """An executor of which nothing is asked but its limit."""

    limit = 0
    in_flight = 100


async def unhurried(request: Json) -> str:
    await asyncio.sleep(0.02)
    return "a"


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_the_decisions_of_a_run_are_in_its_rows_and_its_profile(tmp_path: Path, workers: int):
    agent, out = velo.SimpleAgent(model=unhurried, environment=Anything()), tmp_path / "rollouts.jsonl"
    tasks = [f"task {number}" for number in range(250)]  # a second at four in flight: time for a decision
    run = asyncio.run(velo.collect(tasks, agent, out=out, parallel="auto", workers=workers, progress=False))
    assert (run.kept, run.failed) == (250, 0)
    written = [change for row in run.rollouts for change in row["meta"]["timing"].get("pace", [])]
    assert written[0] == [4, 8, "try more"]
    assert [[each["from"], each["to"], each["why"]] for each in run.profile["pace"]] == written
    assert velo.profile(out)["pace"] == orjson.loads(beside(out, "profile.json").read_bytes())["pace"]


def attempt(rate_limited: int) -> Attempt:
    timing = {"total_s": 1.0, "rate_limited": rate_limited}
    return Attempt(Job("a/0", 0, 0, "", {}), Failed({"boundary": "tool"}), timing, 0)


def paced(report: Any, pace: Any = None) -> tuple[int, list[Any]]:
    """The limit, and what was decided, after these reports to a pace that starts at a hundred."""

    async def main() -> tuple[int, list[Any]]:
        async with Scope() as call:
            executor: Any = Idle()
            around: dict[str, Any] = {}
            pacing = Pacing(pace or Auto(start=100), executor, around)
            report(pacing, call)
            pacing.apply()
            return executor.limit, around.get("pace", [])

    return asyncio.run(main())


def test_429s_count_when_they_happen_or_with_their_rollouts_if_another_server_met_them():
    def at_once(pacing: Pacing, call: Scope) -> None:
        for _ in range(5):
            call.rate_limited(0.0)
        for _ in range(5):
            pacing.finished(attempt(rate_limited=1), 100)

    def later(pacing: Pacing, call: Scope) -> None:
        for _ in range(3):
            pacing.finished(attempt(rate_limited=2), 100)

    assert paced(at_once) == paced(later, Fixed(100)) == (100, [])
    assert paced(later) == (90, [[100, 90, "429"]])


def test_a_429_on_the_wire_is_reported_at_once_with_its_retry_after():
    async def main() -> tuple[list[float], int]:
        refusals: list[float] = []
        faults = [{"kind": "status", "status": 429, "retry_after_s": 0.01, "times": 1}]
        async with ScriptedServer(ScriptedModel(answers=["a"], faults=faults)) as server, Scope() as call:
            call.rate_limited = refusals.append
            model = velo.OpenAI(server.url, "m", backoff_s=0.0, endpoint="responses")
            await model.respond({"input": "a"})
            return refusals, server.model.calls

    assert asyncio.run(main()) == ([0.01], 2)
