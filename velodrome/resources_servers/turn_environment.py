"""An environment that takes turns with the model: `reset` begins, `step` answers each action, as in Gymnasium.

The rule is that of every environment: what the user's code raises is its own fault, with its line; the model reads of
its own mistakes only. A `ValueError` of `step` is an illegal move, and the next observation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from math import fsum
from typing import Any, ClassVar

from velodrome.errors import InputError, ToolError, VerifyError, blame, result_of
from velodrome.resources_servers.environment import Environment, Json, one_line
from velodrome.resources_servers.schema import Hook, hook
from velodrome.resources_servers.turn_results import reset_fields, step_fields
from velodrome.settings.component import Field


@dataclass(slots=True)
class Game:
    """The turns of one session so far."""

    rewards: list[Any] = field(default_factory=list)
    info: Json = field(default_factory=dict)  # of the last turn
    illegal: int = 0  # moves
    over: bool = False


class TurnEnvironment(Environment):
    """Turns, sessions and a score. Subclass it and write `step`; `reset`, tools and `verify` where they are needed.

    What a model answers without calling a tool is the action; the observation is the next user message. The reward is
    the sum of the steps' rewards, with the last `info` beside it, unless there is a `verify`. Without a `seed_session`
    the session is an empty dict.
    """

    addresses_players: ClassVar[bool] = False
    _read_reset = staticmethod(reset_fields)
    _read_step = staticmethod(step_fields)

    illegal_moves: int | None = Field(
        None, ge=1, description="illegal moves (a `ValueError` of `step`) in one rollout, after which it is truncated"
    )
    turn_timeout_s: float = Field(300.0, gt=0, description="one `reset` or `step`")

    def _prepare(self) -> None:
        super()._prepare()
        owner = type(self)
        step = hook(owner, TurnEnvironment, "step")
        if step is None:
            raise InputError(f"{owner.__name__} has no step; write def step(self, action, session)")
        taken = sorted({"reset", "step"} & self._shape.tools.keys())
        if taken:
            raise InputError(f'{owner.__name__}: "{taken[0]}" is a turn and cannot be a tool; call the tool otherwise')
        self._step: Hook = step
        self._reset = hook(owner, TurnEnvironment, "reset")
        self._games: dict[str, Game] = {}
        self.keeps_sessions = True

    def reset(self, task: Json, *args: Any, **kwargs: Any) -> Any:
        """The first observation (a text, or messages), or it and `info`. Sync or async; `session` is optional."""

    def step(self, action: Any, *args: Any, **kwargs: Any) -> Any:
        """Observation, reward, terminated, truncated, info. Sync or async; a parameter `session` is optional."""
        raise NotImplementedError

    async def open(self, task: Json) -> str:
        """Start a session for this task and return its handle."""
        handle = await super().open(task)
        if self._shape.seed is None:
            self._sessions[handle] = {}
        return handle

    async def begin(self, session: str, task: Json) -> Json | None:
        """The first turn; without a `reset` it says nothing, and the task's own prompt begins."""
        if session in self._games and self._games[session].rewards:
            raise ToolError("reset: the game of this session has begun; another one needs a session of its own")
        self._games[session] = Game()
        if self._reset is None:
            return self._read_reset(None, 0)
        with blame(ToolError, "reset"):
            result = await self._played(self._reset, session, task)
            with result_of(self._reset.function):
                return self._read_reset(result, self.max_tool_output_bytes)

    async def advance(self, session: str, action: str | dict[str, str]) -> Json:
        """The answer to what the model said. An illegal move earns nothing and costs a turn."""
        game = self._games.get(session)
        if game is None or game.over:
            raise ToolError("step: there is nothing to play: reset comes first, and nothing after the end")
        with blame(ToolError, "step"):
            try:
                result = await self._played(self._step, session, well_formed(action))
            except ValueError as error:
                result = self._illegal(action, f"error: {one_line(error)}", game)
            with result_of(self._step.function):
                turn = self._read_step(result, self.max_tool_output_bytes)
        game.rewards.append(turn["reward"])
        game.info, game.over = turn["info"], turn["terminated"] or turn["truncated"]
        return turn

    async def score(self, session: str, task: Json, response: Json) -> Json:
        """What `verify` says, or without one the sum of the steps' rewards."""
        if self._shape.verify is not None:
            return await super().score(session, task, response)
        game = self._games.get(session)
        if game is None:
            raise VerifyError(f"{type(self).__name__} has no verify, and its session was not played")
        return self._total(game)

    async def close(self, session: str) -> None:
        """Forget the session. Closing twice is fine."""
        self._games.pop(session, None)
        await super().close(session)

    async def deferrable(self) -> bool:
        """Whether `verify` can run later; the rewards of steps are the session's."""
        return self._shape.verify is not None and await super().deferrable()

    def _illegal(self, action: Any, text: str, game: Game) -> tuple[Any, ...]:
        """What an illegal move comes to."""
        game.illegal += 1
        return text, 0.0, False, game.illegal == self.illegal_moves, game.info

    def _total(self, game: Game) -> Json:
        """What the steps come to."""
        return {**game.info, "reward": fsum(game.rewards)}

    async def _played(self, hook: Hook, session: str, argument: Any) -> Any:
        call = partial(hook.function, self, argument)
        if hook.wants_session:
            call = partial(call, session=self._state(session, ToolError))
        return await self._run(ToolError, hook, self.turn_timeout_s, call)

    def _refuse_sessions(self, setting: str) -> None:
        raise InputError(
            f"{type(self).__name__}: {setting}, but turns are played in the session, which is kept in this process;"
            f" leave {setting.partition(':')[0]} out"
        )


def well_formed(text: Any) -> Any:
    """The text, or each text by name, with half characters replaced: an environment may repeat what it was told."""
    if isinstance(text, dict):
        return {name: well_formed(each) for name, each in text.items()}
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
