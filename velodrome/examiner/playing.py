"""Play given answers against an environment: the real agent, with a model that says them.

The model gives way before each of its answers, so rollouts that run at once really alternate, step by step.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import orjson

from velodrome.errors import InputError, RolloutError, describe
from velodrome.records import conversation
from velodrome.records.response_fields import complete
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.scripted_model.app import last_tool_result
from velodrome.timing import spans

Json = dict[str, Any]

MOST_STEPS = 256
LONGEST_S = 900.0
_TIMES = ("_s", "_ms", "_us", "_ns")
_NOT_SCORE = ("responses_create_params", "response")

_moves: ContextVar[Iterator[Json]] = ContextVar("velodrome_moves")


@dataclass(frozen=True)
class AnswerCase:
    """An answer to play: to which task, of which kind (reference, wrong, garbage, cheat), and what it is called."""

    task: Json
    task_id: str
    kind: str
    name: str
    answer: Any

    @property
    def label(self) -> str:
        return f"{self.kind}: {self.name}" if self.name else self.kind


@dataclass(frozen=True)
class PlayedAnswer:
    """What became of an answer: the fields of its score, or the error; and where its time went."""

    case: AnswerCase
    score: Json
    error: RolloutError | None
    times: spans.Span = field(compare=False)

    @property
    def reward(self) -> float | None:
        return self.score.get("reward")

    @property
    def outcome(self) -> Json:
        """What has to be the same whenever this answer is given: fields that are times are left out."""
        if self.error is not None:
            return {"failed": self.error.boundary}
        return {name: value for name, value in self.score.items() if not name.endswith(_TIMES)}

    @property
    def failure(self) -> str:
        """The error in one line; empty without one."""
        if self.error is None:
            return ""
        place = f" ({self.error.place})" if self.error.place else ""
        return f"the rollout failed at {self.error.boundary}: {describe(self.error)[:300]}{place}"


class Player:
    """A model and its agent."""

    name = "examiner"

    def __init__(self, environment: Any) -> None:
        settings: Json = {"model": self, "environment": environment, "max_steps": MOST_STEPS, "timeout_s": LONGEST_S}
        self._agent = SimpleAgent(**settings)

    async def play(self, case: AnswerCase) -> PlayedAnswer:
        """One rollout of the case's task in which the model gives the case's answer."""
        _moves.set(moves(case.answer, case.label))
        task = orjson.loads(orjson.dumps(case.task))  # of its own: what the environment writes into it stays there
        score: Json = {}
        error = None
        with spans.root("play", time.perf_counter) as times:
            try:
                result = await self._agent.run(task)
                score = {
                    name: value
                    for name, value in result.items()
                    if name not in _NOT_SCORE and not (name in task and value is task[name])
                }
            except RolloutError as failure:
                error = failure
        return PlayedAnswer(case, score, error, times)

    async def respond(self, request: Json) -> Json:
        """The next move of the answer that is being played."""
        await asyncio.sleep(0)
        message = next(_moves.get())
        result = last_tool_result(request)
        if result and message["content"]:
            message = {**message, "content": message["content"].replace("{tool_result}", result)}
        return complete({"model": self.name, "output": conversation.items([message])}, request)

    async def aclose(self) -> None:
        """Nothing to close."""


async def play_together(player: Player, cases: Sequence[AnswerCase]) -> list[PlayedAnswer]:
    """All cases at once."""
    return list(await asyncio.gather(*(player.play(case) for case in cases)))


def moves(answer: Any, where: str = "answer") -> Iterator[Json]:
    """The messages of an answer, one per model call. The last text is repeated for as long as it is asked for."""
    entries = answer if isinstance(answer, list) else [answer]
    last = ""
    for number, entry in enumerate(entries):
        message = _message(entry, number, where)
        last = message["content"] if "tool_calls" not in message else ""
        yield message
    while True:
        yield {"role": "assistant", "content": last}


def _message(entry: Any, number: int, where: str) -> Json:
    if isinstance(entry, str):
        return {"role": "assistant", "content": entry}
    calls = entry.get("tool_calls") if isinstance(entry, Mapping) else None
    if not isinstance(calls, list) or not all(isinstance(call, Mapping) and "name" in call for call in calls):
        raise InputError(
            f'{where}: an answer is a text, or a list of texts and of {{"tool_calls": [{{"name", "arguments"}}],'
            f' "text"}}, not {entry!r:.80}'
        )
    made = [_call(call, f"call_{number}_{place}") for place, call in enumerate(calls)]
    return {"role": "assistant", "content": entry.get("text") or None, "tool_calls": made}


def _call(call: Mapping[str, Any], call_id: str) -> Json:
    arguments = call.get("arguments", {})
    text = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
    return {"id": call_id, "name": call["name"], "arguments": text}
