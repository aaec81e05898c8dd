"""Ask the model, run the tools it calls, send it the results, until it answers; then verify.

In an environment that takes turns, the answer is an action, and the loop continues until the game ends.
The tool calls of one turn run side by side. A mistake of the model is reported to the model. Any other fault ends the
rollout with the error of its boundary, which carries the conversation so far. The session is always closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import orjson

from velodrome import scope
from velodrome.contracts import Json, Model, Resources, Turns, as_task, ask
from velodrome.errors import AgentError, RolloutError, TaskError, ToolError, VerifyError, blame, describe
from velodrome.records.turns import Conversation, FunctionCall, Turn, prompt_of, result_turn, total_tokens
from velodrome.responses_api_agents.simple_agent.play import Play
from velodrome.settings.component import Component, Field
from velodrome.timing.deadline import deadline
from velodrome.timing.spans import span

log = logging.getLogger(__name__)

_NO_SPAN = nullcontext()


class SimpleAgent(Component):
    """Model, tools, model … then verify: at most `max_steps` model calls, all within `timeout_s`.

    A rollout stopped by a limit is verified as it is, and `meta.outcome` names the limit. `timeout_s` is a failure.
    """

    model: Model = Field(
        validation_alias="model_server", description="the model: `{type: responses_api_models, name: INSTANCE}`"
    )
    environment: Resources = Field(
        validation_alias="resources_server", description="the environment: `{type: resources_servers, name: INSTANCE}`"
    )
    max_steps: int = Field(32, ge=1, description="model calls in one rollout")
    max_rollout_tokens: int | None = Field(
        None, ge=1, description="tokens of one rollout, of all its model calls, after which no further one begins"
    )
    max_rollout_s: float | None = Field(
        None, gt=0, description="the time of one rollout after which no model call begins"
    )
    timeout_s: float = Field(3600.0, gt=0, description="one rollout; one that takes longer fails")
    offer_tools: bool = Field(
        True, description="offer all tools of the environment to a task that does not say which it wants"
    )

    def setup(self) -> None:
        """Check whether the environment has sessions and turns. Sessions are timed only if it has any."""
        self._keeps_sessions = bool(getattr(self.environment, "keeps_sessions", True))
        self._turns = self.environment if isinstance(self.environment, Turns) else None
        self._offered_tools: list[Json] | None = None

    async def run(self, task: str | Json, *, verify: bool = True) -> Json:
        """Run one task, from its prompt to its score. A text is a task with that prompt."""
        talk = Conversation()
        return await self.in_time(self._run(as_task(task), talk, verify), talk)

    async def in_time(self, work: Coroutine[Any, Any, Json], talk: Conversation) -> Json:
        """The work's result within `timeout_s`; an error carries the conversation so far."""
        try:
            with deadline(self.timeout_s):
                return await work
        except TimeoutError:
            raise AgentError(f"the rollout took longer than timeout_s={self.timeout_s:g}", partial=talk.items) from None
        except RolloutError as error:
            error.partial = talk.items
            raise

    async def _run(self, task: Json, talk: Conversation, verify: bool) -> Json:
        request = await self._request(task["responses_create_params"])
        with self._session_span(), blame(ToolError, "seed_session"):
            session = await self.environment.open(task)
        try:
            play = None if self._turns is None else Play(self._turns, session)
            if play is not None:
                opening = await play.begin(task)
                if opening is None:
                    play = None
                elif opening:
                    request = {**request, "input": [*prompt_of(request), *opening]}
            talk.begin(request)
            response = await self._converse(session, talk, play)
            result = {**task}
            if verify:
                with span("verify"), blame(VerifyError, "verify"):
                    score = await self.environment.score(session, task, response)
                result |= score if play is None else play.own_reward(score)
        finally:
            await self.close_session(session)
        result["responses_create_params"] = request  # the request itself: a score cannot replace it
        if play is not None:
            result |= play.fields
        result["response"] = response
        return result

    async def turn(self, session: str, request: Json, talk: Conversation) -> Json:
        """Continue a conversation in an open session: the model's answer, after the tools that it calls."""
        talk.begin(await self._request(request))
        return await self._converse(session, talk)

    async def respond(self, request: Json) -> Json:
        """Continue one conversation until the model stops calling tools."""
        talk = Conversation()
        return await self.in_time(self._respond(request, talk), talk)

    async def _respond(self, request: Json, talk: Conversation) -> Json:
        talk.begin(await self._request(request))
        with blame(ToolError, "seed_session"):
            session = await self.environment.open({"responses_create_params": talk.request})
        try:
            return await self._converse(session, talk)  # the caller speaks for the user
        finally:
            await self.close_session(session)

    async def _request(self, params: Json) -> Json:
        if not self.offer_tools or "tools" in params:
            return params
        if self._offered_tools is None:
            with blame(ToolError, "tools"):
                self._offered_tools = await self.environment.tools()
        return {**params, "tools": self._offered_tools} if self._offered_tools else params

    async def _converse(self, session: str, talk: Conversation, play: Play | None = None) -> Json:
        if not talk.prompt and not talk.request.get("instructions"):
            raise TaskError(
                'the task has nothing to ask ("input" is empty); simple_agent brings no prompt of its own, '
                "so give the task one, or an agent or an environment that does"
            )
        start_s = asyncio.get_running_loop().time() if self.max_rollout_s else 0.0
        limit: str | None = None
        for step in range(self.max_steps):
            turn = await ask(self.model, talk.next_request())
            talk.add([turn])
            if turn.is_cut or not (turn.calls or play):
                break
            if turn.calls:
                talk.add(await self._run_tools(session, turn.calls))
            elif play is not None:
                talk.add(await play.answer(turn.text))
            limit = self._limit(play, step, talk.usage, start_s)
            if limit is not None:
                break
        return talk.response(limit or "")

    def _limit(self, play: Play | None, step: int, usage: Json, start_s: float) -> str | None:
        """Why no further model call begins: the name of a limit, "" at the end of the game, or None."""
        if play is not None and play.over:
            return "truncated" if play.truncated and not play.terminated else ""
        if step + 1 == self.max_steps:
            return "max_steps"
        if self.max_rollout_tokens is not None and total_tokens(usage) >= self.max_rollout_tokens:
            return "max_rollout_tokens"
        if self.max_rollout_s is not None and asyncio.get_running_loop().time() - start_s >= self.max_rollout_s:
            return "max_rollout_s"
        return None

    async def _run_tools(self, session: str, calls: Sequence[FunctionCall]) -> list[Turn]:
        """Run the tools that the model called concurrently; returns their results."""
        if len(calls) == 1:
            return [await self._run_tool(session, calls[0])]
        with span("tools"):
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(self._run_tool(session, call)) for call in calls]
            except* RolloutError as errors:
                first_error = errors.exceptions[0]
                raise first_error from first_error.__cause__
        return [task.result() for task in tasks]

    async def _run_tool(self, session: str, call: FunctionCall) -> Turn:
        name, arguments = call.name, call.arguments
        with span(f"tool:{name}"), blame(ToolError, name):
            try:
                parsed = orjson.loads(arguments) if isinstance(arguments, str) else arguments
            except orjson.JSONDecodeError as error:
                text = f"error: the arguments of {name} are not JSON: {error}"
            else:
                text = await self.environment.call(session, name, parsed)
        return result_turn(call, text)

    def _session_span(self) -> AbstractContextManager[Any]:
        """A span for opening or closing a session, if the environment has sessions."""
        return span("session") if self._keeps_sessions else _NO_SPAN

    async def close_session(self, session: str) -> None:
        """Close a session; a failure is logged as a warning."""
        try:
            with self._session_span(), blame(ToolError, "close_session"):
                await (
                    scope.finish(self._close_in_time(session))
                    if self._keeps_sessions
                    else self.environment.close(session)
                )
        except RolloutError as error:
            log.warning("a session could not be closed; its rollout is not affected: %s", describe(error))

    async def _close_in_time(self, session: str) -> None:
        """Close a session within a separate time limit, because closing continues if the rollout is cancelled."""
        with deadline(self.timeout_s), blame(ToolError, "close_session"):
            await self.environment.close(session)

    async def deferrable(self) -> bool:
        """Whether verification can run later."""
        return await self.environment.deferrable()

    async def aclose(self) -> None:
        """Nothing to close."""
