"""Where our own time goes, and what its spans cost.

    python -m benchmarks.train.account SECONDS AGENTS...

The share outside forward, backward, environment and teacher is from the loop's own account. The cost of the spans is
that of opening, closing and counting as many with nothing inside, over an epoch; epochs with and without them in turns
say the same with more noise.
"""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from statistics import median
from typing import Any

import orjson
import torch

from benchmarks.summary import Json
from benchmarks.train import ours
from benchmarks.train.cases import Case
from velodrome.timing.spans import root
from velodrome.training.run.session import Session
from velodrome.training.run.time_account import TimeAccount

INSIDE = ("rollout/student_forward", "rollout/teacher", "rollout/environment", "update/forward", "update/backward")

_NOTHING: Any = nullcontext()


def shares(account: TimeAccount) -> Json:
    """Of the time of rollouts and updates, by part."""
    spent = account.whole
    total = spent["rollout"].sum + spent["update"].sum
    parts = {name: times.sum / total for name, times in spent.items() if name.count("/") == 1}
    return {"parts": parts, "outside": 1 - sum(parts.get(name, 0.0) for name in INSIDE)}


def spans_cost(run: Session, seconds: float) -> float:
    """The share of its speed that a run loses to its spans: blocks of epochs with and without, in turns."""
    part, used = run.tracer.part, [0.0, 0.0]
    began = time.process_time()
    ours.epoch(run)
    block = max(1, round(0.03 / (time.process_time() - began)))
    turn = 0
    while sum(used) < seconds or turn % 4:
        plain = turn % 4 in (1, 2)  # on, off, off, on: what drifts falls on both
        run.tracer.part = (lambda name: _NOTHING) if plain else part  # type: ignore[method-assign]
        began = time.process_time()
        for _ in range(block):
            ours.epoch(run)
        used[plain] += time.process_time() - began
        turn += 1
    run.tracer.part = part  # type: ignore[method-assign]
    return used[0] / used[1] - 1


def spans_alone(run: Session) -> float:
    """Seconds that the spans of one epoch and their account take, with nothing inside them."""
    part, names = run.tracer.part, []

    def heard(name: str) -> Any:
        names.append(name)
        return part(name)

    run.tracer.part = heard  # type: ignore[method-assign]
    ours.epoch(run)
    run.tracer.part = part  # type: ignore[method-assign]
    costs = []
    for _ in range(50):
        account = TimeAccount()
        began = time.process_time()
        with root("rollout") as rollout:
            for name in names:
                with part(name):
                    pass
        with root("update") as update:
            pass
        account.add("ppo", 1, rollout, update)
        timed = time.process_time()
        for _name in names:
            with _NOTHING:
                pass
        costs.append((timed - began) - (time.process_time() - timed))
    return median(costs)


def run(seconds: float, sizes: list[int]) -> Json:
    torch.set_num_threads(1)
    result: Json = {}
    for agents in sizes:
        for supervised in (False, True):
            with ours.begun(Case("hub", agents), supervised=supervised) as made:
                for _ in range(2):
                    ours.epoch(made)
                cost = spans_cost(made, 2 * seconds)
                made.account = TimeAccount()
                began, count = time.process_time(), 0
                while time.process_time() - began < seconds:
                    ours.epoch(made)
                    count += 1
                each = (time.process_time() - began) / count
                report = shares(made.account)
                phase = "supervised" if supervised else "ppo"
                result[f"{phase} {agents}"] = {**report, "spans_in_turns": cost, "spans": spans_alone(made) / each}
    return result


if __name__ == "__main__":
    print(orjson.dumps(run(float(sys.argv[1]), [int(each) for each in sys.argv[2:]])).decode())
