"""An agent as a model, and what it says without what it did.

`/v1/responses` shows the agent's own tool calls and their results as items. In chat and in Anthropic's messages a call
is a request to the caller, so `TextsOnly` leaves the calls out there: the caller sees what was said.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from velodrome.contracts import Agent, Json, Model, events_of
from velodrome.errors import AgentError, blame
from velodrome.records.conversation import TOKEN_FIELDS
from velodrome.records.events import ENDS, with_items

_SAID = {"message": "response.output_text.delta", "reasoning": "response.reasoning_text.delta"}
_APART = "\n\n"  # between the texts of two turns


class AgentModel:
    """Answers with all that the agent did. What the agent raises is an `AgentError`."""

    def __init__(self, agent: Agent, name: str = "") -> None:
        self._agent = agent
        self._name = name  # of the model, where a Response has none

    async def respond(self, request: Json) -> Json:
        with blame(AgentError, "respond"):
            return with_items(await self._agent.respond(request), AgentError)

    def stream(self, request: Json) -> AsyncGenerator[Json, None]:
        """What the agent streams; from an agent that does not, the events of its finished Response."""
        return events_of(self._agent, request, self._name, fault=AgentError, where="respond")

    async def aclose(self) -> None:
        """The agent belongs to the server."""


class TextsOnly:
    """The answers of a model without its calls and their results; texts of several turns are set apart."""

    def __init__(self, model: Model) -> None:
        self._model = model

    async def respond(self, request: Json) -> Json:
        return _texts_of(await self._model.respond(request))

    async def stream(self, request: Json) -> AsyncGenerator[Json, None]:
        shown = _Shown()
        async with aclosing(events_of(self._model, request)) as events:
            async for event in events:
                if event["type"] in ENDS:
                    yield {**event, "response": _texts_of(event["response"])}
                    return
                changed = shown.of(event)
                if changed is not None:
                    yield changed

    async def aclose(self) -> None:
        """The model belongs to the server."""


def _texts_of(response: Json) -> Json:
    output: list[Json] = []
    said: set[str] = set()
    turns: set[int] = set()  # from which something is said
    turn = 0
    for item in response["output"]:
        kind = item.get("type") or "message"
        if kind in _SAID:
            turns.add(turn)
            has_text = any(map(_text, _parts(item)))
            output.append(_item_apart(item) if has_text and kind in said else item)
            if has_text:
                said.add(kind)
        if item.get("generation_token_ids") or kind == "function_call_output":
            turn += 1
    if len(turns) > 1:  # the ids of one turn are not those of the texts of several
        output = [{name: value for name, value in item.items() if name not in TOKEN_FIELDS} for item in output]
    return {**response, "output": output}


class _Shown:
    """Which items are shown, at which place, and which of them begin with a gap."""

    def __init__(self) -> None:
        self._places: dict[int, int] = {}
        self._begun: set[int] = set()
        self._said: set[str] = set()
        self._apart: dict[int, int] = {}  # place of an item -> its part that begins with the gap

    def of(self, event: Json) -> Json | None:
        kind, index = event["type"], event.get("output_index")
        if index is None:
            return event
        if kind == "response.output_item.added" and event["item"].get("type") in _SAID:
            self._places[index] = len(self._places)
        if index not in self._places:
            return None
        event = {**event, "output_index": self._places[index]}
        if kind in _SAID.values() and event["delta"] and index not in self._begun:
            self._begun.add(index)
            if kind not in self._said:
                self._said.add(kind)
                return event
            self._apart[index] = event["content_index"]
            return {**event, "delta": _APART + event["delta"]}
        if index not in self._apart:
            return event
        if kind == "response.output_item.done":
            return {**event, "item": _item_apart(event["item"])}
        if event.get("content_index") != self._apart[index]:
            return event
        if kind == "response.content_part.done":
            return {**event, "part": _part_apart(event["part"])}
        return _part_apart(event) if kind.endswith(".done") else event


def _parts(item: Json) -> list[Json]:
    content = item.get("content")
    return [{"type": "output_text", "text": content}] if isinstance(content, str) else content or []


def _text(part: Json) -> str:
    text = part.get("text")
    return text if isinstance(text, str) else ""


def _item_apart(item: Json) -> Json:
    parts = list(_parts(item))
    first = next(index for index, part in enumerate(parts) if _text(part))
    parts[first] = _part_apart(parts[first])
    return {**item, "content": parts}


def _part_apart(part: Json) -> Json:
    return {**part, "text": _APART + _text(part)}
