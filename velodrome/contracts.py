"""The three things a rollout is made of. Everything else in the house calls these or builds them.

A component is a plain class with these methods; its caller does not know whether it lives in this process or
behind HTTP. Requests and responses are plain JSON in OpenAI's Responses shape. A method either returns or raises a
`RolloutError` that carries its boundary.

Every component is made by keyword: a setting of its YAML block, or the live component that the block refers to under
that key (`settings/component.py`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Protocol, runtime_checkable

Json = dict[str, Any]


@runtime_checkable
class Model(Protocol):
    """Answers one `/v1/responses` call."""

    async def respond(self, request: Json) -> Json:
        """An OpenAI Responses request (`input`, `tools`, sampling fields) -> an OpenAI Response.

        `output` holds the new items only; `usage` its tokens. Raises `ModelError`.
        """
        ...

    async def aclose(self) -> None: ...


@runtime_checkable
class Streaming(Protocol):
    """What a `Model` may have besides: its answer while it is being made."""

    def stream(self, request: Json) -> AsyncGenerator[Json, None]:
        """The events of OpenAI's streamed Response (`response.created`, deltas, …), which the server numbers.

        The first comes once the request is accepted. The last is `response.completed` or `response.incomplete`; its
        `response` is what `respond` would have returned. Raises `ModelError`. Closing the iterator stops the model.
        """
        ...


@runtime_checkable
class Resources(Protocol):
    """An environment: tools, one session per rollout, and the score."""

    async def open(self, task: Json) -> str:
        """Start a session for this task and return its handle (`/seed_session`)."""
        ...

    async def call(self, session: str, name: str, arguments: Any) -> str:
        """Run one tool with its parsed arguments; the text is what the model sees.

        The model's own mistakes (no such tool, bad arguments, a `ValueError` from the tool) come back as text too.
        A tool that raises anything else, hangs, or returns what is not JSON raises `ToolError`: its fault, not the
        model's, must not become a low reward.
        """
        ...

    async def score(self, session: str, task: Json, response: Json) -> Json:
        """Verify: `reward` and any other fields (`/verify`). Raises `VerifyError`."""
        ...

    async def close(self, session: str) -> None:
        """Forget the session. Closing twice is fine."""
        ...

    async def tools(self) -> list[Json]:
        """The tools on offer, as OpenAI function tools."""
        ...

    async def deferrable(self) -> bool:
        """Whether `score` can run later, without the session the rollout had."""
        ...

    async def aclose(self) -> None: ...


@runtime_checkable
class Agent(Protocol):
    """Runs one task to its end."""

    async def run(self, task: Json, *, verify: bool = True) -> Json:
        """Model, tools, model … then verify.

        Returns the task's fields, `response` (an OpenAI Response whose `output` holds every item made on the way,
        tool results included, and whose `usage` is the sum over the calls), and the fields of the score.
        Without `verify` the score is left out.
        """
        ...

    async def respond(self, request: Json) -> Json:
        """Continue one conversation until the model stops calling tools; nothing is verified."""
        ...

    async def deferrable(self) -> bool:
        """Whether verification can be left for later."""
        ...

    async def aclose(self) -> None: ...


def as_model(thing: Any) -> Model:
    """Anything that can answer as a `Model`; ValueError for what cannot."""
    if callable(getattr(thing, "respond", None)):
        model: Model = thing
        return model
    raise ValueError(
        f"expected a model, not {thing!r:.80}: {{type: responses_api_models, name: INSTANCE}} in YAML,"
        " in Python an object with respond"
    )


def as_resources(thing: Any) -> Resources:
    """Anything that has the methods of `Resources`; ValueError for what has not."""
    if all(callable(getattr(thing, name, None)) for name in ("open", "call", "score", "close")):
        resources: Resources = thing
        return resources
    raise ValueError(
        f"expected an environment, not {thing!r:.80}: {{type: resources_servers, name: INSTANCE}} in YAML,"
        " in Python an Environment"
    )


CONVERTERS = {Model: as_model, Resources: as_resources}  # how a setting of one of these types is read
