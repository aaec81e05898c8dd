"""Several players in one environment, each with its own model and conversation, until the game ends.

The players that the environment addresses act concurrently. Tools work within a turn. The row has the conversation of
the learner, or of the first player; the conversations and rewards of all players are in it by name.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from velodrome.contracts import Json, Resources, Turns, as_model, as_task, observation_messages
from velodrome.errors import AgentError, InputError, ModelError, RolloutError, ToolError, VerifyError, blame
from velodrome.records.conversation import final_text, messages
from velodrome.records.outcomes import stop_reason
from velodrome.records.response_fields import complete, complete_usage, distinct_ids, stopped
from velodrome.records.turns import Conversation, prompt_of, spoken_turn
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.settings.component import Component, Field
from velodrome.timing.deadline import deadline
from velodrome.timing.spans import span


@dataclass(slots=True)
class Seat:
    """One player in one rollout: the prompt, and the conversation after it."""

    agent: SimpleAgent
    request: Json
    talk: Conversation = field(default_factory=Conversation)
    last_response: Json = field(default_factory=dict)  # the conversation up to the last turn, as a Response

    def add_observation(self, observation: Any) -> None:
        """Add an observation for this player. Before the player's first answer it is part of the prompt."""
        new_messages = observation_messages(observation)
        if self.talk.items:
            self.talk.add(map(spoken_turn, new_messages))
        else:
            self.request = {**self.request, "input": [*prompt_of(self.request), *new_messages]}

    async def act(self, session: str) -> str:
        """The player's answer, after the tools it calls."""
        before = len(self.talk.items)
        self.last_response = await self.agent.turn(session, self.request, self.talk)
        return final_text(self.talk.items[before:])

    def response(self) -> Json:
        """The whole conversation as one Response."""
        full_response = complete(
            {**self.last_response, "output": self.talk.items, "usage": self.talk.usage}, self.request
        )
        return {**full_response, "output": distinct_ids(full_response["output"], full_response["id"])}

    def row(self) -> Json:
        """The conversation for the row."""
        usage = complete_usage(self.talk.usage) or {}
        return {"responses_create_params": self.request, "output": messages(self.talk.items), "usage": usage}


@dataclass(slots=True)
class Match:
    """The result of the turns so far. `stop` names the limit that stopped them."""

    rewards: list[Json] = field(default_factory=list)
    terminated: bool = False
    truncated: bool = False
    stop: str = ""

    def add(self, turn: Json) -> None:
        """Count one step."""
        self.rewards.append(turn["reward"])
        self.terminated, self.truncated = turn["terminated"], turn["truncated"]
        if self.truncated and not self.terminated:
            self.stop = "truncated"

    @property
    def over(self) -> bool:
        return self.terminated or self.truncated

    @property
    def fields(self) -> Json:
        """The fields of the turns in the row."""
        return {"step_rewards": self.rewards, "terminated": self.terminated, "truncated": self.truncated}


