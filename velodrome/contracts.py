"""The three components of a rollout. Everything else in the package calls them or builds them.

A component is a plain class with these methods; its caller does not know whether it lives in this process or
behind HTTP. Requests and responses are plain JSON in OpenAI's Responses shape. A method either returns or raises a
`RolloutError` that carries its boundary.

Every component is created by keyword (`settings/component.py`). Where a model, an environment or an agent is expected,
the functions at the end of this module also accept simpler values: a function, or an object with the one method needed.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, Protocol, get_type_hints, runtime_checkable

from velodrome.context import seeded
from velodrome.errors import AgentError, InputError, ModelError, RolloutError, blame, defined_at, result_of
from velodrome.rates import counted, counted_below, counting
from velodrome.records.conversation import text_of
from velodrome.records.events import ENDS, all_events
from velodrome.records.response_fields import complete
from velodrome.records.turns import Turn, parse, total_tokens
from velodrome.threads import Threads
from velodrome.timing.spans import span, tally

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


class Answering:
    """A model that answers in turns: it has `answer`, and `respond` calls it."""

    async def answer(self, request: Json) -> Turn:
        """Answer a Responses request with a valid turn. Raises `ModelError`."""
        raise NotImplementedError

    @counted_below
    async def respond(self, request: Json) -> Json:
        """The turn that `answer` returns, as a Response."""
        return (await self.answer(request)).response(request)


async def ask(model: Model, request: Json, *, by_agent: bool = False) -> Turn:
    """Call the model of a rollout once. Returns a valid turn, which needs no further checks, or raises `ModelError`.

    Everything around a call is here and not in the loops that call it: the span, the seed, the limits of the run, the
    token count, and the boundary of a failure.
    """
    with span("model"), blame(ModelError, "model call"):
        try:
            if isinstance(model, Answering) and _uses_default_respond(model):
                turn: Turn = await counting(model.answer)(request)
            else:
                turn = _parsed_response(model, await counting(model.respond)(seeded(request)), by_agent)
        except ModelError as error:
            if error.tokens:
                tally("tokens", error.tokens)
            raise
        if turn.usage:
            tally("tokens", total_tokens(turn.usage))
        return turn


def _parsed_response(model: Model, response: Any, by_agent: bool) -> Turn:
    """Parse a Response as a turn. An error names where the model's `respond` is defined."""
    try:
        return parse(response, by_agent=by_agent)
    except ModelError as error:
        error.place = defined_at(getattr(model, "__wrapped__", model.respond), own=True)
        raise


def _uses_default_respond(model: Answering) -> bool:
    """Whether `respond` is `Answering.respond`; a subclass or a user may have replaced it."""
    return getattr(model.respond, "__func__", None) is Answering.respond


@runtime_checkable
class Streaming(Protocol):
    """Optional for a `Model`: stream the answer while it is generated."""

    def stream(self, request: Json) -> AsyncGenerator[Json, None]:
        """The events of OpenAI's streamed Response (`response.created`, deltas, …), which the server numbers.

        The first comes once the request is accepted. The last is `response.completed` or `response.incomplete`; its
        `response` is what `respond` would have returned. Raises `ModelError`. Closing the iterator stops the model.
        """
        ...


async def events_of(
    model: Any, request: Json, name: str = "", *, fault: type[RolloutError] = ModelError, where: str = "model"
) -> AsyncGenerator[Json, None]:
    """The events of an answer. A model that cannot stream has its answer converted to events.

    `name` is the model's name if the answer has none. An exception, or a stream that fails or has no last event,
    raises `fault`.
    """
    with blame(fault, where):
        if not isinstance(model, Streaming):
            for event in all_events(await model.respond(request), {"model": name, **request}, fault):
                yield event
            return
        async with aclosing(model.stream(request)) as events:
            async for event in events:
                is_last, response = event["type"] in ENDS, event.get("response")
                if event["type"] == "response.failed" or (is_last and not isinstance(response, dict)):
                    raise fault(f"{where}: {_failure(response)}")
                yield event
                if is_last:
                    return
        raise fault(f"{where}: the stream has no end")


