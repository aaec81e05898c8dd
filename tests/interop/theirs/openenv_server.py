"""Runs with openenv: a number to guess, and a walk whose action has two fields. `openenv_server.py KIND PORT`."""

from __future__ import annotations

import os
import sys
from typing import Any

import uvicorn
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Guess(Action):
    """A guess."""

    text: str


class Walk(Action):
    """How far, in which direction."""

    steps: int
    north: bool


class Seen(Observation):
    """What there is to see."""

    text: str = ""


class GuessEnvironment(Environment):
    """A number from 1 to 9, by seed."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.number = self.count = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Seen:
        self.number, self.count = (seed or 0) % 9 + 1, 0
        return Seen(text="Guess a number from 1 to 9.", done=False, reward=0.0)

    def step(self, action: Guess, timeout_s: float | None = None, **kwargs: Any) -> Seen:
        self.count += 1
        if action.text == "die":
            os._exit(3)
        if action.text == str(self.number):
            return Seen(text="Right.", done=True, reward=1.0)
        return Seen(text="No.", done=False, reward=-0.25)

    @property
    def state(self) -> State:
        return State(episode_id="one", step_count=self.count)


class WalkEnvironment(GuessEnvironment):
    """Three steps to the north are home."""

    def step(self, action: Walk, timeout_s: float | None = None, **kwargs: Any) -> Seen:
        home = action.north and action.steps == 3
        return Seen(text="Home." if home else "Lost.", done=home, reward=float(home))


if __name__ == "__main__":
    environment, action = {"guess": (GuessEnvironment, Guess), "walk": (WalkEnvironment, Walk)}[sys.argv[1]]
    app = create_fastapi_app(environment, action, Seen, max_concurrent_envs=64)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
