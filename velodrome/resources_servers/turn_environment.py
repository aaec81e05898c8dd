"""An environment that takes turns with the model: `reset` begins, `step` answers each action, as in Gymnasium.

The rule is that of every environment: what the user's code raises is its own fault, with its line; the model reads of
its own mistakes only. A `ValueError` of `step` is an illegal move, and the next observation. What `reset` and `step`
return is checked here, once: a part that is missing or not what it should be is never a reward of zero.
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
_ASKING = ("user", "system", "developer")
_TRUTH = (bool, int)  # numpy's and torch's are plain by then


def reset_fields(result: Any, limit_bytes: int) -> Json:
    """`observation` and `info` of what `reset` returned: an observation, or both as a tuple."""
    observation, info = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
    return {
        "observation": _observation("reset", observation, limit_bytes, (*_ASKING, "assistant")),
        "info": _info("reset", info),
    }


def step_fields(result: Any, limit_bytes: int) -> Json:
    """The five parts of what `step` returned. An observation cannot speak for the model."""
    if not isinstance(result, tuple | list) or len(result) != len(STEP_PARTS):
        raise ToolError(f"step returned {reprlib.repr(result)}, not ({', '.join(STEP_PARTS)})")
    observation, reward, terminated, truncated, info = result
    return {
        "observation": _observation("step", observation, limit_bytes, _ASKING),
        "reward": reward_number(reward),
        "terminated": _flag("terminated", terminated),
        "truncated": _flag("truncated", truncated),
        "info": _info("step", info),
    }


def addressed_reset(result: Any, limit_bytes: int) -> Json:
    """The same of several players: `observation` is by player."""
    observation, info = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
    each = _by_player("reset", "observation", observation)
    return {
        "observation": {name: reset_fields(part, limit_bytes)["observation"] for name, part in each.items()},
        "info": _info("reset", info),
    }


def addressed_step(result: Any, limit_bytes: int) -> Json:
    """The same of several players: `observation` and `reward` are by player."""
    if not isinstance(result, tuple | list) or len(result) != len(STEP_PARTS):
        raise ToolError(f"step returned {reprlib.repr(result)}, not ({', '.join(STEP_PARTS)})")
    observation, reward, terminated, truncated, info = result
    whole = step_fields((None, 0.0, terminated, truncated, info), limit_bytes)
    observations = _by_player("step", "observation", observation)
    if not (observations or whole["terminated"] or whole["truncated"]):
        raise ToolError("step addresses no player, and is not the end")
    return {
        **whole,
        "observation": {name: _observation("step", part, limit_bytes, _ASKING) for name, part in observations.items()},
        "reward": {name: reward_number(part) for name, part in _by_player("step", "reward", reward).items()},
    }


def _by_player(hook: str, what: str, value: Any) -> Json:
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise ToolError(f'{hook} returned {reprlib.repr(value)} as "{what}", not a dict by player')
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
    """A scalar of numpy or torch as Python's."""
    return value.item() if hasattr(value, "item") and getattr(value, "size", 1) == 1 else value


def _info(name: str, info: Any) -> Json:
    if info is None:
        return {}
    if not isinstance(info, dict):
        raise ToolError(f'{name} returned {reprlib.repr(info)} as "info", not a dict')
    fields: Json = orjson.loads(json_bytes(name, info)) if info else {}
    return fields


def _observation(name: str, observation: Any, limit_bytes: int, roles: tuple[str, ...]) -> str | list[Json] | None:
    """A text or messages as they are, None for nothing, anything else as JSON."""
    if observation is None:
        return None
    if not isinstance(observation, list):
        return tool_text(name, observation, limit_bytes)
    for message in observation:
        if not isinstance(message, dict) or message.get("role") not in roles or not message.get("content"):
            shown = f'{reprlib.repr(message)}, not a message: {{"role": "user", "content": "…"}}'
            raise ToolError(f"{name} returned an observation with {shown}")
    messages: list[Json] = orjson.loads(json_bytes(name, observation))
    return messages


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