def _failure(response: Any) -> str:
    """The error message of a stream's last event."""
    error = response.get("error") if isinstance(response, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    return f"{message or 'the last event of the stream has no response'}"


@runtime_checkable
class Resources(Protocol):
    """An environment: tools, one session per rollout, and the score."""

    async def open(self, task: Json) -> str:
        """Start a session for this task and return its handle (`/seed_session`)."""
        ...

    async def call(self, session: str, name: str, arguments: Any) -> str:
        """Run one tool with its parsed arguments; the text is what the model sees.

        The model's own mistakes (no such tool, bad arguments, a `ValueError` from the tool) come back as text too.
        A tool that raises anything else, hangs, or returns something that is not JSON raises `ToolError`: a failure of
        the tool must not become a low reward for the model.
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
class Turns(Protocol):
    """Optional for `Resources`: turns of the environment, between those of the model."""

    async def begin(self, session: str, task: Json) -> Json | None:
        """The first turn (`/reset`): `observation`, a text, messages or None, and `info`. None: there are no turns."""
        ...

    async def advance(self, session: str, action: str | dict[str, str]) -> Json:
        """The response to the model's action (`/step`): `observation`, `reward`, `terminated`, `truncated`, `info`.

        The model's own mistakes are observations too. Raises `ToolError`. With several players, actions, observations
        and rewards are keyed by player; the players who get an observation act next.
        """
        ...


@runtime_checkable
class Agent(Protocol):
    """Runs one task to its end."""

    async def run(self, task: Json, *, verify: bool = True) -> Json:
        """Model, tools, model … then verify.

        Returns the task's fields, `response` (an OpenAI Response whose `output` holds every item of the rollout,
        tool results included, and whose `usage` is the sum over the calls), and the fields of the score.
        Without `verify` the score is left out.
        """
        ...

    async def respond(self, request: Json) -> Json:
        """Continue one conversation until the model stops calling tools; nothing is verified."""
        ...

    async def deferrable(self) -> bool:
        """Whether verification can run later."""
        ...

    async def aclose(self) -> None: ...


FUNCTION_TIMEOUT_S = 600.0


def as_model(thing: Any) -> Model:
    """A model from an object with `respond`, or from a function.

    `async def model(request)` takes the Responses request and returns a Response or a text. A plain function takes
    the text of the last user message and runs in a thread. An annotation of the parameter (`str` or `dict`)
    decides otherwise.
    """
    respond = getattr(thing, "respond", None)
    if callable(respond) and not inspect.isclass(thing):
        if inspect.ismethod(respond) and not _is_async(respond):
            return FunctionModel(respond, takes_text=False)  # a plain method runs in a thread, like a plain function
        model: Model = thing
        return model
    if callable(thing) and not inspect.isclass(thing):
        return FunctionModel(thing)
    raise InputError(
        f"expected a model, not {thing!r:.80}: {{type: responses_api_models, name: INSTANCE}} in YAML, in Python an"
        " object with respond or a function"
    )


def as_agent(thing: Any) -> Agent:
    """An agent from an object with `run`, or from `async def agent(task)`.

    The result is a dict with `reward`, `response` (a Response) or `output` (items, or a text), and any other fields. A
    text alone has no reward, so it can only be collected without verification.
    """
    if isinstance(thing, Agent) and not inspect.isclass(thing):
        return thing
    run = getattr(thing, "run", thing)
    if not inspect.isclass(thing) and _is_async(run):
        return FunctionAgent(run, thing)
    raise InputError(
        f"expected an agent, not {thing!r:.80}: an object with async def run(self, task), or async def agent(task)"
    )


def as_resources(thing: Any) -> Resources:
    """An environment from an object with the methods of `Resources`."""
    methods = ("open", "call", "score", "close")
    if all(callable(getattr(thing, name, None)) for name in methods) and not inspect.isclass(thing):
        resources: Resources = thing
        return resources
    raise InputError(
        f"expected an environment, not {thing!r:.80}: {{type: resources_servers, name: INSTANCE}} in YAML, in Python an"
        " Environment"
    )


CONVERTERS = {Model: as_model, Agent: as_agent, Resources: as_resources}  # how a setting of one of these types is read


def observation_messages(observation: Any) -> list[Json]:
    """An observation as messages. A text becomes a user message, None no message."""
    if isinstance(observation, list):
        return observation
    return [{"role": "user", "content": observation}] if observation else []


def as_task(task: str | Json) -> Json:
    """A task; a text becomes its prompt."""
    return {"responses_create_params": {"input": task}} if isinstance(task, str) else task


def prompt_text(request: Json) -> str:
    """The text of the last user message of a request."""
    conversation = request.get("input")
    if isinstance(conversation, str):
        return conversation
    return next(
        (text_of(item.get("content")) for item in reversed(conversation or ()) if item.get("role") == "user"), ""
    )


def as_response(answer: Any, name: str, request: Json) -> Any:
    """A function's result as a Response. It may be a text, output items, or a Response."""
    if isinstance(answer, str | list):
        answer = {"output": [{"type": "message", "content": answer}] if isinstance(answer, str) else answer}
    if not isinstance(answer, dict) or not isinstance(answer.get("output"), list):
        return answer
    return complete({"model": name, **answer}, request)


