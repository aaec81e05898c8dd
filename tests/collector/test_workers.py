"""Worker processes: the same rollouts as without them, each once, whatever becomes of a worker."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from patience import DEADLINE_S

import velodrome as velo
from tests.collector.worker_runs import HERE, Sums, agent, answer, collect, model, rows, tasks, together, verify
from velodrome.errors import InputError


def test_the_rollouts_are_those_of_a_run_without_workers_and_every_worker_makes_some(tmp_path: Path):
    alone, several = tmp_path / "alone.jsonl", tmp_path / "several.jsonl"

    one = collect(tasks(60), agent(), out=alone, repeats=2)
    two = collect(tasks(60), together(2, tmp_path), out=several, repeats=2, workers=2, parallel=8)

    assert rows(several) == rows(alone)
    pids = {orjson.loads(line)["pid"] for line in several.read_bytes().splitlines()}
    assert (len(pids), HERE in pids) == (2, False)
    counted = {name for name in one.metrics if not name.startswith(("throughput", "pid"))}
    assert {name: two.metrics[name] for name in counted} == {name: one.metrics[name] for name in counted}
    assert two.profile is not None
    assert two.profile["rollouts"] == 120


def test_without_an_output_the_rollouts_are_in_memory(tmp_path: Path):
    run = collect(tasks(20), agent(), workers=2)

    assert sorted(rollout.key for rollout in run.rollouts) == sorted(f"t{number}/0" for number in range(20))
    assert run.metrics["reward"] == 1.0


def test_no_more_rollouts_are_in_flight_than_the_run_allows(tmp_path: Path):
    out = tmp_path / "r.jsonl"

    collect(tasks(60), agent(), out=out, workers=3, parallel=4)

    timing = [orjson.loads(line)["meta"]["timing"] for line in out.read_bytes().splitlines()]
    assert {each["limit"] for each in timing} == {4}
    assert max(each["in_flight"] for each in timing) <= 4


@pytest.mark.parametrize(
    ("trap", "boundary"),
    [({"trap": "verify"}, "verify"), ({"responses_create_params": {"input": "look trap"}}, "tool")],
)
@pytest.mark.parametrize("parallel", [2, 6])
def test_a_task_that_ends_its_workers_fails_at_its_boundary_and_no_other_is_blamed(
    tmp_path: Path, trap: dict[str, Any], boundary: str, parallel: int
):
    out = tmp_path / "r.jsonl"
    several = tasks(30)
    several[7] |= trap

    run = collect(several, agent(), out=out, workers=2, parallel=parallel)

    assert (run.kept, run.failed, run.left) == (29, 1, 0)
    (failure,) = run.failures
    assert (failure["key"], failure["boundary"]) == ("t7/0", boundary)
    assert sorted(rows(out)) == sorted(f"t{number}/0" for number in range(30) if number != 7)


def test_what_a_worker_cannot_make_is_one_clear_line(tmp_path: Path):
    class Locked(Sums):
        def __reduce__(self) -> Any:
            return threading.Lock().__reduce_ex__(4)

    environment = Locked()
    with pytest.raises(InputError, match=r"workers: the agent cannot be sent to another process: .*lock"):
        collect(tasks(3), velo.SimpleAgent(model=model, environment=environment), workers=2)


def test_a_component_that_cannot_be_made_in_a_worker_is_reported_and_nothing_runs(tmp_path: Path):
    class Moody(Sums):
        def setup(self) -> None:
            if os.getpid() != HERE:
                raise InputError("not in this process")

    agent = velo.SimpleAgent(model=model, environment=Moody())
    with pytest.raises(InputError, match="not in this process"):
        collect(tasks(3), agent, out=tmp_path / "r.jsonl", workers=2)


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


def test_a_lost_reader_costs_nothing_but_reading_the_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("velodrome.collector.reader._FAR_BEHIND", -1)  # every frame is too much for it

    run = collect(tasks(30), agent(), out=tmp_path / "r.jsonl", workers=2)

    assert (run.metrics["reward"], run.metrics["rollouts/kept"]) == (1.0, 30)
    assert run.profile is not None


def test_rollouts_are_scored_by_workers_too(tmp_path: Path):
    deferred = tmp_path / "r.jsonl"
    collect(tasks(20), agent(), out=deferred, defer=True)

    run = verify(deferred, Sums(), workers=2)

    assert (run.kept, run.metrics["reward"]) == (20, 1.0)
    assert {orjson.loads(line)["pid"] for line in (tmp_path / "r.verified.jsonl").read_bytes().splitlines()} - {HERE}


def started_here() -> set[int]:
    """The processes that this one has started and that still run."""
    tasks = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    pids = [int(pid) for children in tasks for pid in contents(children).split()]
    return {pid for pid in pids if b"velodrome.children" in contents(Path(f"/proc/{pid}/cmdline"))}


def contents(path: Path) -> bytes:
    with suppress(OSError):  # the thread or the process has ended
        return path.read_bytes()
    return b""


@pytest.mark.parametrize("after_s", [0.0, 0.02, 0.1])
def test_a_run_that_is_cancelled_while_its_workers_start_leaves_no_process(tmp_path: Path, after_s: float):
    async def cancelled() -> None:
        run = asyncio.create_task(velo.collect(tasks(30), agent(), out=tmp_path / "r.jsonl", workers=4, progress=False))
        await asyncio.sleep(after_s)  # the moment itself, not a wait for something
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    before = started_here()
    asyncio.run(cancelled())

    until = time.monotonic() + DEADLINE_S  # one that was just being made sees only then that its parent is gone
    while started_here() - before and time.monotonic() < until:
        time.sleep(0.01)
    assert started_here() - before == set()


class Forks(Sums):
    """Leaves a process behind that holds what it inherited, and ends the worker."""

    def verify(self, task: dict[str, Any], response: Any) -> dict[str, Any]:
        if task.get("trap") and os.getpid() != HERE:
            if os.fork() == 0:
                os.setsid()
                os.execv("/bin/sleep", ["sleep", "60"])
            os.kill(os.getpid(), signal.SIGKILL)
        return super().verify(task, response)


def test_a_process_that_a_worker_leaves_behind_does_not_hold_up_the_run(tmp_path: Path):
    several = tasks(6)
    several[2]["trap"] = "fork"

    run = collect(several, velo.SimpleAgent(model=model, environment=Forks()), out=tmp_path / "r.jsonl", workers=2)

    assert (run.kept, run.failed) == (5, 1)


async def careless(request: dict[str, Any]) -> Any:
    logging.getLogger("careless").warning("%d", "not a number")
    logging.getLogger("careless").warning("half a pair: \ud800")
    return answer(request)


def test_a_careless_log_line_fails_no_rollout(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    agent = velo.SimpleAgent(model=careless, environment=Sums())

    run = collect(tasks(4), agent, out=tmp_path / "r.jsonl", workers=2)

    assert (run.kept, run.failed) == (4, 0)
    assert "half a pair: \\ud800" in caplog.text
