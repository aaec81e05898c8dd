"""A server that refuses every call, such as for a wrong key, stops the run, wherever it is asked from."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import velodrome as velo
from tests.support.worker_runs import Sums, model, tasks
from velodrome import http
from velodrome.collector.result import REFUSED, Run
from velodrome.errors import CallError, ModelError, RolloutError, VerifyError
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.serving import wire
from velodrome.serving.scripted import ScriptedServer

REFUSES = {"kind": "status", "status": 401, "body": "wrong key"}


class Judged(velo.Environment):
    judge: velo.Model

    async def verify(self, task: dict[str, Any], response: Any) -> dict[str, Any]:
        return {"reward": float((await self.judge.ask("Is it right?")).text == "yes")}


def served(faults: list[Any], use: Callable[[velo.OpenAI], Awaitable[Any]]) -> Any:
    """What `use` makes of a model whose server has these faults."""

    async def whole() -> Any:
        async with ScriptedServer(ScriptedModel(answers=["yes"], faults=faults)) as server:
            try:
                return await use(velo.OpenAI(server.url, "m", endpoint="responses", backoff_s=0.0))
            finally:
                await http.close_shared()

    return asyncio.run(whole())


@pytest.mark.slow
@pytest.mark.parametrize("where", ["workers", "judge"])
def test_a_key_that_a_server_refuses_to_workers_or_a_judge_stops_the_run(where: str) -> None:
    async def use(refused: velo.OpenAI) -> Run:
        if where == "judge":
            live = velo.SimpleAgent(model=model, environment=Judged(judge=refused))
            return await velo.collect(tasks(100), live, parallel=4, progress=False)
        live = velo.SimpleAgent(model=refused, environment=Sums())
        return await velo.collect(tasks(100), live, parallel=4, workers=2, progress=False)

    run = served([REFUSES], use)
    assert (run.stopped, run.exit_code, run.kept) == (REFUSED, 2, 0)
    assert run.requested == run.failed + run.left
    assert run.failed < 50


def test_refusals_between_rollouts_that_are_kept_are_failures_like_any_other() -> None:
    async def use(refused: velo.OpenAI) -> Run:
        live = velo.SimpleAgent(model=refused, environment=Sums())
        return await velo.collect(tasks(40), live, parallel=1, progress=False)

    run = served([{**REFUSES, "status": 403, "every": 2}], use)
    assert (run.kept, run.failed, run.stopped) == (20, 20, None)


def test_a_refusal_is_one_behind_servers_and_behind_the_code_that_asked_too() -> None:
    def caused(error: RolloutError, call: CallError) -> RolloutError:
        error.__cause__ = call
        return error

    unknown, wrong = (
        CallError("no", status=400, excerpt="model_not_found"),
        CallError("no", status=400, excerpt="top_p"),
    )
    for error, refused in (
        (ModelError("no", status=404), True),
        (caused(VerifyError("judge: no"), unknown), True),
        (caused(VerifyError("judge: no"), wrong), False),
        (ModelError("slow down", status=429), False),
    ):
        behind = wire.error_in(wire.error_body(error))
        assert behind is not None
        assert (error.refused, behind.refused) == (refused, refused)
