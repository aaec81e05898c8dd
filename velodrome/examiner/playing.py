"""Play answers against an environment: the real agent, with a model that returns them.

The model yields to the loop before each answer, so concurrent rollouts alternate step by step.
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

MAX_STEPS = 256
TIMEOUT_S = 900.0
_TIMES = ("_s", "_ms", "_us", "_ns")
_NOT_SCORE = ("responses_create_params", "response")

_messages: ContextVar[Iterator[Json]] = ContextVar("velodrome_moves")


@dataclass(frozen=True)
class AnswerCase:
    """An answer to play: its task, its kind (reference, wrong, garbage, cheat), and its name."""

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
    """The result of playing an answer: the fields of its score, or the error; and its timing."""

    case: AnswerCase
    score: Json
    error: RolloutError | None
    times: spans.Span = field(compare=False)

    @property
    def reward(self) -> float | None:
        return self.score.get("reward")

    @property
    def outcome(self) -> Json:
        """The part of the result that must not change when the answer is repeated: the score without times."""
        if self.error is not None:
            return {"failed": self.error.boundary}
        return {name: value for name, value in self.score.items() if not name.endswith(_TIMES)}

    @property
    def failure(self) -> str:
        """The error in one line; empty if there is none."""
        if self.error is None:
            return ""
        place = f" ({self.error.place})" if self.error.place else ""
        return f"the rollout failed at {self.error.boundary}: {describe(self.error)[:300]}{place}"


class Player:
    """An agent in the environment, and the model it uses."""

    name = "examiner"

    def __init__(self, environment: Any) -> None:
        settings: Json = {"model": self, "environment": environment, "max_steps": MAX_STEPS, "timeout_s": TIMEOUT_S}
        self._agent = SimpleAgent(**settings)

    async def play(self, case: AnswerCase) -> PlayedAnswer:
        """Run one rollout of the case's task with the case's answer."""
        _messages.set(answer_messages(case.answer, case.label))
        task = orjson.loads(orjson.dumps(case.task))  # a copy, because the environment may change it
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
        """The next message of the current answer."""
        await asyncio.sleep(0)
        message = next(_messages.get())
        result = last_tool_result(request)
        if result and message["content"]:
            message = {**message, "content": message["content"].replace("{tool_result}", result)}
        return complete({"model": self.name, "output": conversation.items([message])}, request)

    async def aclose(self) -> None:
        """Nothing to close."""


async def play_together(player: Player, cases: Sequence[AnswerCase]) -> list[PlayedAnswer]:
    """Play all cases concurrently."""
    return list(await asyncio.gather(*(player.play(case) for case in cases)))


def answer_messages(answer: Any, where: str = "answer") -> Iterator[Json]:
    """The messages of an answer, one per model call. The last text is repeated for any further calls."""
    entries = answer if isinstance(answer, list) else [answer]
    last_text = ""
    for step, entry in enumerate(entries):
        message = _message(entry, step, where)
        last_text = message["content"] if "tool_calls" not in message else ""
        yield message
    while True:
        yield {"role": "assistant", "content": last_text}


def _message(entry: Any, step: int, where: str) -> Json:
    if isinstance(entry, str):
        return {"role": "assistant", "content": entry}
    calls = entry.get("tool_calls") if isinstance(entry, Mapping) else None
    if not isinstance(calls, list) or not all(isinstance(call, Mapping) and "name" in call for call in calls):
        raise InputError(
            f'{where}: an answer is a text, or a list of texts and of {{"tool_calls": [{{"name", "arguments"}}],'
            f' "text"}}, not {entry!r:.80}'
        )
    tool_calls = [_call(call, f"call_{step}_{place}") for place, call in enumerate(calls)]
    return {"role": "assistant", "content": entry.get("text") or None, "tool_calls": tool_calls}


def _call(call: Mapping[str, Any], call_id: str) -> Json:
    arguments = call.get("arguments", {})
    text = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
    return {"id": call_id, "name": call["name"], "arguments": text}
