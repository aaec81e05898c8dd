"""`speculate`: the last rollouts that take long run twice, and the first result counts."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from patience import DEADLINE_S

import velodrome as velo
from tests.collector.worker_runs import Sums, collect, rows, tasks
from velodrome.collector.executors.copies import Copies
from velodrome.errors import InputError

TOKENS = 5  # of one answer


class Hangs(Sums):
    """A task with a `hang` hangs in the first process that verifies it: it waits, or holds up the whole process.

    With `until failed` it waits until another process has failed.
    """

    folder: str

    async def verify(self, task: dict[str, Any], response: Any) -> dict[str, Any]:
        hang, failed = task.get("hang"), Path(self.folder, "failed")
        if hang and self.is_first(task["id"]):
            if hang == "block":
                time.sleep(DEADLINE_S)  # noqa: ASYNC251 - that is what it is about
            for _ in range(100 * DEADLINE_S):
                await asyncio.sleep(0.01)
                if failed.exists():
                    break
        elif hang == "until failed":
            failed.touch()
            raise ValueError("twice is too much")
        return super().verify(task, response)

    def is_first(self, name: str) -> bool:
        try:
            os.close(os.open(Path(self.folder, name), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


async def counting(request: dict[str, Any]) -> dict[str, Any]:
    text = {"type": "output_text", "text": request["input"][0]["content"], "annotations": []}
    message = {"type": "message", "role": "assistant", "status": "completed", "content": [text]}
    return {"output": [message], "usage": {"input_tokens": 2, "output_tokens": 3, "total_tokens": TOKENS}}


def agent(folder: Path) -> velo.SimpleAgent:
    return velo.SimpleAgent(model=counting, environment=Hangs(folder=str(folder)))


@pytest.mark.parametrize("hang", ["wait", "block"])
def test_a_copy_finishes_what_hangs_and_the_file_is_that_of_a_run_without(tmp_path: Path, hang: str):
    several = tasks(20)
    several[3]["hang"] = hang
    calm, out, folder = tmp_path / "calm.jsonl", tmp_path / "r.jsonl", tmp_path / "hung"
    folder.mkdir()
    (folder / "t3").touch()
    collect(several, agent(folder), out=calm, seed=5)
    (folder / "t3").unlink()

    run = collect(several, agent(folder), out=out, seed=5, workers=2, parallel=4, speculate=True)

    assert (run.requested, run.kept, run.failed, run.left) == (20, 20, 0, 0)
    assert rows(out) == rows(calm)
    assert (run.copies["made"] >= 1, run.copies["won"] >= 1) == (True, True)
    entry = orjson.loads((tmp_path / "r.run.json").read_bytes())["runs"][-1]
    assert entry["copies"] == run.copies == {name: run.metrics[f"copies/{name}"] for name in ("made", "won", "tokens")}


def test_the_tokens_of_an_attempt_that_lost_are_counted(tmp_path: Path):
    several = tasks(20)
    several[3]["hang"] = "wait"

    run = collect(several, agent(tmp_path), workers=2, parallel=4, speculate=True)

    assert run.copies["tokens"] in range(TOKENS, TOKENS * run.copies["made"] + 1, TOKENS)


def test_a_copy_that_fails_does_not_fail_what_may_still_succeed(tmp_path: Path):
    several = tasks(6)
    several[0]["hang"] = "until failed"

    run = collect(several, agent(tmp_path), workers=2, speculate=True)

    assert (tmp_path / "failed").exists()
    assert (run.kept, run.failed, run.left) == (6, 0, 0)


def test_without_it_no_rollout_runs_twice(tmp_path: Path):
    run = collect(tasks(6), agent(tmp_path), workers=2)

    assert (run.kept, run.copies) == (6, {})
    assert "copies/made" not in run.metrics


def test_without_workers_it_is_refused_and_nothing_runs(tmp_path: Path):
    with pytest.raises(InputError, match=r"speculate: .*num_workers.*executor=ray"):
        collect(tasks(6), agent(tmp_path), out=tmp_path / "r.jsonl", speculate=True)

    assert not (tmp_path / "r.jsonl").exists()


def test_with_a_recording_it_is_refused_as_the_answers_of_two_attempts_would_mix(tmp_path: Path):
    with pytest.raises(InputError, match=r"speculate: .*model_cache"):
        collect(tasks(6), agent(tmp_path), workers=2, speculate=True, model_cache=tmp_path / "answers")


def due(copies: Copies, now: float, started: int = 100) -> int | None:
    return copies.due(now, started)[0]


def test_the_oldest_gets_a_copy_once_it_takes_twice_as_long_as_half_of_the_others_and_a_percent_do_at_once():
    copies = Copies(wanted=True)
    for place in range(5):
        copies.begin(place, now=0.0)
    assert copies.due(100.0, 100)[0] is None  # nobody knows how long they take
    for place, took_s in ((0, 1.0), (1, 2.0), (2, 9.0)):
        copies.decide(place, "a", took_s, kept=True)

    assert (copies.due(3.0, 100), due(copies, 4.0)) == ((None, 1.0), 3)
    copies.make(3, "b")
    assert (due(copies, 5.0), due(copies, 5.0, started=200)) == (None, 4)
    copies.decide(3, "b", 1.0, kept=True)
    assert due(copies, 5.0) == 4
    copies.make(4, "b")
    copies.decide(4, "a", 1.0, kept=True)
    assert copies.is_lost(4, tokens=7, alone=True)
    assert (copies.counts(), due(copies, 99.0)) == ({"made": 2, "won": 1, "tokens": 7}, None)


def test_one_copy_per_rollout_and_none_of_what_must_run_alone():
    copies = Copies(wanted=True)
    for place in range(3):
        copies.begin(place, now=0.0)
    copies.decide(0, "a", 1.0, kept=True)
    copies.make(1, "b")
    assert copies.is_lost(1, tokens=0, alone=False)  # it runs elsewhere
    assert not copies.is_lost(1, tokens=0, alone=True)
    copies.begin(1, now=5.0)
    copies.leave_out(2)
    assert due(copies, 99.0, started=1000) is None


def test_a_copy_that_failed_or_whose_worker_ended_makes_room_for_the_next():
    copies = Copies(wanted=True)
    for place in range(3):
        copies.begin(place, 0.0)
    copies.decide(0, "first", 1.0, kept=True)
    assert copies.due(9.0, 3) == (1, 0.0)
    copies.make(1, "second")
    assert copies.due(9.0, 3)[0] is None  # one at once
    assert copies.is_lost(1, 5, alone=False)
    assert copies.due(9.0, 3) == (2, 0.0)


def test_a_rollout_that_ran_again_after_both_attempts_ended_is_not_won_by_a_copy():
    copies = Copies(wanted=True)
    copies.begin(1, 0.0)
    copies.make(1, "second")
    assert copies.is_lost(1, 0, alone=False)
    assert not copies.is_lost(1, 0, alone=True)
    copies.leave_out(1)
    copies.decide(1, "second", 1.0, kept=True)
    assert copies.counts() == {"made": 1, "won": 0, "tokens": 0}
