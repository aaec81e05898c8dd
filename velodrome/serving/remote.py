"""The three contracts over HTTP: a client behaves like the component itself.

A model call or a verification may be repeated. A tool call or a whole rollout is repeated only if it certainly did not
arrive, because a second execution would change the rollout.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

import orjson

from velodrome import context, http
from velodrome.context import seeded
from velodrome.contracts import Json
from velodrome.errors import AgentError, CallError, ModelError, RolloutError, ToolError, VerifyError
from velodrome.rates import counted
from velodrome.records.events import all_events
from velodrome.records.jsonl import MAX_LINE_BYTES
from velodrome.resources_servers.environment import no_such_tool
from velodrome.resources_servers.turn_environment import (
    STEP_PARTS,
    addressed_reset,
    addressed_step,
    reset_fields,
    step_fields,
    well_formed,
)
from velodrome.responses_api_models.openai_model.replies import is_stream, parse_response, response_stream
from velodrome.serving import wire
from velodrome.settings.names import AGENTS, MODELS, RESOURCES
from velodrome.timing import spans

REPEATED = http.Retry(max_retries=5, backoff_s=0.2, timeout_s=3600.0, total_timeout_s=7200.0)
_ROUTES = frozenset(("seed_session", "verify", "close_session", "aggregate_metrics"))  # a model may not call them
_TURNS = frozenset(("reset", "step"))  # of a server that has turns
_ECHOED = ("responses_create_params", "response")  # fields that other verifiers return besides the score
_MAX_NAME = 256
_MAX_TARGETS = 1000  # models make up names
ONCE = http.Retry(max_retries=8, backoff_s=0.2, timeout_s=3600.0, total_timeout_s=7200.0, replay=False)


class RemoteServer:
    """The client of one server. It converts errors to those of this package. Its connections are shared."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url.rstrip("/")
        self._headers = {wire.SPANS: "yes"} | ({} if token is None else {"Authorization": f"Bearer {token}"})
        self._targets: dict[str, http.Target] = {}

    async def aclose(self) -> None:
        """Nothing to close; part of the contract of a component."""

    async def _post(
        self,
        route: str,
        body: Any,
        kind: type[RolloutError],
        policy: http.Retry,
        headers: Mapping[str, str] | None = None,
    ) -> http.Reply:
        """Post JSON to a route. An error keeps the boundary that it names; any other becomes a `kind`."""
        rollout = context.current()
        if rollout is not None and rollout.seed is not None:
            headers = {**(headers or {}), context.SEED_HEADER: rollout.seed}
        try:
            data, read = orjson.dumps(body), parse_response if kind is ModelError else None
            reply = await http.shared().post(self._target(route), data, policy, headers=headers, read=read)
        except CallError as error:
            raise failure_of(error, kind) from error
        _graft(reply.headers.get(wire.SPANS))
        return reply

    async def _get(self, route: str, kind: type[RolloutError]) -> Any:
        """The JSON of a route, or None if the server has no such route. Raises `kind` if it does not answer."""
        try:
            reply = await http.shared().get(self._target(route), REPEATED)
            return orjson.loads(reply.body)
        except orjson.JSONDecodeError:
            return None
        except CallError as error:
            if error.status is not None and error.status < 500 and error.status not in (408, 429):
                return None
            raise kind(str(error)) from error

    def _target(self, route: str) -> http.Target:
        target = self._targets.get(route)
        if target is None:
            target = http.Target(self.url + route, self._headers)
            if len(self._targets) < _MAX_TARGETS:
                self._targets[route] = target
        return target


def _graft(header: str | None) -> None:
    here = spans.current()
    if header is not None and here is not None:
        wire.graft(header, here)


def failure_of(error: CallError, kind: type[RolloutError]) -> RolloutError:
    """The error with the boundary it names, else a `kind`. Its spans are added below the open span."""
    failure = wire.error_in(error.body) or _error_of_kind(error, kind)
    _graft(failure.spans)
    failure.spans = None
    return failure


