"""A model's answer as server-sent events, in the form of either OpenAI endpoint.

Both come from the events of a streamed Response: `/v1/responses` passes them on with numbers, `/v1/chat/completions`
turns them into chunks. For a model that does not stream they are made from its finished answer.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial

from velodrome.contracts import Json, Model, events_of
from velodrome.errors import ModelError, blame
from velodrome.relay import Put, relayed
from velodrome.serving.apps.chat_chunks import ChatChunks
from velodrome.serving.apps.choices import usage_of_all

Event = tuple[str | None, Json | None]


async def response_events(model: Model, request: Json, *, name: str = "") -> AsyncGenerator[Event, None]:
    """(name, data) of each event of `/v1/responses`; `name` is the model's if its answer has none."""
    number = 0
    async with aclosing(events_of(model, request, name)) as events:
        async for event in events:
            yield event["type"], {**event, "sequence_number": number}
            number += 1


async def chat_events(
    model: Model, requests: Sequence[Json], *, counted: bool, name: str = ""
) -> AsyncGenerator[Event, None]:
    """(None, chunk) of `/v1/chat/completions`, with a choice for each request, and (None, None) for its [DONE]."""
    head: Json = {}
    choices = [ChatChunks(index, head, counted=counted) for index in range(len(requests))]
    async with aclosing(_side_by_side(model, requests, name)) as events:
        with blame(ModelError, "model"):
            async for index, event in events:
                for chunk in choices[index].of(event):
                    yield None, chunk
    if counted:
        yield None, {**head, "choices": [], "usage": usage_of_all(choice.usage for choice in choices)}
    yield None, None


async def _side_by_side(model: Model, requests: Sequence[Json], name: str) -> AsyncGenerator[tuple[int, Json], None]:
    """The events of several calls as they come, each with the number of its call."""

    async def call(index: int, request: Json, put: Put[tuple[int, Json]]) -> None:
        async with aclosing(events_of(model, request, name)) as events:
            async for event in events:
                await put((index, event))

    if len(requests) == 1:
        async with aclosing(events_of(model, requests[0], name)) as events:
            async for event in events:
                yield 0, event
        return
    works = [partial(call, index, request) for index, request in enumerate(requests)]
    async with aclosing(relayed(*works)) as all_events:
        async for numbered in all_events:
            yield numbered
