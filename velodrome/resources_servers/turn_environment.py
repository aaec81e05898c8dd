"""An environment that takes turns with the model: `reset` begins, `step` answers each action, as in Gymnasium.

The rule of every environment applies: an exception of the user's code is reported with its line; the model sees only
its own mistakes. A `ValueError` of `step` is an illegal move, and its text is the next observation. The results of
`reset` and `step` are checked once, here: a missing or invalid part is never a reward of zero.
"""

from __future__ import annotations

import reprlib
from dataclasses import dataclass, field
from functools import partial
from math import fsum
from typing import Any, ClassVar

import orjson

from velodrome.errors import InputError, ToolError, VerifyError, blame, result_of
from velodrome.records.bounds import MAX_NUMBER, is_bounded
from velodrome.resources_servers.environment import Environment, Json, one_line
from velodrome.resources_servers.results import json_bytes, tool_text
from velodrome.resources_servers.schema import Hook, hook
from velodrome.settings.component import Field

STEP_PARTS = ("observation", "reward", "terminated", "truncated", "info")
_ROLES = ("user", "system", "developer")
_TRUTH = (bool, int)  # numpy's and torch's are already converted


def reset_fields(result: Any, limit_bytes: int) -> Json:
    """Check the result of `reset`: an observation, or a tuple of observation and `info`."""
    observation, info = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
    return {
        "observation": _observation("reset", observation, limit_bytes, (*_ROLES, "assistant")),
        "info": _info("reset", info),
    }


def step_fields(result: Any, limit_bytes: int) -> Json:
    """Check the five parts of the result of `step`. An observation cannot have the role `assistant`."""
    if not isinstance(result, tuple | list) or len(result) != len(STEP_PARTS):
        raise ToolError(f"step returned {reprlib.repr(result)}, not ({', '.join(STEP_PARTS)})")
    observation, reward, terminated, truncated, info = result
    return {
        "observation": _observation("step", observation, limit_bytes, _ROLES),
        "reward": reward_number(reward),
        "terminated": _flag("terminated", terminated),
        "truncated": _flag("truncated", truncated),
        "info": _info("step", info),
    }


def addressed_reset(result: Any, limit_bytes: int) -> Json:
    """Check the result of `reset` in a game of several players: `observation` is keyed by player."""
    observation, info = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
    by_player = _by_player("reset", "observation", observation)
    return {
        "observation": {name: reset_fields(part, limit_bytes)["observation"] for name, part in by_player.items()},
        "info": _info("reset", info),
    }


def addressed_step(result: Any, limit_bytes: int) -> Json:
    """Check the result of `step` in a game of several players: `observation` and `reward` are keyed by player."""
    if not isinstance(result, tuple | list) or len(result) != len(STEP_PARTS):
        raise ToolError(f"step returned {reprlib.repr(result)}, not ({', '.join(STEP_PARTS)})")
    observation, reward, terminated, truncated, info = result
    checked_turn = step_fields((None, 0.0, terminated, truncated, info), limit_bytes)
    observations = _by_player("step", "observation", observation)
    if not (observations or checked_turn["terminated"] or checked_turn["truncated"]):
        raise ToolError("step addresses no player, and is not the end")
    return {
        **checked_turn,
        "observation": {name: _observation("step", part, limit_bytes, _ROLES) for name, part in observations.items()},
        "reward": {name: reward_number(part) for name, part in _by_player("step", "reward", reward).items()},
    }


def _by_player(hook: str, field_name: str, value: Any) -> Json:
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise ToolError(f'{hook} returned {reprlib.repr(value)} as "{field_name}", not a dict by player')
    return value


def reward_number(reward: Any) -> float:
    """The reward of a step, a finite number."""
    plain = _plain(reward)
    if isinstance(plain, bool) or not isinstance(plain, int | float) or not is_bounded(plain):
        raise ToolError(f'step returned the "reward" {reprlib.repr(reward)}, not a number up to {MAX_NUMBER:g}')
    return float(plain)


def _flag(name: str, value: Any) -> bool:
    plain = _plain(value)
    if not isinstance(plain, _TRUTH) or plain not in (0, 1):
        raise ToolError(f'step returned {reprlib.repr(value)} as "{name}", not True or False')
    return bool(plain)


