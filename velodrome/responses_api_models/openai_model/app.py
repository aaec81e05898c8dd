"""Any OpenAI-compatible server as a `Model`, over `/responses` or `/chat/completions`.

One call is one POST, retried by `velodrome.http` within its bounds; a stream, until it begins. Whatever goes wrong is
a `ModelError`; the request it is given is never changed.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeVar

import orjson
from pydantic import BeforeValidator
from yarl import URL

from velodrome import http
from velodrome.contracts import Conversation, Json
from velodrome.errors import CallError, ModelError, blame
from velodrome.http.limiter import Limiter
from velodrome.rates import counted, counted_stream
from velodrome.records import events
from velodrome.records.conversation import answer_flaw, flaw
from velodrome.responses_api_models import tokens
from velodrome.responses_api_models.conversion import STATEFUL, chat_request, response_from_chat
from velodrome.responses_api_models.openai_model.addresses import base_urls, header_text
from velodrome.responses_api_models.openai_model.streams import chat_stream, is_stream, response_stream
from velodrome.responses_api_models.turns import encoded_items, encoded_messages, response_items
from velodrome.seeds import seeded
from velodrome.settings.component import Component, Field
from velodrome.timing import trace

log = logging.getLogger(__name__)

Endpoint = Literal["responses", "chat"]
Header = Annotated[str, BeforeValidator(header_text)]
_Got = TypeVar("_Got")

# A server without an endpoint says so at once; one still silent by then is generating.
_PROBE_WAIT_S = 1.0
_OTHER_TIMEOUT_S = 30.0  # a good answer waits for the other endpoint's no longer
_OTHER: dict[Endpoint, Endpoint] = {"responses": "chat", "chat": "responses"}
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


@dataclass
class _Choice:
    """The endpoint to use. The first call learns which it is; others wait for it."""

    endpoint: Endpoint | None
    probe: asyncio.Future[None] | None = None

    async def is_probe(self, patience_s: float | None) -> bool:
        """Whether this is the call that learns it."""
        if self.probe is not None:
            await asyncio.wait([self.probe], timeout=patience_s)
        if self.endpoint is not None or self.probe is not None:
            return False
        self.probe = asyncio.get_running_loop().create_future()
        return True

    def end_probe(self) -> None:
        if self.probe is not None:
            self.probe.set_result(None)
            self.probe = None


class OpenAI(Component):
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
    max_retries: int = Field(5, ge=0, description="retries of one call")
    backoff_s: float = Field(
        0.5, ge=0, description="before retry *n* (from 0): a random time up to `backoff_s * 2**n`, at most 30 s"
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
        self._probe_policy = replace(self._policy, max_retries=0, timeout_s=min(self.timeout_s, _OTHER_TIMEOUT_S))
        self._limiter = Limiter("model", self.max_concurrent, "max_concurrent")
        fixed: Endpoint | None = None if self.endpoint == "auto" else self.endpoint
        self._choices = {
            asks: _Choice(fixed) for asks in (False, True)
        }  # for requests that ask for token fields, or not
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
    async def respond(self, request: Json) -> Json:
        """One answer to one Responses request."""
        request = seeded(request)
        async with self._limiter:
            choice = self._choice(request)
            probing = choice.endpoint is None and await choice.is_probe(self._patience(request))
            try:
                endpoint, reply = await self._sent(choice, request, http.shared().post)
                answer, missing = self._answer(endpoint, reply, request)
                if missing:
                    if probing and choice.endpoint is None:
                        other = await self._other_answer(choice, _OTHER[endpoint], request, missing)
                        if other is not None:
                            return other
                    self._warn(missing, reply.target)
                choice.endpoint = choice.endpoint or endpoint
                return answer
            finally:
                if probing:
                    choice.end_probe()

    @counted_stream
    async def stream(self, request: Json) -> AsyncGenerator[Json, None]:
        """The events of one answer as the server makes them; an answer that comes whole becomes events at once."""
        request = seeded(request)
        async with self._limiter:
            try:
                endpoint, reply = await self._begun(request)
                async with reply:
                    if not is_stream(reply):
                        body = b"".join([chunk async for chunk in reply.chunks()])
                        whole = http.Reply(reply.status, body, reply.headers, reply.target)
                        answer, missing = self._answer(endpoint, whole, request)
                        self._warn(missing, reply.target)
                        for event in events.whole(answer):
                            yield event
                        return
                    streamed = response_stream(reply) if endpoint == "responses" else chat_stream(reply, request)
                    async with aclosing(streamed):
                        async for event in streamed:
                            if event.get("type") in events.ENDS:
                                self._warn(self._tokens(endpoint, event["response"], request), reply.target)
                            yield event
            except CallError as error:
                raise ModelError(str(error), status=error.status) from error

    async def aclose(self) -> None:
        """Nothing is held here."""

    async def _begun(self, request: Json) -> tuple[Endpoint, http.Stream]:
        choice, send = self._choice(request), http.shared().stream
        if choice is self._choices[True]:  # a stream is not asked for twice, so it chooses nothing
            return await self._sent(choice, request, send, streamed=True)
        probing = choice.endpoint is None and await choice.is_probe(self._patience(request))
        try:
            endpoint, reply = await self._sent(choice, request, send, streamed=True)
            choice.endpoint = choice.endpoint or endpoint
            return endpoint, reply
        finally:
            if probing:
                choice.end_probe()

    def _choice(self, request: Json) -> _Choice:
        return self._choices[bool(tokens.wanted(request, self.extra_body))]

    def _patience(self, request: Json) -> float | None:
        """How long a call waits for the first: for token fields until it is known who has them."""
        return None if tokens.wanted(request, self.extra_body) else _PROBE_WAIT_S

    async def _sent(
        self, choice: _Choice, request: Json, send: Callable[..., Awaitable[_Got]], *, streamed: bool = False
    ) -> tuple[Endpoint, _Got]:
        """The reply to a request, and from which endpoint: the chosen one, or the first of the two that is there."""
        if choice.endpoint is not None:
            return choice.endpoint, await self._to(choice.endpoint, request, send, streamed)
        first: Endpoint = "chat" if self._asks_for_ids(request) else "responses"
        try:
            return first, await self._to(first, request, send, streamed)
        except ModelError as error:
            if not _endpoint_is_missing(error):
                raise
        choice.endpoint = choice.endpoint or _OTHER[first]
        choice.end_probe()
        return _OTHER[first], await self._to(_OTHER[first], request, send, streamed)

    async def _to(
        self, endpoint: Endpoint, request: Json, send: Callable[..., Awaitable[_Got]], streamed: bool = False
    ) -> _Got:
        try:
            body = self._body(endpoint, request, streamed=streamed)
            return await send(self._at[endpoint], body, self._policy, headers=self._session())
        except CallError as error:
            raise ModelError(f"{error}{_HINTS.get(error.status or 0, '')}", status=error.status) from error

    def _session(self) -> dict[str, str] | None:
        """The header that names the rollout, inside of one."""
        session = trace.session() if self.session_header else None
        return None if session is None else {self.session_header: session}

    def _asks_for_ids(self, request: Json) -> bool:
        """Whether token ids are asked for, which more servers have in chat; not if only `/responses` can be asked."""
        return tokens.IDS in tokens.wanted(request, self.extra_body) and not any(map(request.get, STATEFUL))

    async def _other_answer(
        self, choice: _Choice, endpoint: Endpoint, request: Json, missing: list[str]
    ) -> Json | None:
        """The answer of the other endpoint if it has more of what is asked for; then it is the one to call."""
        try:
            body = self._body(endpoint, request)
            reply = await http.shared().post(self._at[endpoint], body, self._probe_policy, headers=self._session())
            answer, still_missing = self._answer(endpoint, reply, request)
        except (CallError, ModelError):
            return None
        if len(still_missing) >= len(missing):
            return None
        choice.endpoint = endpoint
        log.info("%s has %s, so it is called from now on", reply.target.label, ", ".join(missing))
        self._warn(still_missing, reply.target)
        return answer

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
        tokens.ask(body, tokens.wanted(request, self.extra_body), chat=endpoint == "chat")
        try:
            return orjson.dumps(body)
        except orjson.JSONEncodeError as error:
            raise ModelError(f"request: cannot be written as JSON: {error}") from error

    def _answer(self, endpoint: Endpoint, reply: http.Reply, request: Json) -> tuple[Json, list[str]]:
        """The answer in a reply, and which of the token fields that were asked for it lacks."""
        answer = _decoded(reply)
        if endpoint == "chat":
            try:
                answer = response_from_chat(answer, request)
            except ModelError as error:
                raise _unusable(reply, str(error)) from error
        if answer.get("status") not in (None, "completed", "incomplete"):
            raise _unusable(reply, f'status "{answer["status"]}"')
        problem = answer_flaw(answer, by_agent=self.is_agent)
        if problem is not None:
            raise _unusable(reply, problem)
        return answer, self._tokens(endpoint, answer, request)

    def _tokens(self, endpoint: Endpoint, answer: Json, request: Json) -> list[str]:
        """Put token ids and log-probabilities on the items of an answer; the names of those that are missing."""
        output = answer["output"]
        names = tokens.wanted(request, self.extra_body)
        if endpoint == "responses" and output and (names or tokens.given(answer)):
            with blame(ModelError, "token ids"):
                output[-1].update(tokens.token_fields(answer))
            problem = flaw(output[-1])
            if problem is not None:
                raise ModelError(f"token ids: {problem}")
            if not request.get("enable_response_messages"):
                answer.pop("input_messages", None)
                answer.pop("output_messages", None)
        return tokens.mark(output, names)

    def _warn(self, missing: list[str], target: http.Target) -> None:
        hint = f"try endpoint: chat; {_TOKENS_HINT}" if self.endpoint == "responses" else _TOKENS_HINT
        self._missing.say(missing, f"POST {target.label}", hint)


def _endpoint_is_missing(error: ModelError) -> bool:
    """Whether the endpoint itself is what the server does not have."""
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
