"""A model with scripted answers, latency and faults.

The answer to a call depends on its conversation, never on the order of calls: a list of answers is indexed by the
number of the model's turns, so thousands of conversations can run at once, each with its own script.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import random
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import orjson

from velodrome.context import seeded
from velodrome.contracts import Answering, Json, prompt_text
from velodrome.errors import InputError, ModelError
from velodrome.rates import counted
from velodrome.records import conversation
from velodrome.records.jsonl import read_lines
from velodrome.records.response_fields import complete_items
from velodrome.records.turns import Turn, model_turn, parse
from velodrome.responses_api_models.scripted_model.faults import Fault
from velodrome.settings.component import Component, Field

Answer = str | Json
Script = Callable[[Json], Answer]


class ScriptedModel(Answering, Component):
    """Answers from `answers`, `file` or `function`."""

    answers: list[Any] | None = Field(
        None,
        description="a list: the first answer for the model's first turn, and so on; the last one for ever after."
        " In place of an answer, a list of several: the request's `seed` chooses, without one it is the first",
    )
    file: str | Path | None = Field(
        None,
        description='JSONL of `{"match": "text", "answers": […]}`: the first line whose `match` is in the last user'
        " message",
    )
    function: str | Callable[..., Any] | None = Field(
        None, description="`file.py:name`: a function from the request to an answer; in Python the function itself"
    )
    latency_s: float = Field(0.0, ge=0, description="how long each answer takes")
    jitter_s: float = Field(0.0, ge=0, description="a random time up to this on top")
    seed: int = Field(0, description="of jitter and of faults by `rate`")
    faults: list[Fault] = Field([], description="what goes wrong, [see below](#faults)")
    model: str = Field("scripted", description="the name in its answers")

    def setup(self) -> None:
        """Read the script."""
        sources = [name for name in ("answers", "file", "function") if getattr(self, name) is not None]
        if len(sources) != 1:
            raise InputError(f"scripted_model: give one of answers, file and function, not {len(sources)} of them")
        self.name = self.model
        self._script = _script(sources[0], getattr(self, sources[0]))
        self._fault_random = random.Random(self.seed)
        self._jitter_random = random.Random(self.seed)  # separate: jitter must not change which calls fail
        self.calls = 0

    def next_fault(self) -> Fault | None:
        """Count one call; returns its fault, if any."""
        call = self.calls
        self.calls += 1
        for fault in self.faults:
            if fault.hits(call, self._fault_random):
                return fault
        return None

    @counted
    async def answer(self, request: Json) -> Turn:
        """The scripted answer; a fault that only makes sense over HTTP becomes an error."""
        request = seeded(request)
        fault = self.next_fault()
        call = self.calls
        if fault is not None:
            if fault.kind == "never":
                await asyncio.Event().wait()
            status = fault.status if fault.kind == "status" else None
            raise ModelError(f"scripted fault: {fault.kind}" + (f" {status}" if status else ""), status=status)
        await self.wait()
        scripted = self._scripted(request)
        return parse(scripted) if _is_response(scripted) else self._turn(scripted, request, call)

    async def wait(self) -> None:
        """Sleep for the latency and jitter of the settings."""
        if self.latency_s or self.jitter_s:
            await asyncio.sleep(self.latency_s + self.jitter_s * self._jitter_random.random())

    def response(self, request: Json, call: int) -> Json:
        """The Response to call number `call`, without latency and faults. A scripted Response is returned unchanged."""
        scripted = self._scripted(request)
        return scripted if _is_response(scripted) else self._turn(scripted, request, call).response(request)

    def _scripted(self, request: Json) -> Any:
        for name in ("previous_response_id", "conversation"):
            if request.get(name):
                message = f"{name}: responses are not stored; send the whole conversation as input"
                raise ModelError(f"scripted_model: {message}", status=400)
        return self._script(request)

    def _turn(self, answer: Answer, request: Json, call: int) -> Turn:
        seed = request.get("seed")
        name = f"resp_{call if seed is None else seed}"
        items = complete_items(_items(answer, request), name)
        words = sum(len(conversation.text_of(item.get("content")).split()) or 8 for item in items)
        usage = {"input_tokens": _length(request.get("input")), "output_tokens": words}
        return model_turn(items, usage, {"id": name, "model": self.name})

    async def aclose(self) -> None:
        """Nothing to close."""


def _is_response(answer: Any) -> bool:
    return isinstance(answer, dict) and "output" in answer


def _items(answer: Answer, request: Json) -> list[Json]:
    """Convert a text, or a message as in a rollouts file (`content`, `tool_calls`, …), to response items."""
    message: Json = (
        {"role": "assistant", "content": answer} if isinstance(answer, str) else {"role": "assistant", **answer}
    )
    text = message.get("content")
    if isinstance(text, str) and "{tool_result}" in text:
        message["content"] = text.replace("{tool_result}", last_tool_result(request))
    calls = []
    for index, call in enumerate(message.get("tool_calls") or ()):
        arguments = call.get("arguments", {})
        if not isinstance(arguments, str):
            arguments = orjson.dumps(arguments).decode()
        calls.append(
            {"id": call.get("id", f"call_{turn(request)}_{index}"), "name": call["name"], "arguments": arguments}
        )
    if calls:
        message["tool_calls"] = calls
    return conversation.items([message])


def turn(request: Json) -> int:
    """The number of the model's turns in this conversation; a turn with several calls counts once."""
    items = request.get("input")
    if not isinstance(items, list):
        return 0
    turns, in_turn = 0, False
    for item in items:
        is_models = item.get("role") == "assistant" or item.get("type") in ("function_call", "reasoning")
        turns += is_models and not in_turn
        in_turn = is_models
    return turns


