"""What `reset` and `step` may hand back, by Gymnasium's names.

Each part is checked here, once, where it enters. One that is missing or not what it should be is an error of the
environment, and never a reward of zero.
"""

from __future__ import annotations

import reprlib
from typing import Any

import orjson

from velodrome.errors import ToolError
from velodrome.records.bounds import MAX_NUMBER, is_bounded
from velodrome.resources_servers.results import json_bytes, tool_text

Json = dict[str, Any]

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
