"""Any OpenAI-compatible server as a `Model`, over `/responses` or `/chat/completions`.

One call is one POST, which `velodrome.http` retries within its limits; a stream only until it begins. Every
failure is a `ModelError`. The caller's request is never changed.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Annotated, Any, Literal, TypeVar

import orjson
from pydantic import BeforeValidator
from yarl import URL

from velodrome import context, http
from velodrome.context import seeded
from velodrome.contracts import Answering, Json
from velodrome.errors import CallError, ModelError, blame
from velodrome.http.limiter import Limiter
from velodrome.rates import counted
from velodrome.records import events
from velodrome.records.conversation import flaw
from velodrome.records.turns import GrowingInput, Turn, output_flaw, parse
from velodrome.responses_api_models import tokens
from velodrome.responses_api_models.conversion import (
    STATEFUL,
    chat_messages,
    chat_request,
    converted,
    response_items,
    turn_from_chat,
)
from velodrome.responses_api_models.openai_model.replies import (
    PARSERS,
    chat_stream,
    is_stream,
    parse_final,
    response_stream,
    unusable,
)
from velodrome.settings.component import Component, Field

_EXPECTED = "expected a URL up to and including /v1 (http://127.0.0.1:8000/v1), or a list of them"
_ENDPOINTS = ("/responses", "/completions", "/models")


def base_urls(value: Any) -> tuple[URL, ...]:
    """Parse one address or several, each up to and including `/v1`."""
    addresses = value if isinstance(value, list | tuple) else [value]
    if not addresses:
        raise ValueError(_EXPECTED)
    urls = tuple(map(_base_url, addresses))
    if len(set(urls)) < len(urls):
        raise ValueError("an address is in the list twice")
    return urls


def header_text(value: Any) -> str:
    """Check a text for use in a header."""
    if not isinstance(value, str) or not value.isprintable() or not value.isascii():
        raise ValueError("expected one line of ASCII text")
    return value


def _base_url(value: Any) -> URL:
    if not isinstance(value, str | URL):
        raise ValueError(_EXPECTED)
    try:
        url = URL(value)
    except ValueError:
        raise ValueError(_EXPECTED) from None
    path = url.path.rstrip("/")
    if url.scheme not in ("http", "https") or not url.host or path.endswith(_ENDPOINTS):
        raise ValueError(_EXPECTED)
    return url.with_path(path or "/v1", keep_query=True)


Endpoint = Literal["responses", "chat"]
Header = Annotated[str, BeforeValidator(header_text)]
_Reply = TypeVar("_Reply")

_PER_CALL = ("input", "seed")  # other fields are the same in every call of a conversation, and converted once
_CONVERSATION = {"responses": "input", "chat": "messages"}
_NO_ENDPOINT = re.compile(
    r"not (yet )?implemented|(unknown|unsupported|invalid|no such) (endpoint|route|path|url)"
    r"|(endpoint|route|path|responses( api)?) (is )?(not|un)[ -]?(supported|found|available|known)"
    r"|(not|n't) support (the )?(/v1)?/?responses",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(r"model_not_found|model\b.{0,200}(not (exist|found)|unknown)", re.IGNORECASE)
_TOKENS_HINT = "docs/models.md#token-ids says what each server gives, and what to set"
_HINTS = {
    401: " (check openai_api_key)",
    404: " (openai_base_url is the URL up to and including /v1; openai_model must be a model of that server)",
}


class OpenAI(Answering, Component):
    """A model behind HTTP. The connections belong to the process: `http.close_shared()` closes them."""

    base_url: Annotated[tuple[URL, ...], BeforeValidator(base_urls)] = Field(
        validation_alias="openai_base_url",
        description="the URL up to and including `/v1`; or a list of them, see [Many endpoints](#many-endpoints)",
    )
    model: str = Field(
        min_length=1,
        validation_alias="openai_model",
        description="the model's name at the server, for requests that name none",
    )
    api_key: Header | None = Field(
        None,
        validation_alias="openai_api_key",
        description="sent as `Authorization: Bearer …`; masked wherever it could be shown",
    )
    endpoint: Literal["auto", "responses", "chat"] = Field(
        "auto", description="`responses`, `chat` or `auto`, see [Endpoints](#endpoints)"
    )
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = Field(
        "max_tokens",
        description="what `max_output_tokens` is called in chat completions; some servers want `max_completion_tokens`",
    )
    timeout_s: float = Field(600.0, gt=0, description="one attempt")
    total_timeout_s: float = Field(1800.0, gt=0, description="one call with all its retries")
    rate_limit_timeout_s: float = Field(
        600.0, ge=0, description="how long one call waits out 429s; a 429 is not counted as a retry"
    )
    max_retries: int = Field(5, ge=0, description="retries of one call")
    backoff_s: float = Field(
        0.5,
        ge=0,
        description="before retry *n* (from 0): a random time up to `backoff_s * 2**n`, at most 30 s"
        " (after 429s `backoff_s * 8`)",
    )
    max_concurrent: int | None = Field(
        None, ge=1, description="calls in flight at once; waiting is `queue_s` in [the timing](rollouts.md#timing)"
    )
    extra_body: dict[str, Any] = Field({}, description="fields set in every request; they win over the request's own")
    headers: dict[Header, Header] = Field({}, description="headers added to every request")
    session_header: Header = Field(
        "X-Session-ID", description="a header with one id per rollout, for routers; an empty text for none"
    )
    is_agent: bool = Field(
        False, description="the server is an agent, whose answers hold tool results too ([remote_agent](theirs.md))"
    )
    sticky_margin: int = Field(
        http.STICKY_MARGIN,
        ge=0,
        description="of a list: a rollout leaves its endpoint when that has so many more calls in flight than another",
    )
    health_check_s: float = Field(
        http.CHECK_S,
        gt=0,
        description="of a list: an endpoint silent for so long is asked for `/models`, and has as long to answer",
    )

    def __init__(self, base_url: Any = None, model: str | None = None, **settings: Any) -> None:
        super().__init__(base_url=base_url, model=model, **settings)

    def setup(self) -> None:
        """Create the targets of each endpoint, the retry policy and the limiter."""
        self._at: dict[Endpoint, http.Target | http.Replicas] = {
            "responses": self._replicas("responses"),
            "chat": self._replicas("chat/completions"),
        }
        self._policy = http.Retry(
            max_retries=self.max_retries,
            backoff_s=self.backoff_s,
            timeout_s=self.timeout_s,
            total_timeout_s=self.total_timeout_s,
            rate_limit_timeout_s=self.rate_limit_timeout_s,
        )
        self._limiter = Limiter("model", self.max_concurrent, "max_concurrent")
        # The endpoint that the server has, by whether the request asks for token fields.
        self._known_endpoints: dict[bool, Endpoint] = (
            {} if self.endpoint == "auto" else dict.fromkeys((False, True), self.endpoint)
        )
        self._missing = tokens.MissingTokens()

    def _replicas(self, path: str) -> http.Target | http.Replicas:
        headers = dict(self.headers)
        if self.api_key:
            headers.setdefault("Authorization", f"Bearer {self.api_key}")
        targets = [((url / path).with_query(url.query), url) for url in self.base_url]
        if len(targets) == 1:
            return http.Target(targets[0][0], headers)
        replicas = [http.Replica(target, headers, base=base) for target, base in targets]
        return http.Replicas(replicas, margin=self.sticky_margin, check_s=self.health_check_s)

    @counted
    async def answer(self, request: Json) -> Turn:
        """One answer to one Responses request."""
        request = seeded(request)
        names = tokens.requested(request, self.extra_body)
        async with self._limiter:
            endpoint, reply = await self._send(request, names, http.shared().post)
        return self._turn(endpoint, reply, request, names)

    async def stream(self, request: Json) -> AsyncGenerator[Json, None]:
        """Stream one answer; a reply that is not a stream is converted to events."""
        request = seeded(request)
        names = tokens.requested(request, self.extra_body)
        async with self._limiter:
            try:
                endpoint, reply = await self._send(request, names, http.shared().stream, streamed=True)
                async with reply:
                    if not is_stream(reply):
                        body = b"".join([chunk async for chunk in reply.chunks()])
                        full_reply = http.Reply(reply.status, body, reply.headers, reply.target)
                        full_reply = full_reply._replace(answer=parse_final(endpoint, full_reply))
                        for event in events.all_events(
                            self._turn(endpoint, full_reply, request, names).response(request)
                        ):
                            yield event
                        return
                    streamed = response_stream(reply) if endpoint == "responses" else chat_stream(reply, request)
                    async with aclosing(streamed):
                        async for event in streamed:
                            if event.get("type") in events.ENDS:
                                if endpoint == "responses":
                                    self._add_tokens(event["response"], request, names)
                                self._mark_missing(event["response"]["output"], names, reply.target)
                            yield event
            except CallError as error:
                raise ModelError(str(error), status=error.status) from error

    async def aclose(self) -> None:
        """Nothing to close: the connections belong to the process."""

    async def _send(
        self, request: Json, names: Sequence[str], send: Callable[..., Awaitable[_Reply]], *, streamed: bool = False
    ) -> tuple[Endpoint, _Reply]:
        """Send a request to the known endpoint, or to the first that the server has; returns endpoint and reply.

        More servers have token ids in chat, so requests for token ids try it first.
        """
        known_endpoint = self._known_endpoints.get(bool(names))
        order: tuple[Endpoint, ...] = ("responses", "chat") if known_endpoint is None else (known_endpoint,)
        if known_endpoint is None and tokens.IDS in names and not any(map(request.get, STATEFUL)):
            order = ("chat", "responses")
        for endpoint in order:
            body = self._body(endpoint, request, names, streamed=streamed)
            options = {} if streamed else {"read": PARSERS[endpoint]}
            try:
                reply = await send(self._at[endpoint], body, self._policy, headers=self._session_headers(), **options)
            except CallError as error:
                if endpoint is order[-1] or not _endpoint_is_missing(error):
                    hint = _HINTS.get(error.status or 0, "")
                    raise ModelError(f"{error}{hint}", status=error.status) from error
                self._known_endpoints.setdefault(bool(names), order[-1])
            else:
                self._known_endpoints.setdefault(bool(names), endpoint)
                return endpoint, reply
        raise AssertionError("the last endpoint has a reply or an error")

    def _session_headers(self) -> dict[str, str] | None:
        """The session header; None outside a rollout or if the setting is empty."""
        rollout = context.current() if self.session_header else None
        return None if rollout is None else {self.session_header: rollout.session}

    def _body(self, endpoint: Endpoint, request: Json, names: Sequence[str], *, streamed: bool = False) -> bytes:
        """The body of a request. In a growing conversation, only new items are converted."""
        conversation = request.get("input")
        try:
            if streamed or not conversation or not isinstance(conversation, GrowingInput):
                return orjson.dumps(self._fields(endpoint, request, names, streamed))
            shared_fields = {name: value for name, value in request.items() if name not in _PER_CALL}
            key = (id(self), endpoint)  # models may share a conversation
            cached = conversation.converted.get(key)
            if cached is None or cached[0] != shared_fields:
                fields = self._fields(endpoint, {**shared_fields, "input": []}, names, streamed=False)
                cached = conversation.converted[key] = shared_fields, fields, fields.pop(_CONVERSATION[endpoint])
            call_fields = {"seed": request["seed"]} if "seed" in request else {}
            turns = converted(conversation, chat_messages if endpoint == "chat" else response_items)
            return orjson.dumps({**call_fields, **cached[1], _CONVERSATION[endpoint]: cached[2] + turns})
        except orjson.JSONEncodeError as error:
            raise ModelError(f"request: cannot be written as JSON: {error}") from error

    def _fields(self, endpoint: Endpoint, request: Json, names: Sequence[str], streamed: bool) -> Json:
        if endpoint == "chat":
            body = chat_request(request, max_tokens_field=self.max_tokens_field)
        else:
            body = dict(request)
            if isinstance(body.get("input"), list):
                body["input"] = response_items(body["input"])
        body["model"] = body.get("model") or self.model
        body.pop("stream", None)
        if streamed:
            body["stream"] = True
            if endpoint == "chat":
                body["stream_options"] = {"include_usage": True}
        body.update(self.extra_body)
        tokens.add_request_fields(body, names, chat=endpoint == "chat")
        return body

    def _turn(self, endpoint: Endpoint, reply: http.Reply, request: Json, names: Sequence[str]) -> Turn:
        """The turn in a reply. An invalid turn is not retried: that would bias the samples."""
        try:
            if endpoint == "responses":
                turn = parse(reply.answer, by_agent=self.is_agent)
            else:
                turn = turn_from_chat(reply.answer, request)
                problem = output_flaw(turn.raw, is_cut=turn.is_cut, by_agent=self.is_agent)
                if problem is not None:
                    raise ModelError(problem)
        except ModelError as error:
            raise unusable(reply, str(error)) from error
        if endpoint == "responses":
            self._add_tokens(reply.answer, request, names)
        self._mark_missing(turn.raw, names, reply.target)
        return turn

    def _add_tokens(self, answer: Json, request: Json, names: Sequence[str]) -> None:
        """Copy the token ids and log-probabilities of a Response to its last item."""
        output = answer["output"]
        if output and (names or tokens.has_tokens(answer)):
            with blame(ModelError, "token ids"):
                output[-1].update(tokens.token_fields(answer))
            problem = flaw(output[-1])
            if problem is not None:
                raise ModelError(f"token ids: {problem}")
            if not request.get("enable_response_messages"):
                answer.pop("input_messages", None)
                answer.pop("output_messages", None)

    def _mark_missing(self, output: list[Json], names: Sequence[str], target: http.Target) -> None:
        """Mark the token fields that were requested but are missing; logs the first time."""
        if names:
            hint = f"try endpoint: chat; {_TOKENS_HINT}" if self.endpoint == "responses" else _TOKENS_HINT
            self._missing.log_once(tokens.mark_missing(output, names), f"POST {target.label}", hint)


def _endpoint_is_missing(error: CallError) -> bool:
    """Whether the error means that the server does not have this endpoint."""
    if error.status in (405, 501):
        return True
    if error.status == 404:
        return not _NO_MODEL.search(error.excerpt)
    return error.status is not None and 400 <= error.status < 500 and bool(_NO_ENDPOINT.search(error.excerpt))
