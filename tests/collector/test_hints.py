"""Lines that a run says beside its result: a misspelt field of a request, and what goes on after the last rollout."""

from __future__ import annotations

import asyncio
from typing import Any

from velodrome.collector.agents import LiveAgents
from velodrome.collector.collection import Surface, collect
from velodrome.collector.settings import CollectSettings
from velodrome.contracts import as_agent

Json = dict[str, Any]


async def agent(task: Json) -> Json:
    return {"output": "fine", "reward": 1.0}


def said(tasks: list[Json], **settings: Any) -> list[str]:
    """What a run of these tasks says."""
    lines: list[str] = []
    agents = LiveAgents({"agent": as_agent(agent)})
    asyncio.run(collect(CollectSettings(**settings), agents, tasks, Surface(say=lines.append)))
    return lines


def task(**params: Any) -> Json:
    return {"responses_create_params": {"input": "?", **params}}


def test_a_misspelt_field_of_tasks_or_of_the_run_is_one_line_each():
    tasks = [task(temperature=1), task(temperatur=1), task(temperatur=2, my_own_field=3)]
    tasks += [task(temperature=0.5, top_k=3, vllm_xargs={"a": 1}, guided_choice=["a"], max_token=1)]
    lines = said(tasks, params={"max_output_token": 5})
    assert [line.partition(" It is sent")[0] for line in lines] == [
        'command line: "responses_create_params.max_output_token" is not a known field; did you mean'
        ' "max_output_tokens"?',
        'tasks:2: "responses_create_params.temperatur" is not a known field; did you mean "temperature"?',
        'tasks:4: "responses_create_params.max_token" is not a known field; did you mean "max_tokens"?',
    ]
