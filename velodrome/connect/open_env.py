"""An environment that is served by OpenEnv: one WebSocket per session, `reset` and `step`.

The model's answer becomes the action. If the action has one field, it is the text or the number in the answer, else the
JSON object in it. For other answers, the model gets an error message. The reward is the sum of the steps, or the last.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

import aiohttp
import orjson

from velodrome.contracts import Json
from velodrome.errors import InputError, ToolError
from velodrome.resources_servers.turn_environment import TurnEnvironment
from velodrome.settings.component import Field

_OBJECT = re.compile(r"\{.*\}", re.DOTALL)
_NUMBER = re.compile(r"-?\d{1,18}(?:\.\d{1,18})?")
_NOT_SHOWN = frozenset(("metadata", "done", "reward"))
_LONGEST_ACTION = 1 << 20
_LONGEST_MESSAGE = 64 << 20


@dataclass
class OpenEnvSession:
    """The connection and the rewards of one session."""

    http: aiohttp.ClientSession
    socket: aiohttp.ClientWebSocketResponse
    schema: Json
    rewards: list[float] = field(default_factory=list)


class OpenEnvEnvironment(TurnEnvironment):
    """An OpenEnv server by URL. `velo env add openenv:URL` writes a class and a config for it."""

    openenv_url: str = Field(description="the address of the server, as `http://…`")
    headers: dict[str, str] = Field({}, description="headers for the server, such as Authorization")
    action_field: str | None = Field(None, description="the field of the action that takes the model's text")
    observation_field: str | None = Field(None, description="the field of the observation that is shown; else all")
    reward: Literal["sum", "last"] = Field("sum", description="the sum of the steps' rewards, or the last one alone")

    def setup(self) -> None:
        """Check the address."""
        if not self.openenv_url.startswith(("http://", "https://")):
            raise InputError(f"openenv_url is an http:// or https:// URL, not {self.openenv_url!r:.80}")
        self._url = self.openenv_url.rstrip("/")

    async def seed_session(self, task: Json) -> OpenEnvSession:
        """Connect; the server makes an environment for the connection."""
        waits = aiohttp.ClientTimeout(total=None, sock_connect=self.session_timeout_s)
        http = aiohttp.ClientSession(headers=self.headers, timeout=waits)
        try:
            schema = await self.action_schema(http)
            socket = await http.ws_connect(f"{self._url}/ws", max_msg_size=_LONGEST_MESSAGE)
            return OpenEnvSession(http, socket, schema)
        except aiohttp.ClientError as error:
            await http.close()
            raise ToolError(f"{self._url}: no OpenEnv server answers: {error}") from None
        except BaseException:  # also when cancelled
            await http.close()
            raise

    async def action_schema(self, http: aiohttp.ClientSession) -> Json:
        """The JSON schema of an action."""
        async with http.get(f"{self._url}/schema") as reply:
            if reply.status != 200:
                raise ToolError(f"{self._url}/schema: HTTP {reply.status}: not an OpenEnv server")
            schema = orjson.loads(await reply.read())
        action = schema.get("action") if isinstance(schema, dict) else None
        if not isinstance(action, dict):
            raise ToolError(f"{self._url}/schema has no action: not an OpenEnv server")
        fields: Json = action
        return fields

    async def close_session(self, session: OpenEnvSession) -> None:
        """Send `close`, and close the connection."""
        try:
            if not session.socket.closed:
                await session.socket.send_json({"type": "close"})
                await session.socket.close()
        finally:
            await session.http.close()

    async def reset(self, task: Json, session: OpenEnvSession) -> tuple[str, Json]:
        """Begin an episode with the task's `reset`, such as `{"seed": 1}`."""
        data = await self._exchange(session, {"type": "reset", "data": task.get("reset") or {}})
        return self._shown(data), {}

    async def step(self, action: str, session: OpenEnvSession) -> tuple[Any, ...]:
        """Send one action."""
        data = await self._exchange(session, {"type": "step", "data": self.action_of(action, session.schema)})
        session.rewards.append(float(data.get("reward") or 0.0))
        reward = session.rewards[-1]
        if self.reward == "last":
            reward -= session.rewards[-2] if len(session.rewards) > 1 else 0.0
        return self._shown(data), reward, bool(data.get("done")), False, {}

    def action_of(self, text: str, schema: Json) -> Json:
        """The action in an answer. Raises a ValueError with the expected form, which the model reads."""
        name, kind = self.action_field or "", "string"
        if not name:
            name, kind = _only_field(schema)
        if name and kind == "string":
            return {name: text}
        if name:
            numbers = _NUMBER.findall(text[-1000:])
            if not numbers:
                raise ValueError(f"answer with a number ({name})")
            return {name: float(numbers[-1]) if kind == "number" else int(float(numbers[-1]))}
        match = _OBJECT.search(text[-_LONGEST_ACTION:])
        try:
            action = orjson.loads(match[0]) if match else None
        except orjson.JSONDecodeError:
            action = None
        if not isinstance(action, dict):
            raise ValueError(f"answer with a JSON object: {orjson.dumps(schema.get('properties', {})).decode()[:2000]}")
        return action

    async def _exchange(self, session: OpenEnvSession, message: Json) -> Json:
        """Send a message and return the answer. A refused action is a ValueError, other errors are ToolErrors."""
        what = message["type"]
        try:
            await session.socket.send_str(orjson.dumps(message).decode())
            reply = await session.socket.receive()
        except (aiohttp.ClientError, ConnectionError) as error:
            raise ToolError(f"{what}: {self._url}: the connection was lost: {error}") from None
        if reply.type is not aiohttp.WSMsgType.TEXT:
            raise ToolError(f"{what}: {self._url}: the server closed the connection")
        answer = orjson.loads(reply.data)
        data = answer.get("data") or {}
        if answer.get("type") == "error":
            if data.get("code") == "VALIDATION_ERROR" and what == "step":
                raise ValueError(
                    f"{data.get('message')}: {orjson.dumps(data.get('errors'), default=str).decode()[:500]}"
                )
            raise ToolError(f"{what}: {self._url}: {data.get('message')} ({data.get('code')})")
        fields: Json = data
        return fields

    def _shown(self, data: Json) -> str:
        """The observation as text: its field if it has one, else JSON."""
        observation = data.get("observation")
        if not isinstance(observation, dict):
            return str(observation)
        if self.observation_field:
            return str(observation.get(self.observation_field))
        fields = {name: value for name, value in observation.items() if name not in _NOT_SHOWN}
        only = next(iter(fields.values())) if len(fields) == 1 else None
        return only if isinstance(only, str) else orjson.dumps(fields).decode()


def _only_field(schema: Json) -> tuple[str, str]:
    """The only field that an action needs, and its type; empty if it needs several, or another type."""
    fields = {name: each for name, each in (schema.get("properties") or {}).items() if name not in _NOT_SHOWN}
    required = [name for name in schema.get("required") or () if name in fields] or list(fields)
    kind = fields[required[0]].get("type") if len(required) == 1 else None
    return (required[0], str(kind)) if kind in ("string", "integer", "number") else ("", "")
