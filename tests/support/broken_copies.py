"""Broken copies of an environment: for each rule of `velo test` a subclass, or other tasks, with one planted fault.

A fault is generic: it wraps what every environment has (open, call, score, close), or adds a tool.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from velodrome import tool
from velodrome.examiner.subject import Subject

Json = dict[str, Any]


def paid(score: Json, change: Callable[[float], float]) -> Json:
    """The score with other rewards: the one, or those of each player."""
    rewards = {player: change(reward) for player, reward in score.get("rewards", {}).items()}
    return {**score, "reward": change(score["reward"]), **({"rewards": rewards} if rewards else {})}


def few(owner: Any) -> Any:
    """A copy that says less: one wrong answer and one cheat per task, so that a fault is found soon."""

    class Few(owner):
        def wrong_answers(self, task: Json) -> Json:
            return dict(itertools.islice(super().wrong_answers(task).items(), 1))

        def cheats(self, task: Json) -> Json:
            return dict(itertools.islice(super().cheats(task).items(), 1))

    return Few


def scoring(change: Callable[[Json, Json], Json]) -> Callable[[Any], Any]:
    """Copies whose score is what this makes of the right one and the response."""

    def copy(owner: Any) -> Any:
        class Scoring(owner):
            async def score(self, session: str, task: Json, response: Json) -> Json:
                return change(await super().score(session, task, response), response)

        return Scoring

    return copy


def paid_for_nothing(score: Json, response: Json) -> Json:
    said = "".join(part["text"] for item in response["output"] for part in item.get("content") or ())
    return score if said.strip() else paid(score, lambda reward: 1.0)


def crowd_shy(owner: Any) -> Any:
    """The score depends on how many rollouts are under way."""

    class CrowdShy(owner):
        under_way = set()  # noqa: RUF012 - not a setting

        async def open(self, task: Json) -> str:
            session: str = await super().open(task)
            self.under_way.add(session)
            return session

        async def close(self, session: str) -> None:
            self.under_way.discard(session)
            await super().close(session)

        async def score(self, session: str, task: Json, response: Json) -> Json:
            return {**await super().score(session, task, response), "alone": len(self.under_way) < 2}

    return CrowdShy


def brittle(owner: Any) -> Any:
    """A tool raises KeyError for a word that it does not know."""

    class Brittle(owner):
        @tool
        async def capital_of(self, country: str) -> str:
            """The capital of a country."""
            return {"Norway": "Oslo"}[country]

    return Brittle


def forgetful(owner: Any) -> Any:
    """The task of the rollout is kept on the class, so the last one to start is everybody's."""

    class Forgetful(owner):
        async def open(self, task: Json) -> str:
            Forgetful.latest = task
            return await super().open(task)

        async def score(self, session: str, task: Json, response: Json) -> Json:
            return {**await super().score(session, task, response), "of": Forgetful.latest["id"]}

    return Forgetful


def noting(owner: Any) -> Any:
    """Something is passed from one call to another in the task, which is another copy over HTTP."""

    class Noting(owner):
        async def open(self, task: Json) -> str:
            task["noted"] = True
            return await super().open(task)

        async def score(self, session: str, task: Json, response: Json) -> Json:
            noted = bool(task.pop("noted", False))
            return {**await super().score(session, task, response), "has_note": noted}

    return Noting


COPIES: dict[str, Callable[[Any], Any]] = {
    "references": scoring(lambda score, _: paid(score, lambda reward: min(reward, 0.9))),
    "wrong-answers": scoring(lambda score, _: paid(score, lambda reward: 1.0)),
    "garbage": scoring(paid_for_nothing),
    "cheats": scoring(lambda score, _: paid(score, lambda reward: max(reward, 0.01))),  # a try earns a little
    "deterministic": scoring(lambda score, _: {**score, "mood": random.random()}),
    "order-and-load": crowd_shy,
    "tools": brittle,
    "sessions": forgetful,
    "served": noting,
}


def broken(subject: Subject, rule: str) -> Subject:
    """The subject with the fault that this rule is to find."""
    owner = few(type(subject.make()))
    settings = {**owner.example_settings(), "executor": "thread"}  # a score of its own is not for other processes
    made = COPIES[rule](owner) if rule in COPIES else owner
    answered = made(**settings)
    rows = [row for row in subject.rows if answered.reference_answer(row.task) and answered.wrong_answers(row.task)]
    rows = [rows[0], rows[0]] if rule == "data" else rows  # two tasks have one id
    return replace(subject, make=lambda: made(**settings), rows=rows)