def last_tool_result(request: Json) -> str:
    """The result of the last tool call in the conversation; empty if there is none."""
    items = request.get("input")
    for item in reversed(items if isinstance(items, list) else []):
        if item.get("type") == "function_call_output":
            return conversation.tool_text(item.get("output"))
        if item.get("role") == "tool":
            return conversation.text_of(item.get("content"))
    return ""


def _length(prompt: Any) -> int:
    if isinstance(prompt, str):
        return len(prompt.split())
    return sum(len(conversation.text_of(item.get("content")).split()) or 8 for item in prompt or ())


def _script(kind: str, source: Any) -> Script:
    if kind == "answers":
        return _by_turn(source, "answers")
    if kind == "file":
        return _by_prompt(Path(source))
    function = source if callable(source) else _by_function(source)
    if inspect.iscoroutinefunction(function):
        raise InputError("scripted_model: function is called without waiting: write `def`, not `async def`")
    return function


def _by_turn(answers: Any, where: str) -> Script:
    if not isinstance(answers, list) or not answers:
        raise InputError(f"scripted_model: {where} is a list of answers that is not empty")
    turns = [answer if isinstance(answer, list) and answer else [answer] for answer in answers]
    for answer in chain(*turns):
        if not isinstance(answer, str | Mapping):
            raise InputError(f"scripted_model: {where}: an answer is a text or a message, not {answer!r:.80}")

    def script(request: Json) -> Answer:
        choices: list[Answer] = turns[min(turn(request), len(turns) - 1)]
        seed = request.get("seed")
        return choices[seed % len(choices) if isinstance(seed, int) else 0]

    return script


def _by_prompt(path: Path) -> Script:
    scripts: list[tuple[str, Script]] = []
    for line_number, line in read_lines(path):
        try:
            row = orjson.loads(line)
            match = "" + row.get("match", "")
            scripts.append((match, _by_turn(row["answers"], f"{path}:{line_number}: answers")))
        except (orjson.JSONDecodeError, KeyError, AttributeError, TypeError) as error:
            raise InputError(
                f'{path}:{line_number}: a line is {{"match": "text of the prompt", "answers": [...]}}'
            ) from error

    def script(request: Json) -> Answer:
        prompt = prompt_text(request)
        for match, answers in scripts:
            if match in prompt:
                return answers(request)
        raise ModelError(f"scripted_model: no line of {path} matches the prompt {prompt[:80]!r}")

    return script


def _by_function(where: str) -> Script:
    path, _, name = where.rpartition(":")
    spec = importlib.util.spec_from_file_location("velodrome_script", path) if path.endswith(".py") else None
    if spec is None or spec.loader is None or not Path(path).is_file():
        raise InputError(f"scripted_model: function is file.py:name, and the file must exist; got {where!r}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise InputError(f"scripted_model: {path} has no function {name!r}")
    script: Script = function
    return script
