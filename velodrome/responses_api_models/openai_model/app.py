"""Any OpenAI-compatible server as a `Model`, over `/responses` or `/chat/completions`.

One call is one POST, retried by `velodrome.http` within its bounds; a stream, until it begins. Whatever goes wrong is
a `ModelError`; the request it is given is never changed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Annotated, Any, Literal, TypeVar

import orjson
from pydantic import BeforeValidator
from yarl import URL

from velodrome import http
from velodrome.contracts import Conversation, Json
from velodrome.errors import CallError, ModelError
from velodrome.http.limiter import Limiter
from velodrome.records.conversation import answer_flaw
from velodrome.responses_api_models import events
from velodrome.responses_api_models.conversion import chat_request, response_from_chat
from velodrome.responses_api_models.openai_model.streams import chat_stream, is_stream, response_stream
from velodrome.responses_api_models.turns import encoded_items, encoded_messages, response_items
from velodrome.settings.component import Component, Field

_EXPECTED = "expected a URL up to and including /v1 (http://127.0.0.1:8000/v1), or a list of them"
_ENDPOINTS = ("/responses", "/completions", "/models")


def _base_urls(value: Any) -> tuple[URL, ...]:
    """One address or several, each up to and including `/v1`."""
    listed = value if isinstance(value, list | tuple) else [value]
    if not listed:
        raise ValueError(_EXPECTED)
    return tuple(map(_base_url, listed))


def _header(value: Any) -> str:
    """A text that can stand in a header."""
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
Header = Annotated[str, BeforeValidator(_header)]
_Got = TypeVar("_Got")

# A server without an endpoint says so at once; one still silent by then is generating.
_PROBE_WAIT_S = 1.0
_NO_ENDPOINT = re.compile(
    r"not (yet )?implemented|(unknown|unsupported|invalid|no such) (endpoint|route|path|url)"
    r"|(endpoint|route|path|responses( api)?) (is )?(not|un)[ -]?(supported|found|available|known)"
    r"|(not|n't) support (the )?(/v1)?/?responses",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(r"model_not_found|model\b.{0,200}(not (exist|found)|unknown)", re.IGNORECASE)
_HINTS = {
    401: " (check openai_api_key)",
    404: " (openai_base_url is the URL up to and including /v1; openai_model must be a model of that server)",
}


class OpenAI(Component):
    """A model behind HTTP. The connections belong to the process: `http.close_shared()` closes them."""

    base_url: Annotated[tuple[URL, ...], BeforeValidator(_base_urls)] = Field(
        validation_alias="openai_base_url",
        description="the URL up to and including `/v1`; a list spreads calls over replicas, the least busy first",
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
    max_retries: int = Field(5, ge=0, description="retries of one call")
    backoff_s: float = Field(
        0.5, ge=0, description="before retry *n* (from 0): a random time up to `backoff_s * 2**n`, at most 30 s"
    )
    max_concurrent: int | None = Field(
        None, ge=1, description="calls in flight at once; waiting is `queue_s` in [the timing](rollouts.md#timing)"
    )
    extra_body: dict[str, Any] = Field({}, description="fields set in every request; they win over the request's own")
    headers: dict[Header, Header] = Field({}, description="headers added to every request")

    def __init__(self, base_url: Any = None, model: str | None = None, **settings: Any) -> None:
        super().__init__(base_url=base_url, model=model, **settings)

    def setup(self) -> None:
        """One address per endpoint, or several replicas of it."""
        self._at: dict[Endpoint, http.Target | http.Replicas] = {
            "responses": self._replicas("responses"),
            "chat": self._replicas("chat/completions"),
        }
        self._policy = http.Retry(
            max_retries=self.max_retries,
            backoff_s=self.backoff_s,
            timeout_s=self.timeout_s,
            total_timeout_s=self.total_timeout_s,
        )
        self._limiter = Limiter("model", self.max_concurrent, "max_concurrent")
        self._endpoint: Endpoint | None = None if self.endpoint == "auto" else self.endpoint
        self._probe: asyncio.Future[None] | None = None

    def _replicas(self, path: str) -> http.Target | http.Replicas:
        headers = dict(self.headers)
        if self.api_key:
            headers.setdefault("Authorization", f"Bearer {self.api_key}")
        targets = [http.Target((url / path).with_query(url.query), headers) for url in self.base_url]
        return targets[0] if len(targets) == 1 else http.Replicas(targets)

    async def respond(self, request: Json) -> Json:
        """One answer to one Responses request."""
        async with self._limiter:
            endpoint, reply = await self._sent(request, http.shared().post)
            return self._answer(endpoint, reply, request)

    async def stream(self, request: Json) -> AsyncGenerator[Json, None]:
        """The events of one answer as the server makes them; an answer that comes whole becomes events at once."""
        async with self._limiter:
            try:
                endpoint, reply = await self._sent(request, http.shared().stream, streamed=True)
                async with reply:
                    if not is_stream(reply):
                        body = b"".join([chunk async for chunk in reply.chunks()])
                        whole = http.Reply(reply.status, body, reply.headers, reply.target)
                        for event in events.whole(self._answer(endpoint, whole, request)):
                            yield event
                        return
                    streamed = response_stream(reply) if endpoint == "responses" else chat_stream(reply, request)
                    async with aclosing(streamed):
                        async for event in streamed:
                            yield event
            except CallError as error:
                raise ModelError(str(error), status=error.status) from error

    async def aclose(self) -> None:
        """Nothing is held here."""

    async def _sent(
        self, request: Json, send: Callable[..., Awaitable[_Got]], *, streamed: bool = False
    ) -> tuple[Endpoint, _Got]:
        """The reply to a request, and from which endpoint. The first call learns which there is; others wait for it."""

        async def to(endpoint: Endpoint) -> _Got:
            try:
                return await send(self._at[endpoint], self._body(endpoint, request, streamed=streamed), self._policy)
            except CallError as error:
                raise ModelError(f"{error}{_HINTS.get(error.status or 0, '')}", status=error.status) from error

        if self._endpoint is None and self._probe is not None:
            await asyncio.wait([self._probe], timeout=_PROBE_WAIT_S)
        if self._endpoint is not None:
            return self._endpoint, await to(self._endpoint)
        probe = None
        if self._probe is None:
            probe = self._probe = asyncio.get_running_loop().create_future()
        try:
            reply = await to("responses")
            self._endpoint = self._endpoint or "responses"
            return "responses", reply
        except ModelError as error:
            if not _endpoint_is_missing(error):
                raise
            self._endpoint = self._endpoint or "chat"
        finally:
            if probe is not None:
                probe.set_result(None)
                self._probe = None
        return "chat", await to("chat")

    def _body(self, endpoint: Endpoint, request: Json, *, streamed: bool = False) -> bytes:
        conversation = request.get("input")
        growing = conversation if isinstance(conversation, Conversation) and conversation else None
        if endpoint == "chat":
            if growing is not None:
                request = {**request, "input": []}
            body = chat_request(request, max_tokens_field=self.max_tokens_field)
            if growing is not None:
                body["messages"] += encoded_messages(growing)
        else:
            body = dict(request)
            if growing is not None:
                body["input"] = encoded_items(growing)
            elif isinstance(conversation, list):
                body["input"] = response_items(conversation)
        body["model"] = body.get("model") or self.model
        body.pop("stream", None)
        if streamed:
            body["stream"] = True
            if endpoint == "chat":
                body["stream_options"] = {"include_usage": True}
        body.update(self.extra_body)
        try:
            return orjson.dumps(body)
        except orjson.JSONEncodeError as error:
            raise ModelError(f"request: cannot be written as JSON: {error}") from error

    def _answer(self, endpoint: Endpoint, reply: http.Reply, request: Json) -> Json:
        answer = _decoded(reply)
        if endpoint == "chat":
            try:
                answer = response_from_chat(answer, request)
            except ModelError as error:
                raise _unusable(reply, str(error)) from error
        if answer.get("status") not in (None, "completed", "incomplete"):
            raise _unusable(reply, f'status "{answer["status"]}"')
        problem = answer_flaw(answer)
        if problem is not None:
            raise _unusable(reply, problem)
        return answer


def _endpoint_is_missing(error: ModelError) -> bool:
    """Whether `/responses` itself is what the server does not have."""
    if error.status in (405, 501):
        return True
    cause = error.__cause__
    text = cause.excerpt if isinstance(cause, CallError) else ""
    if error.status == 404:
        return not _NO_MODEL.search(text)
    return error.status is not None and 400 <= error.status < 500 and bool(_NO_ENDPOINT.search(text))


def _decoded(reply: http.Reply) -> Json:
    try:
        answer: Any = orjson.loads(reply.body)
    except orjson.JSONDecodeError as error:
        raise _unusable(reply, "the body is not JSON") from error
    if not isinstance(answer, dict):
        raise _unusable(reply, f"expected an object, found {type(answer).__name__}")
    if answer.get("error"):
        raise _unusable(reply, "an error inside")
    return answer


def _unusable(reply: http.Reply, what: str) -> ModelError:
    text = reply.target.excerpt(reply.body)
    return ModelError(f"POST {reply.target.label}: {reply.status}, but {what}: {text}", status=reply.status)