def _error_of_kind(error: CallError, kind: type[RolloutError]) -> RolloutError:
    return ModelError(str(error), status=error.status) if kind is ModelError else kind(str(error))


def decoded(reply: http.Reply, kind: type[RolloutError]) -> Json:
    """The JSON object of an answer. Raises `kind` for anything else."""
    try:
        data = orjson.loads(reply.body)
    except orjson.JSONDecodeError as error:
        raise kind(f"{reply.target.label}: the answer is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise kind(f"{reply.target.label}: the answer is not a JSON object")
    return data


class HttpModel(RemoteServer):
    def __init__(self, url: str, token: str | None = None, policy: http.Retry = REPEATED) -> None:
        super().__init__(url, token)
        self._policy = policy

    @counted
    async def respond(self, request: Json) -> Json:
        reply = await self._post("/v1/responses", seeded(request), ModelError, self._policy)
        answer: Json = reply.answer
        return answer

    async def stream(self, request: Json) -> AsyncGenerator[Json, None]:
        """The server's events as they arrive, or the events of a complete answer."""
        body = orjson.dumps({**seeded(request), "stream": True})
        try:
            reply = await http.shared().stream(self._target("/v1/responses"), body, self._policy)
            async with reply:
                if is_stream(reply):
                    async with aclosing(response_stream(reply)) as events:
                        async for event in events:
                            yield event
                    return
                data = b"".join([chunk async for chunk in reply.chunks()])
        except CallError as error:
            raise failure_of(error, ModelError) from error
        answer = http.Reply(reply.status, data, reply.headers, reply.target)
        for event in all_events(decoded(answer, ModelError), request):
            yield event


class HttpResources(RemoteServer):
    """An environment behind its routes. The handle of a session is its cookie header."""

    def __init__(self, url: str, token: str | None = None) -> None:
        super().__init__(url, token)
        self._about: Json | None = None
        self._closes = True  # whether it has `/close_session`

    async def _report(self) -> Json:
        if self._about is None:
            report = await self._get("/", ToolError)
            self._about = report if isinstance(report, dict) else {}
        return self._about

    async def open(self, task: Json) -> str:
        """Start a session, if the server has sessions."""
        if (await self._report()).get("sessions") is False:
            return ""
        reply = await self._post("/seed_session", task, ToolError, ONCE)
        return "; ".join(value.partition(";")[0] for value in reply.headers.getall("Set-Cookie", []))

    async def call(self, session: str, name: str, arguments: Any) -> str:
        """Run one tool. A refusal (4xx) that names no boundary goes to the model as the tool's answer."""
        is_route = name in _ROUTES or (name in _TURNS and (await self._report()).get("turns"))
        if is_route or name in ("", ".", "..") or "/" in name or len(name) > _MAX_NAME:
            return no_such_tool(name, [str(each.get("name")) for each in await self.tools()])
        try:
            reply = await self._post(f"/{quote(name, safe='')}", arguments, ToolError, ONCE, _cookie(session))
        except orjson.JSONEncodeError as error:
            return f"error: {name}: the arguments cannot be sent: {error}"
        except ToolError as error:
            cause = error.__cause__
            if isinstance(cause, CallError) and cause.status in (400, 404, 405, 422) and not wire.error_in(cause.body):
                return f"error: {cause.excerpt}"
            raise
        return _text(reply)

    async def begin(self, session: str, task: Json) -> Json | None:
        """The first turn; None from a server without turns."""
        if not (await self._report()).get("turns"):
            return None
        reply = await self._post("/reset", task, ToolError, ONCE, _cookie(session))
        if reply.body == b"null":  # the server supports turns, but this environment has none
            return None
        turn = decoded(reply, ToolError)
        read = addressed_reset if (await self._report()).get("players") else reset_fields
        return read((turn.get("observation"), turn.get("info")), MAX_LINE_BYTES)

    async def advance(self, session: str, action: str | dict[str, str]) -> Json:
        """The turn after an action of the model."""
        turn = decoded(
            await self._post("/step", {"action": well_formed(action)}, ToolError, ONCE, _cookie(session)), ToolError
        )
        read = addressed_step if (await self._report()).get("players") else step_fields
        return read(tuple(turn.get(name) for name in STEP_PARTS), MAX_LINE_BYTES)

    async def score(self, session: str, task: Json, response: Json) -> Json:
        headers = {**_cookie(session), wire.BRIEF: "yes"}
        body = {**task, "response": response}
        score = decoded(await self._post("/verify", body, VerifyError, REPEATED, headers), VerifyError)
        return _valid({name: value for name, value in score.items() if name not in _ECHOED})

    async def close(self, session: str) -> None:
        if not session or not self._closes:
            return
        try:
            await self._post("/close_session", {}, ToolError, REPEATED, _cookie(session))
        except ToolError as error:
            cause = error.__cause__
            if not isinstance(cause, CallError) or cause.status not in (
                404,
                405,
                422,
            ):  # 422: its route expects another body
                raise
            self._closes = False

    async def tools(self) -> list[Json]:
        """The tools of the server; none if it does not list them."""
        tools = await self._get("/tools", ToolError)
        return tools if isinstance(tools, list) else []

    async def deferrable(self) -> bool:
        return (await self._report()).get("deferrable") is not False


class HttpAgent(RemoteServer):
    """An agent behind `/run`."""

    def __init__(self, url: str, token: str | None = None, policy: http.Retry = ONCE) -> None:
        super().__init__(url, token)
        self._policy = policy

    async def run(self, task: Json, *, verify: bool = True) -> Json:
        """One task, from its prompt to its score."""
        headers = None if verify else {wire.VERIFY: "no"}
        reply = await self._post("/run", task, AgentError, self._policy, headers)
        result = decoded(reply, AgentError)
        if not isinstance(result.get("response"), dict):
            raise AgentError(f'{self.url}: the result has no "response" object')
        # NeMo Gym's agents leave out fields of the task, and return every field that a request can have.
        params, requested = result.get("responses_create_params"), task["responses_create_params"]
        if isinstance(params, dict):
            params = {name: value for name, value in params.items() if value is not None or name in requested}
            result["responses_create_params"] = params
        return {**task, **_valid(result)}

    async def respond(self, request: Json) -> Json:
        return decoded(await self._post("/v1/responses", request, AgentError, self._policy), AgentError)

    async def deferrable(self) -> bool:
        report = await self._get("/", AgentError)
        return not isinstance(report, dict) or report.get("deferrable") is not False


def _valid(score: Json) -> Json:
    """The score. Raises a VerifyError if it is marked as invalid, as in NeMo Gym after a failed judge."""
    failure = score.get("failure_kind") or score.get("_ng_failure_class")
    if score.get("mask_sample") is True or score.get("_ng_failure_class"):
        reason = score.get("failure_reason") or score.get("_ng_failure_judge_error") or "it gives no reason"
        raise VerifyError(f"verify: its score is not valid ({failure or 'mask_sample'}): {reason}")
    marks = ("mask_sample", "failure_kind", "failure_reason")
    return {name: value for name, value in score.items() if value or name not in marks}


def _cookie(session: str) -> dict[str, str]:
    return {"Cookie": session} if session else {}


def _text(reply: http.Reply) -> str:
    text = reply.body.decode("utf-8", "replace")
    if reply.headers.get("Content-Type", "").startswith("application/json"):
        try:
            data = orjson.loads(reply.body)
        except orjson.JSONDecodeError:
            return text
        if isinstance(data, str):
            return data
    return text


def client_of(kind: str, url: str, token: str | None) -> HttpModel | HttpResources | HttpAgent:
    """The client of a server of this kind of component."""
    kinds: dict[str, type[HttpModel] | type[HttpResources] | type[HttpAgent]]
    kinds = {MODELS: HttpModel, RESOURCES: HttpResources, AGENTS: HttpAgent}
    return kinds[kind](url, token)