class PlayersAgent(Component):
    """Plays an environment of several players: `players` maps each player to a model."""

    players: dict[str, Any] = Field(
        description="the model of each player by name: `{white: {type: responses_api_models, name: INSTANCE}, …}`"
    )
    environment: Resources = Field(
        validation_alias="resources_server", description="the environment: `{type: resources_servers, name: INSTANCE}`"
    )
    learner: str | None = Field(
        None, description="the player whose reward and conversation are the row's; without one it is the mean"
    )
    max_rounds: int = Field(100, ge=1, description="steps of the environment in one rollout")
    max_steps: int = Field(32, ge=1, description="model calls in one turn of a player")
    timeout_s: float = Field(3600.0, gt=0, description="one rollout; one that takes longer fails")

    def setup(self) -> None:
        """Create a simple agent for every player, in the same environment."""
        if len(self.players) < 2:
            raise InputError("players_agent: players needs at least two names; for one there is simple_agent")
        if self.learner is not None and self.learner not in self.players:
            raise InputError(f'players_agent: learner "{self.learner}" is not among {", ".join(self.players)}')
        if not isinstance(self.environment, Turns):
            owner = type(self.environment).__name__
            raise InputError(f"players_agent: {owner} has no turns (see docs/environments.md#several-players)")
        self._turns: Turns = self.environment
        settings: Json = {"environment": self.environment, "max_steps": self.max_steps, "timeout_s": self.timeout_s}
        self._agents = {name: SimpleAgent(**settings, model=as_model(each)) for name, each in self.players.items()}

    async def run(self, task: str | Json, *, verify: bool = True) -> Json:
        """One task, from its first observations to the score."""
        task = as_task(task)
        seats = {name: Seat(agent, task["responses_create_params"]) for name, agent in self._agents.items()}
        main = seats[self.learner or next(iter(seats))]
        try:
            with deadline(self.timeout_s):
                return await self._run(task, seats, main, verify)
        except TimeoutError:
            text = f"the rollout took longer than timeout_s={self.timeout_s:g}"
            raise AgentError(text, partial=main.talk.items) from None
        except RolloutError as error:
            error.partial = main.talk.items
            raise

    async def _run(self, task: Json, seats: dict[str, Seat], main: Seat, verify: bool) -> Json:
        with span("session"), blame(ToolError, "seed_session"):
            session = await self.environment.open(task)
        try:
            match = Match()
            await self._play(match, session, task, seats)
            response = main.response()
            if match.stop:
                response = {**stopped(response, match.stop), "status": "incomplete"}
            result = {**task, "responses_create_params": main.request}
            if verify:
                with span("verify"), blame(VerifyError, "verify"):
                    result |= await self.environment.score(session, task, response)
                if self.learner is not None and isinstance(result.get("rewards"), dict):
                    result["reward"] = result["rewards"].get(self.learner, 0.0)
        finally:
            await main.agent.close_session(session)
        talks = {name: seat.row() for name, seat in seats.items()}
        return {**result, **match.fields, "players": talks, "response": response}

    async def _play(self, match: Match, session: str, task: Json, seats: dict[str, Seat]) -> None:
        """Play turns until the environment ends the game, or a limit stops it."""
        with span("tool:reset"), blame(ToolError, "reset"):
            turn = await self._turns.begin(session, task)
        if turn is None or not isinstance(turn["observation"], dict):
            raise AgentError("the environment addresses no players; simple_agent plays it")
        for round_ in range(self.max_rounds + 1):
            addressed = self._deliver(turn["observation"], seats)
            if match.over or match.stop:
                return
            if round_ == self.max_rounds:
                match.stop = "max_steps"
                return
            actions = await self._act(match, session, addressed)
            if match.stop:
                return
            with span("tool:step"), blame(ToolError, "step"):
                turn = await self._turns.advance(session, actions)
            match.add(turn)

    def _deliver(self, observations: Json, seats: dict[str, Seat]) -> dict[str, Seat]:
        """Deliver the observations; returns the addressed players, who act next."""
        unknown = [name for name in observations if name not in seats]
        if unknown:
            raise ToolError(f'the environment addresses "{unknown[0]:.40}"; the players are {", ".join(seats)}')
        for name, observation in observations.items():
            seats[name].add_observation(observation)
        return {name: seats[name] for name in observations}

    async def _act(self, match: Match, session: str, seats: dict[str, Seat]) -> dict[str, str]:
        """Get the addressed players' actions concurrently. An answer that was cut off stops the match."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {name: group.create_task(self._answer(name, seat, session)) for name, seat in seats.items()}
        except* RolloutError as errors:
            first_error = errors.exceptions[0]
            raise first_error from first_error.__cause__
        for seat in seats.values():
            if seat.last_response.get("status") == "incomplete":
                match.stop = stop_reason(seat.last_response, seat.request) or "incomplete"
        return {name: task.result() for name, task in tasks.items()}

    async def _answer(self, name: str, seat: Seat, session: str) -> str:
        """One player's turn. If one player learns, a failure of another player's model is a `ToolError`."""
        try:
            return await seat.act(session)
        except ModelError as error:
            kind = ModelError if self.learner in (None, name) else ToolError
            rollout_error = kind(f"{name}: {error}")
            rollout_error.place, rollout_error.away = error.place, error.away
            raise rollout_error from error

    async def respond(self, request: Json) -> Json:
        """Continue one conversation with the learner's or the first player's model, without the game."""
        return await self._agents[self.learner or next(iter(self._agents))].respond(request)

    async def deferrable(self) -> bool:
        """Whether verification can run later."""
        return await self.environment.deferrable()

    async def aclose(self) -> None:
        """Nothing to close."""
