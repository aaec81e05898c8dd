"""The environment's turns in one rollout: `step` gets the model's action and returns the observation."""

from __future__ import annotations

from typing import Any

from velodrome.contracts import Json, Turns, observation_messages
from velodrome.errors import AgentError, ToolError, blame
from velodrome.records.turns import Turn, spoken_turn
from velodrome.timing.spans import span


class Play:
    """The turns of one session, and their rewards so far."""

    def __init__(self, turns: Turns, session: str) -> None:
        self._turns = turns
        self._session = session
        self._player: str | None = None  # in a game of several players: the one the environment addresses
        self.rewards: list[float] = []
        self.terminated = False
        self.truncated = False

    async def begin(self, task: Json) -> list[Json] | None:
        """The environment's first messages; None if it takes no turns."""
        with span("tool:reset"), blame(ToolError, "reset"):
            turn = await self._turns.begin(self._session, task)
        return None if turn is None else self._messages(turn["observation"])

    async def answer(self, action: str) -> list[Turn]:
        """The environment's response to the model's action."""
        with span("tool:step"), blame(ToolError, "step"):
            turn = await self._turns.advance(self._session, action if self._player is None else {self._player: action})
        reward = turn["reward"]
        self.rewards.append(reward if self._player is None else reward.get(self._player, 0.0))
        self.terminated, self.truncated = turn["terminated"], turn["truncated"]
        return list(map(spoken_turn, self._messages(turn["observation"])))

    def _messages(self, observation: Any) -> list[Json]:
        if not isinstance(observation, dict):
            return observation_messages(observation)
        if len({*observation} | {self._player} - {None}) > 1:
            names = ", ".join(sorted(observation))
            raise AgentError(
                f"the environment addresses several players ({names}); simple_agent is one: use players_agent"
            )
        self._player = next(iter(observation), self._player)
        return observation_messages(observation.get(self._player)) if self._player is not None else []

    def own_reward(self, score: Json) -> Json:
        """The score, with this player's own reward if there are several players."""
        rewards = score.get("rewards")
        return (
            {**score, "reward": rewards.get(self._player, 0.0)} if self._player and isinstance(rewards, dict) else score
        )

    @property
    def over(self) -> bool:
        """Whether the environment has ended the game."""
        return self.terminated or self.truncated

    @property
    def fields(self) -> Json:
        """The fields of the turns in the row."""
        return {"step_rewards": self.rewards, "terminated": self.terminated, "truncated": self.truncated}
