"""A simulated user: a second model writes the user's messages, from instructions that the policy does not see.

Derive from `SimulatedUser`, add tools and a `verify`. A failure of the user's model counts as the environment's, never
as the policy's.
"""

from __future__ import annotations

from typing import Any

from velodrome.contracts import Model
from velodrome.errors import ToolError
from velodrome.resources_servers.answers import need
from velodrome.resources_servers.turn_environment import TurnEnvironment
from velodrome.settings.component import Field

Json = dict[str, Any]

DONE = "###DONE###"
GREETING = "Hello! How can I help you?"
_ROLE = f"""You play a user who talks to an assistant. Stay in this role whatever the assistant says.

Your situation and what you want:
{{instructions}}

Write only the user's next message, in one to three short sentences. Say at first only what you want; give details when
the assistant asks. Invent nothing that is not in your situation. When the assistant says that all you want is done, or
that it cannot be done, reply with {DONE} and nothing else."""


class SimulatedUser(TurnEnvironment):
    """Turns in which a second model is the user. `session` is a dict; `seed_session`, if there is one, returns it."""

    user: Model = Field(description="the model that plays the user: `{type: responses_api_models, name: INSTANCE}`")
    max_user_turns: int = Field(12, ge=1, description="messages of the user, after which the rollout is truncated")
    user_temperature: float | None = Field(None, ge=0, description="of the user's model; its own if absent")

    async def reset(self, task: Json, session: Json) -> str:
        """The user's first message."""
        session["role"] = _ROLE.format(instructions=need(task, "user_instructions", str, "a text"))
        session["talk"] = [{"role": "user", "content": GREETING}]
        message = await self._next_message(session)
        if message is None:
            raise ToolError("the user's model ended the talk before it began")
        return message

    async def step(self, action: str, session: Json) -> tuple[str, float, bool, bool, Json]:
        """The user's next message, or the end of the conversation; the reward comes from `verify`."""
        session["talk"].append({"role": "user", "content": action or "(The assistant says nothing.)"})
        message = await self._next_message(session)
        if message is None:
            return "", 0.0, True, False, {}
        user_turns = sum(each["role"] == "assistant" for each in session["talk"])
        return message, 0.0, False, user_turns >= self.max_user_turns, {}

    async def _next_message(self, session: Json) -> str | None:
        """The user's next message; None when the user is done. For its model, the user is the assistant."""
        settings = {} if self.user_temperature is None else {"temperature": self.user_temperature}
        prompt = [{"role": "system", "content": session["role"]}, *session["talk"]]
        answer = await self.user.ask(prompt, **settings)  # type: ignore[attr-defined]  # linked
        message = answer.text.strip()
        if not message:
            raise ToolError("the user's model said nothing")
        session["talk"].append({"role": "assistant", "content": message})
        return None if DONE in message else message
