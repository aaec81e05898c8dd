"""The environment's turns in one rollout: what the model says goes to `step`, and the observation comes back."""

from __future__ import annotations

from velodrome.contracts import Json, Turns, observed
from velodrome.errors import ToolError, blame
from velodrome.timing.spans import span


class Play:
    """The turns of one session, and what they earned so far."""

    def __init__(self, turns: Turns, session: str) -> None:
        self._turns = turns
        self._session = session
        self.rewards: list[float] = []
        self.terminated = False
        self.truncated = False

    async def begin(self, task: Json) -> list[Json] | None:
        """The messages that the environment begins with; None if it takes no turns."""
        with span("tool:reset"), blame(ToolError, "reset"):
            turn = await self._turns.begin(self._session, task)
        return None if turn is None else observed(turn["observation"])

    async def answer(self, action: str) -> list[Json]:
        """The messages that answer what the model said."""
        with span("tool:step"), blame(ToolError, "step"):
            turn = await self._turns.advance(self._session, action)
        self.rewards.append(turn["reward"])
        self.terminated, self.truncated = turn["terminated"], turn["truncated"]
        return [{"type": "message", **message} for message in observed(turn["observation"])]

    @property
    def over(self) -> bool:
        """Whether the environment says that this is the end."""
        return self.terminated or self.truncated

    @property
    def fields(self) -> Json:
        """What the row says of the turns."""
        return {"step_rewards": self.rewards, "terminated": self.terminated, "truncated": self.truncated}
