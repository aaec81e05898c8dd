"""Lines that a run says beside its result: a misspelt field of a request, and what goes on after the last rollout."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from velodrome.collector.agents import LiveAgents
from velodrome.collector.collection import Surface, collect, reassured_report
from velodrome.collector.planning.request_names import KNOWN, misspelt
from velodrome.collector.readings import RunReport
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
    lines = said(tasks, params={"max_output_token": 5})
    assert [line.partition(" It is sent")[0] for line in lines] == [
        'command line: "responses_create_params.max_output_token" is not a known field; did you mean'
        ' "max_output_tokens"?',
        'tasks:2: "responses_create_params.temperatur" is not a known field; did you mean "temperature"?',
    ]


def test_what_is_known_or_like_nothing_known_is_not_mentioned():
    assert said([task(temperature=0.5, top_k=3, vllm_xargs={"a": 1}, guided_choice=["a"])]) == []


@pytest.mark.parametrize(
    ("name", "meant"),
    [("temperatur", "temperature"), ("Temperature", "temperature"), ("top-p", "top_p"), ("max_token", "max_tokens")],
)
def test_a_near_miss_is_recognised(name: str, meant: str):
    assert dict(misspelt({name: 1, "input": "?"})) == {name: meant}


def test_no_known_field_is_taken_for_another():
    assert list(misspelt(dict.fromkeys(KNOWN))) == []


def test_a_report_that_takes_a_while_is_announced_and_a_quick_one_is_not():
    lines: list[str] = []
    report, announced = RunReport({}, [], None), asyncio.Event()

    async def slow() -> RunReport:
        await announced.wait()
        return report

    def say(line: str) -> None:
        lines.append(line)
        announced.set()

    async def quick() -> RunReport:
        return report

    assert asyncio.run(reassured_report(slow(), say, after_s=0)) is report
    assert lines == ["all rollouts are written; metrics, checks and profile are being finished"]
    assert asyncio.run(reassured_report(quick(), lines.append, after_s=60)) is report
    assert len(lines) == 1
