"""Worker processes: the same rollouts as without them, each once, whatever becomes of a worker."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import Any

import orjson
import pytest

import velodrome as velo
from tests.support.worker_runs import HERE, Sums, agent, answer, collect, model, rows, tasks, together, verify
from velodrome.errors import InputError

pytestmark = pytest.mark.slow


def test_the_rollouts_are_those_of_a_run_without_workers_every_worker_makes_some_and_the_limit_is_the_runs(
    tmp_path: Path,
):
    alone, several = tmp_path / "alone.jsonl", tmp_path / "several.jsonl"

    one = collect(tasks(30), agent(), out=alone, repeats=2)
    two = collect(tasks(30), together(2, tmp_path), out=several, repeats=2, workers=2, parallel=8)

    assert rows(several) == rows(alone)
    pids = {orjson.loads(line)["pid"] for line in several.read_bytes().splitlines()}
    assert (len(pids), HERE in pids) == (2, False)
    counted = {name for name in one.metrics if not name.startswith(("throughput", "pid"))}
    assert {name: two.metrics[name] for name in counted} == {name: one.metrics[name] for name in counted}
    assert two.profile is not None
    assert two.profile["rollouts"] == 60
    timing = [orjson.loads(line)["meta"]["timing"] for line in several.read_bytes().splitlines()]
    assert {each["limit"] for each in timing} == {8}
    assert max(each["in_flight"] for each in timing) <= 8


@pytest.mark.parametrize(
    ("trap", "ending"),
    [({"trap": "verify"}, "signal SIGKILL"), ({"responses_create_params": {"input": "look trap"}}, "exit code 3")],
)
def test_a_task_that_ends_two_workers_fails_and_the_others_run_again(tmp_path: Path, trap: dict[str, Any], ending: str):
    out = tmp_path / "r.jsonl"
    several = tasks(20)
    several[7] |= trap

    run = collect(several, agent(), out=out, workers=2, parallel=2)  # no other job is in flight with it

    assert (run.kept, run.failed, run.left) == (19, 1, 0)
    (failure,) = run.failures
    assert (failure["key"], failure["boundary"]) == ("t7/0", "agent")
    assert f"2 worker processes ended while this rollout was in flight, the last with {ending}" in failure["error"]
    assert sorted(rows(out)) == sorted(f"t{number}/0" for number in range(20) if number != 7)


def test_a_component_that_cannot_be_sent_to_a_worker_or_made_there_is_reported_and_nothing_runs(tmp_path: Path):
    class Locked(Sums):
        def __reduce__(self) -> Any:
            return threading.Lock().__reduce_ex__(4)

    class Moody(Sums):
        def setup(self) -> None:
            if os.getpid() != HERE:
                raise InputError("not in this process")

    for environment, problem in ((Locked(), "cannot be sent to another process: .*lock"), (Moody(), "not in this pro")):
        agent = velo.SimpleAgent(model=model, environment=environment)
        with pytest.raises(InputError, match=problem):
            collect(tasks(3), agent, out=tmp_path / "r.jsonl", workers=2)
    assert list(tmp_path.iterdir()) == []


class Counted(velo.ScriptedModel):
    """One for all workers."""

    shared = True
    made: str = ""

    def setup(self) -> None:
        super().setup()
        with open(self.made, "a") as file:
            file.write(f"{os.getpid()}\n")


def test_a_shared_component_is_made_once_and_serves_every_worker(tmp_path: Path):
    made = tmp_path / "made"
    agent = velo.SimpleAgent(model=Counted(answers=["yes"], made=str(made)), environment=Sums())

    run = collect(tasks(30), agent, out=tmp_path / "r.jsonl", workers=2)

    assert (run.kept, run.metrics["reward"]) == (30, 1.0)
    assert made.read_text() == f"{HERE}\n"


def test_rollouts_are_scored_by_workers_too(tmp_path: Path):
    collect(tasks(20), agent(), out=tmp_path / "r.jsonl", defer=True)
    run = verify(tmp_path / "r.jsonl", Sums(), workers=2)
    assert (run.kept, run.metrics["reward"], HERE in {row["pid"] for row in run.rollouts}) == (20, 1.0, False)


async def careless(request: dict[str, Any]) -> Any:
    logging.getLogger("careless").warning("%d", "not a number")
    logging.getLogger("careless").warning("half a pair: \ud800")
    return answer(request)


def test_a_careless_log_line_fails_no_rollout(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    agent = velo.SimpleAgent(model=careless, environment=Sums())

    run = collect(tasks(4), agent, out=tmp_path / "r.jsonl", workers=2)

    assert (run.kept, run.failed) == (4, 0)
    assert "half a pair: \\ud800" in caplog.text
