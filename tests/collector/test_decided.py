"""`stop_task_when`: repeats of decided tasks are not run, and they are counted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

import velodrome as velo
from velodrome.errors import InputError

Json = dict[str, Any]

REWARDS = {  # of each task's repeats
    "always": [1.0, 1.0, 1.0, 1.0],
    "never": [0.0, 0.0, 0.0, 0.0],
    "late": [0.0, 0.0, 1.0, 0.0],
    "graded": [0.25, 0.5, 0.25, 0.75],
}
TASKS = [{"id": name, "responses_create_params": {"input": name}} for name in REWARDS]


class Scripted:
    """Rewards by task and by how often the task was run before. `fails` are runs that fail the first time."""

    def __init__(self, *fails: tuple[str, int]) -> None:
        self.ran: list[str] = []
        self.fails = set(fails)

    async def run(self, task: Json) -> Json:
        name = task["id"]
        turn = self.ran.count(name)
        self.ran.append(name)
        if (name, turn) in self.fails:
            raise ValueError("no luck")
        return {"output": "x", "reward": REWARDS[name][turn]}


def collect(agent: Any, out: Path | None = None, tasks: Any = TASKS, parallel: int = 1, **settings: Any) -> velo.Run:
    return asyncio.run(velo.collect(tasks, agent, out=out, repeats=4, parallel=parallel, progress=False, **settings))


@pytest.mark.parametrize(
    ("rule", "runs"),
    [
        (None, {"always": 4, "never": 4, "late": 4, "graded": 4}),
        ("solved", {"always": 1, "never": 4, "late": 3, "graded": 4}),
        ("settled", {"always": 4, "never": 4, "late": 3, "graded": 2}),
    ],
)
def test_a_decided_task_has_no_more_repeats_and_they_are_counted(tmp_path: Path, rule: Any, runs: dict[str, int]):
    agent, out = Scripted(), tmp_path / "r.jsonl"
    run = collect(agent, out, stop_task_when=rule)
    skipped = 16 - sum(runs.values())
    assert {name: agent.ran.count(name) for name in REWARDS} == runs
    assert (run.requested, run.kept, run.failed, run.skipped, run.left) == (16, 16 - skipped, 0, skipped, 0)
    assert (run.exit_code, run.metrics.get("rollouts/skipped", 0)) == (0, skipped)
    entry = orjson.loads((tmp_path / "r.run.json").read_bytes())["runs"][-1]
    assert entry.get("skipped", 0) == skipped
    assert (f"{skipped} skipped (stop_task_when)" in run.summary()) == bool(skipped)


def test_what_the_output_decides_is_not_run_again_and_without_the_setting_it_is(tmp_path: Path):
    agent, out = Scripted(), tmp_path / "r.jsonl"
    collect(agent, out, tasks=TASKS[:1], stop_task_when="solved")  # as a run that was stopped leaves it
    for _ in range(2):
        again = collect(agent, out, stop_task_when="solved")
        assert (again.kept, again.skipped, again.left, len(agent.ran)) == (12, 4, 0, 12)
    whole = collect(Scripted(), out)
    assert (whole.kept, whole.skipped) == (16, 0)


def test_a_failure_decides_nothing_and_is_tried_again_unless_its_task_is_decided(tmp_path: Path):
    agent, out = Scripted(("always", 0), ("never", 1)), tmp_path / "r.jsonl"
    run = collect(agent, out, stop_task_when="solved")
    assert (run.kept, run.failed, run.skipped) == (1 + 3 + 3 + 4, 2, 3 - 1 + 1)
    assert run.requested == run.kept + run.failed + run.skipped
    agent.fails.clear()
    agent.ran.clear()
    again = collect(agent, out, stop_task_when="solved")
    assert (agent.ran, again.kept, again.failed, again.skipped) == (["never"], 12, 0, 4)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"stop_task_when": "solved", "defer": True}, "defer_verification"),
        ({"stop_task_when": "solved", "tasks": iter(TASKS)}, "a file or a list"),
    ],
)
def test_what_cannot_be_decided_is_one_clear_line(settings: Json, says: str):
    agent = Scripted()
    with pytest.raises(InputError, match=says):
        collect(agent, **settings)
    assert agent.ran == []
