"""The environment's turns in one rollout: what the model says goes to `step`, and the observation comes back."""

from __future__ import annotations

from typing import Any

from velodrome.contracts import Json, Turns, observation_messages
from velodrome.errors import AgentError, ToolError, blame
from velodrome.records.turns import Turn, spoken_turn
from velodrome.timing.spans import span


class Play:
    """The turns of one session, and what they earned so far."""

    def __init__(self, turns: Turns, session: str) -> None:
        self._turns = turns
        self._session = session
        self._name: str | None = None  # in a game of players: whom the environment addresses
        self.rewards: list[float] = []
        self.terminated = False
        self.truncated = False

    async def begin(self, task: Json) -> list[Json] | None:
        """The messages that the environment begins with; None if it takes no turns."""
        with span("tool:reset"), blame(ToolError, "reset"):
            turn = await self._turns.begin(self._session, task)
        return None if turn is None else self._messages(turn["observation"])

    async def answer(self, action: str) -> list[Turn]:
        """What answers what the model said."""
        with span("tool:step"), blame(ToolError, "step"):
            turn = await self._turns.advance(self._session, action if self._name is None else {self._name: action})
        reward = turn["reward"]
        self.rewards.append(reward if self._name is None else reward.get(self._name, 0.0))
        self.terminated, self.truncated = turn["terminated"], turn["truncated"]
        return list(map(spoken_turn, self._messages(turn["observation"])))

    def _messages(self, observation: Any) -> list[Json]:
        if not isinstance(observation, dict):
            return observation_messages(observation)
        if len({*observation} | {self._name} - {None}) > 1:
            names = ", ".join(sorted(observation))
            raise AgentError(
                f"the environment addresses several players ({names}); simple_agent is one: use players_agent"
            )
        self._name = next(iter(observation), self._name)
        return observation_messages(observation.get(self._name)) if self._name is not None else []

    def own_reward(self, score: Json) -> Json:
        """The score of this player, where there are several."""
        rewards = score.get("rewards")
        return {**score, "reward": rewards.get(self._name, 0.0)} if self._name and isinstance(rewards, dict) else score

    @property
    def over(self) -> bool:
        """Whether the environment says that this is the end."""
        return self.terminated or self.truncated

    @property
    def fields(self) -> Json:
        """What the row says of the turns."""
        return {"step_rewards": self.rewards, "terminated": self.terminated, "truncated": self.truncated}