def _plain(value: Any) -> Any:
    """Convert a scalar of numpy or torch to Python's."""
    return value.item() if hasattr(value, "item") and getattr(value, "size", 1) == 1 else value


def _info(name: str, info: Any) -> Json:
    if info is None:
        return {}
    if not isinstance(info, dict):
        raise ToolError(f'{name} returned {reprlib.repr(info)} as "info", not a dict')
    fields: Json = orjson.loads(json_bytes(name, info)) if info else {}
    return fields


def _observation(name: str, observation: Any, limit_bytes: int, roles: tuple[str, ...]) -> str | list[Json] | None:
    """A text, messages or None unchanged; anything else as JSON."""
    if observation is None:
        return None
    if not isinstance(observation, list):
        return tool_text(name, observation, limit_bytes)
    for message in observation:
        if not isinstance(message, dict) or message.get("role") not in roles or not message.get("content"):
            problem = f'{reprlib.repr(message)}, not a message: {{"role": "user", "content": "…"}}'
            raise ToolError(f"{name} returned an observation with {problem}")
    messages: list[Json] = orjson.loads(json_bytes(name, observation))
    return messages


@dataclass(slots=True)
class Game:
    """The turns of one session so far."""

    rewards: list[Any] = field(default_factory=list)
    info: Json = field(default_factory=dict)  # from the last turn
    illegal: int = 0  # moves
    over: bool = False


class TurnEnvironment(Environment):
    """Turns, sessions and a score. Subclass it and write `step`; `reset`, tools and `verify` where they are needed.

    The model's answer without a tool call is the action; the observation is the next user message. The reward is
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
        conflicts = sorted({"reset", "step"} & self._shape.tools.keys())
        if conflicts:
            raise InputError(
                f'{owner.__name__}: "{conflicts[0]}" is a turn and cannot be a tool; call the tool otherwise'
            )
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
        """The first turn. Without a `reset` it has no observation, and the task's prompt comes first."""
        if session in self._games and self._games[session].rewards:
            raise ToolError("reset: the game of this session has begun; another one needs a session of its own")
        self._games[session] = Game()
        if self._reset is None:
            return self._read_reset(None, 0)
        with blame(ToolError, "reset"):
            result = await self._run_hook(self._reset, session, task)
            with result_of(self._reset.function):
                return self._read_reset(result, self.max_tool_output_bytes)

    async def advance(self, session: str, action: str | dict[str, str]) -> Json:
        """The response to the model's action. An illegal move earns nothing and uses up a turn."""
        game = self._games.get(session)
        if game is None or game.over:
            raise ToolError("step: there is nothing to play: reset comes first, and nothing after the end")
        with blame(ToolError, "step"):
            try:
                result = await self._run_hook(self._step, session, well_formed(action))
            except ValueError as error:
                result = self._illegal(action, f"error: {one_line(error)}", game)
            with result_of(self._step.function):
                turn = self._read_step(result, self.max_tool_output_bytes)
        game.rewards.append(turn["reward"])
        game.info, game.over = turn["info"], turn["terminated"] or turn["truncated"]
        return turn

    async def score(self, session: str, task: Json, response: Json) -> Json:
        """The result of `verify`, or without one the sum of the steps' rewards."""
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
        """Whether `verify` can run later: not without a `verify`, because the steps' rewards are in the session."""
        return self._shape.verify is not None and await super().deferrable()

    def _illegal(self, action: Any, text: str, game: Game) -> tuple[Any, ...]:
        """Count an illegal move; returns its result in the form of `step`."""
        game.illegal += 1
        return text, 0.0, False, game.illegal == self.illegal_moves, game.info

    def _total(self, game: Game) -> Json:
        """The score from the steps' rewards."""
        return {**game.info, "reward": fsum(game.rewards)}

    async def _run_hook(self, hook: Hook, session: str, argument: Any) -> Any:
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
    """Replace lone surrogates in a text, or in each text of a dict: an environment may repeat the action."""
    if isinstance(text, dict):
        return {name: well_formed(each) for name, each in text.items()}
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
