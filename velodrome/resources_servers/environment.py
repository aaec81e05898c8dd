"""An environment from a plain class: methods marked `@tool`, and `verify`, which returns the reward.

The rule: the user's code, sync or async, can neither stop the loop nor have its failures attributed to the model. Its
exceptions become a `ToolError` or a `VerifyError`; only the model's own mistakes are reported to the model.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import Callable, Collection, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

from pydantic import ValidationError

from velodrome import scope
from velodrome.errors import (
    InputError,
    ModelError,
    RolloutError,
    ToolError,
    VerifyError,
    blame,
    defined_at,
    place_of,
    result_of,
)
from velodrome.machine import cores
from velodrome.records.conversation import Response
from velodrome.resources_servers.awaiting import within
from velodrome.resources_servers.code_workers import CodeWorkers, WorkerEnded, make_copy
from velodrome.resources_servers.results import score_fields, tool_text
from velodrome.resources_servers.schema import Hook, Shape, Tool, complaint, make_shape, no_verify, tool
from velodrome.settings.component import Component, Field, settings_of
from velodrome.settings.names import hint
from velodrome.threads import Escaped, NoAnswer, Threads
from velodrome.timing import elsewhere

__all__ = ["Environment", "tool"]

Json = dict[str, Any]

_shapes: dict[type, Shape] = {}


class Environment(Component):
    """Tools, sessions and a score. Subclass it, mark tools with `@tool`, write `verify`.

    Annotated attributes are settings, of the YAML block and by keyword; `self.config` holds all of them by name. One
    that is a model has `ask`. A class that declares none takes any key of its block in `self.config`.
    A parameter named `session` of a tool or of `verify` gets the result of `seed_session`.
    """

    tool_timeout_s: float = Field(120.0, gt=0, description="one tool call")
    verify_timeout_s: float = Field(300.0, gt=0, description="one `verify`")
    session_timeout_s: float = Field(60.0, gt=0, description="one `seed_session` or `close_session`")
    max_tool_output_bytes: int = Field(1 << 20, gt=0, description="the longest tool result the model sees")
    executor: Literal["inline", "thread", "process"] = Field(
        "thread", description="where tools and `verify` run: [the three](#where-code-runs)"
    )
    threads: int = Field(32, gt=0, description="sync calls at once")
    worker_processes: int | None = Field(None, gt=0, description="of `executor: process`: calls at once (one per core)")
    worker_memory_mb: int = Field(2048, gt=0, description="of `executor: process`: the most memory of one process")
    worker_calls: int = Field(10_000, gt=0, description="of `executor: process`: calls until a process is replaced")
    judge_max_concurrent: int = Field(16, gt=0, description="calls of [`ask`](#asking-a-judge) at once")
    tell_tool_errors: bool = Field(
        False, description="tell the model of a tool's failures instead of failing the rollout"
    )

    def _prepare(self) -> None:
        owner = type(self)
        if owner not in _shapes:
            _shapes[owner] = make_shape(owner, Environment)
        self._shape = _shapes[owner]
        if self._shape.verify is None and owner.score is Environment.score:
            raise InputError(no_verify(owner))
        names = settings_of(owner).model_fields
        models = [name for name in names if is_model(getattr(self, name))]
        if models:
            from velodrome.resources_servers.linked import link_models

            link_models(self, models, self.judge_max_concurrent)
        self.config: Mapping[str, Any] = MappingProxyType(
            {**self.undeclared, **{name: getattr(self, name) for name in names}}
        )
        self.keeps_sessions = self._shape.seed is not None or self._shape.close is not None
        self._sessions: dict[str, Any] = {}
        self._handles = itertools.count(1)
        self._threads = Threads(self.threads, name=owner.__name__)
        self._workers: CodeWorkers | None = None
        if self.executor == "process":
            self._refuse_sessions("executor: process")
            if models:
                raise InputError(
                    f'{owner.__name__}: executor: process, but "{models[0]}" is a model, which is asked from this'
                    " process; use executor: thread"
                )
            self._workers = self.workers_for(owner, {**self.config, "executor": "inline"})
        self._closing_late: set[asyncio.Task[None]] = set()

    @property
    def sessions(self) -> Mapping[str, Any]:
        """The states of the open sessions, by handle."""
        return MappingProxyType(self._sessions)

    def seed_session(self, task: Json) -> Any:
        """The initial state of one rollout. Sync or async."""

    def close_session(self, session: Any) -> Any:
        """Free the state that `seed_session` returned. Sync or async; called once per session, also after a failure."""

    def verify(self, task: Json, response: Response, *args: Any, **kwargs: Any) -> Any:
        """The score: a number, or a dict with `reward`. Sync or async; a parameter `session` is optional."""
        raise NotImplementedError

    @classmethod
    def example_settings(cls) -> Json:
        """The settings that `velo test` uses without a config, such as a function for a judge."""
        return {}

    def reference_answer(self, task: Json) -> Any:
        """An answer that earns 1.0, for `velo test`; None if there is none.

        An answer is the final text, or a list with one entry per model call: a text, or a dict with `tool_calls`
        (each `{"name": …, "arguments": {…}}`) and perhaps `text`. After a tool call, `{tool_result}` in a text is
        replaced by its result.
        """

    def wrong_answers(self, task: Json) -> Json:
        """Answers that earn less than 1.0, by the name of the mistake."""
        return {}

    def cheats(self, task: Json) -> Json:
        """Answers that try to get the reward without doing the task, by name. They earn 0."""
        return {}

    async def open(self, task: Json) -> str:
        """Start a session for this task and return its handle."""
        handle = str(next(self._handles))
        if self._workers is not None:
            self._workers.warm()
        if self.keeps_sessions:
            seed = self._shape.seed
            self._sessions[handle] = None if seed is None else await self._seed(seed, task)
        return handle

    async def call(self, session: str, name: str, arguments: Any) -> str:
        """Run one tool; the model's own mistakes come back as text."""
        tool_hook = self._shape.tools.get(name)
        if tool_hook is None:
            return no_such_tool(name, self._shape.tools)
        if not isinstance(arguments, dict):
            return f"error: {name}: the arguments must be a JSON object"
        try:
            with blame(ToolError, name):
                return await self._tool_text(tool_hook, session, arguments)
        except ToolError as error:
            if not self.tell_tool_errors:
                raise
            return f"error: {error}".encode(errors="backslashreplace").decode()

    async def score(self, session: str, task: Json, response: Json) -> Json:
        """Run `verify` and check its result."""
        verify = self._shape.verify
        if verify is None:
            raise VerifyError(f"{type(self).__name__} has no verify")
        if self._workers is not None:
            with blame(VerifyError, "verify"):
                score: Json = await self._run_elsewhere(
                    VerifyError, verify, self.verify_timeout_s, "score", task, dict(response)
                )
                return score
        call = partial(verify.function, self, task, Response(response))
        if verify.wants_session:
            call = partial(call, session=self._state(session, VerifyError))
        with blame(VerifyError, "verify"):
            result = await self._run(VerifyError, verify, self.verify_timeout_s, call)
            with result_of(verify.function):
                return score_fields(result)

    async def close(self, session: str) -> None:
        """Forget the session. Closing twice is fine."""
        if session in self._sessions:
            state = self._sessions.pop(session)
            if self._shape.close is not None:
                await scope.finish(self._close(state))

    async def tools(self) -> list[Json]:
        """The tools on offer, as OpenAI function tools."""
        return [dict(each.schema) for each in self._shape.tools.values()]

    async def deferrable(self) -> bool:
        """Whether `verify` can run later: not if it reads the session."""
        return self._shape.verify is None or not self._shape.verify.wants_session

    async def aclose(self) -> None:
        """Close the open sessions, and shut down the threads and worker processes."""
        results = await scope.finish(self._close_all())
        self._threads.close()
        if self._workers is not None:
            await self._workers.aclose()
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _tool_text(self, tool_hook: Tool, session: str, arguments: Json) -> str:
        if self._workers is not None:
            text: str = await self._run_elsewhere(
                ToolError, tool_hook, self.tool_timeout_s, "call", tool_hook.name, arguments
            )
            return text
        try:
            keywords = tool_hook.check(arguments)
        except ValidationError as error:
            return f"error: {tool_hook.name}: {complaint(error)}"
        if tool_hook.wants_session:
            keywords["session"] = self._state(session, ToolError)
        call = partial(tool_hook.function, self, **keywords)
        try:
            result = await self._run(ToolError, tool_hook, self.tool_timeout_s, call)
        except ValidationError as error:
            return f"error: {complaint(error)}"
        except ValueError as error:
            result = f"error: {one_line(error)}"
        with result_of(tool_hook.function):
            return tool_text(tool_hook.name, result, self.max_tool_output_bytes)

    async def _run(
        self,
        kind: type[RolloutError],
        hook: Hook,
        limit_s: float,
        call: Callable[[], Any],
        late: Callable[[Any], None] | None = None,
    ) -> Any:
        """Run the user's code: `async def` on the loop, other code in a thread unless the executor is `inline`."""
        try:
            with elsewhere.calling(hook.function):
                if hook.is_async:
                    return await within(limit_s, call())
                if self.executor == "inline":
                    result = await within(limit_s, _inline(call))
                else:
                    result = await self._threads.run(call, timeout_s=limit_s, late=late)
                return await within(limit_s, result) if inspect.iscoroutine(result) else result
        except ModelError as error:  # of a model that this code called, not of the model being scored
            rollout_error = kind(f"{hook.name}: {error}")
            rollout_error.place, rollout_error.away = place_of(error, anywhere=False), error.away
            raise rollout_error from error
        except (NoAnswer, Escaped) as error:
            rollout_error = kind(f"{hook.name}: {error}")
            rollout_error.place = place_of(error, anywhere=False) or defined_at(hook.function)
            raise rollout_error from error

    async def _run_elsewhere(
        self, kind: type[RolloutError], hook: Hook, limit_s: float, method: str, *arguments: Any
    ) -> Any:
        """Call the same method of this environment's copy in a worker process."""
        assert self._workers is not None
        try:
            with elsewhere.calling(hook.function, elsewhere=True):
                return await self._workers.ask(method, arguments, limit_s)
        except (NoAnswer, WorkerEnded) as error:
            rollout_error = kind(f"{hook.name}: {error}")
            rollout_error.place = getattr(error, "place", None) or defined_at(hook.function)
            raise rollout_error from error

    def workers_for(self, owner: type, settings: Mapping[str, Any]) -> CodeWorkers:
        """Worker processes that each create `owner(**settings)` once and call its methods."""
        size = self.worker_processes or cores()
        return CodeWorkers(make_copy(owner, settings), size, self.worker_memory_mb, self.worker_calls)

    def _refuse_sessions(self, setting: str) -> None:
        """Refuse a setting if a hook takes the session, whose state is only in this process."""
        owner = type(self)
        for hook in (self._shape.verify, *self._shape.tools.values()):
            if hook is not None and hook.wants_session:
                raise InputError(
                    f"{owner.__name__}: {setting}, but {hook.name} takes the session, which is kept in this process;"
                    f" leave {setting.partition(':')[0]} out ({defined_at(hook.function)})"
                )
        for name in ("call", "score"):
            if getattr(owner, name) is not getattr(Environment, name):
                raise InputError(f"{owner.__name__}: {setting}, but it has a {name} of its own; leave one of them out")

    async def _seed(self, seed: Hook, task: Json) -> Any:
        """Create the state. Code in a thread cannot be cancelled, so a state that arrives too late is closed."""
        call = partial(seed.function, self, task)
        late = partial(self._close_late, scope.current())
        with blame(ToolError, seed.name):
            work = self._run(ToolError, seed, self.session_timeout_s, call, late)
            return await (work if seed.is_async else scope.finish(work, self._close))

    async def _close_all(self) -> list[BaseException | None]:
        leftover = [self._close(state) for state in self._sessions.values()]
        self._sessions.clear()
        return await asyncio.gather(*leftover, *self._closing_late, return_exceptions=True)

    async def _close(self, state: Any) -> None:
        close = self._shape.close
        if close is not None:
            call = partial(close.function, self, state)
            with blame(ToolError, close.name):
                await self._run(ToolError, close, self.session_timeout_s, call)

    def _close_late(self, call: scope.Scope | None, state: Any) -> None:
        """Close a state that arrived after `seed_session` timed out."""
        if inspect.iscoroutine(state):
            state.close()
        elif self._shape.close is not None:
            task = asyncio.get_running_loop().create_task(self._close(state))
            self._closing_late.add(task)
            task.add_done_callback(self._forget)
            if call is not None:
                call.wait_for(task)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._closing_late.discard(task)
        if not task.cancelled():
            task.exception()  # read, so that asyncio does not report it: the rollout has already failed

    def _state(self, session: str, kind: type[RolloutError]) -> Any:
        if session in self._sessions:
            return self._sessions[session]
        if self.keeps_sessions:
            raise kind(f"session {session} is not open")
        return None


async def _inline(call: Callable[[], Any]) -> Any:
    return call()


def is_model(value: Any) -> bool:
    """Whether a setting is a model."""
    return hasattr(value, "respond") and not hasattr(value, "run")


def no_such_tool(name: str, tools: Collection[str]) -> str:
    """The answer to a call of a tool that does not exist."""
    short_name = name if len(name) <= 64 else name[:64] + "…"
    offered = f"; there are: {', '.join(tools)}" if tools else "; there are none"
    return f'error: there is no tool "{short_name}"{(hint(name, tools) if len(name) <= 64 else "") or offered}'


def one_line(error: BaseException) -> str:
    """The text of an error, for the model."""
    return " ".join(str(error).split())[:1000] or type(error).__name__