class FunctionModel(Answering):
    """A function as a `Model`. Its exceptions become a `ModelError`."""

    def __init__(self, function: Callable[..., Any], *, takes_text: bool | None = None) -> None:
        self.__wrapped__ = function
        self.name = getattr(function, "__name__", type(function).__name__)
        self._is_async = _is_async(function)
        self._takes_text = _takes_text(function, default=not self._is_async) if takes_text is None else takes_text
        self._threads = Threads(64, name=self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(FunctionModel, takes_text=self._takes_text), (self.__wrapped__,)

    @counted
    async def answer(self, request: Json) -> Turn:
        """The function's result for the request, or for its text."""
        request = seeded(request)
        call = partial(self.__wrapped__, prompt_text(request) if self._takes_text else request)
        with blame(ModelError, self.name):
            answer = call() if self._is_async else await self._threads.run(call, timeout_s=FUNCTION_TIMEOUT_S)
            if inspect.isawaitable(answer):
                answer = await answer
        with result_of(self.__wrapped__):
            if not isinstance(answer, str) and not (isinstance(answer, dict) and "output" in answer):
                raise ModelError(f"{self.name} returned {answer!r:.80}, not a text or a Response")
            return parse(as_response(answer, self.name, request))

    async def aclose(self) -> None:
        """Shut down the threads."""
        self._threads.close()


class FunctionAgent:
    """A coroutine function as an `Agent`. Its exceptions become an `AgentError`."""

    def __init__(self, function: Callable[..., Any], owner: Any) -> None:
        self.__wrapped__ = owner
        self.name = getattr(owner, "__name__", type(owner).__name__)
        self.environment = getattr(owner, "environment", None)
        self._function = function
        self._takes_verify = "verify" in inspect.signature(function).parameters

    async def run(self, task: str | Json, *, verify: bool = True) -> Json:
        """The task's fields, with the function's result as a Response and a score."""
        task = as_task(task)
        with blame(AgentError, self.name):
            result = await (self._function(task, verify=verify) if self._takes_verify else self._function(task))
        fields = {"response": result} if isinstance(result, str) else result
        with result_of(self._function):
            if not isinstance(fields, dict) or not ("response" in fields or "output" in fields):
                raise AgentError(f'{self.name} returned {result!r:.80}, not a dict with "response" or "output"')
            if verify and fields.get("reward") is None:
                raise AgentError(f'{self.name} returned no "reward"; return one, or run it without verification')
        response = as_response(fields.get("response", fields.get("output")), self.name, task["responses_create_params"])
        excluded = ("output",) if verify else ("output", "reward")
        return {**task, **{name: fields[name] for name in fields if name not in excluded}, "response": response}

    async def respond(self, request: Json) -> Json:
        """Continue one conversation; nothing is verified."""
        result = await self.run({"responses_create_params": request}, verify=False)
        response: Json = result["response"]
        return response

    async def deferrable(self) -> bool:
        """Without verification the reward is left out."""
        return True

    async def aclose(self) -> None:
        """Close the object that the function belongs to."""
        if hasattr(self.__wrapped__, "aclose"):
            await self.__wrapped__.aclose()


def _is_async(function: Any) -> bool:
    """Whether a function or a callable object is `async def`."""
    inner = function
    while hasattr(inner, "counts_calls") and hasattr(inner, "__wrapped__"):  # made by `rates.counted`
        inner = inner.__wrapped__
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(type(function).__call__)


def _takes_text(function: Callable[..., Any], *, default: bool) -> bool:
    """Whether a model function takes the text instead of the request, by the annotation of its first parameter."""
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        first_parameter = next(iter(inspect.signature(function).parameters), "")
        kind = get_type_hints(target).get(first_parameter)
    except (NameError, TypeError, ValueError):  # an annotation that cannot be read, or a function without a signature
        return default
    return default if kind is None else kind is str
