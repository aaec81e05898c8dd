"""A task that needs memory: a cue at the first step, a corridor of noise, then a choice that must match the cue.

What is shown at the choice does not depend on the cue, and no action before the choice has an effect. So an agent
without memory is right once in `CUES` times. Everything is a function of the seed and the
count of steps; all episodes start and end together.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from velodrome.training.envs.env_names import MEMORY
from velodrome.training.envs.interface import ActionSpace, Array, Spec, VectorEnv
from velodrome.training.settings import EnvSettings

CUES = 4
_FIRST, _CHOICE = CUES, CUES + 1  # places in an observation, after the cue or noise
_LETTERS = "ABCD"


def make(settings: EnvSettings) -> MemoryEnv:
    """The environments that `memory:<steps>` names."""
    return MemoryEnv(settings.name, settings.num_envs, int(settings.name.removeprefix(MEMORY)))


class MemoryEnv(VectorEnv):
    """Many corridors of one length as one."""

    def __init__(self, name: str, num_envs: int, corridor: int) -> None:
        choices = ActionSpace(sizes=(CUES,))
        super().__init__(Spec(name, num_envs, 1, choices, "vector", obs_shape=(CUES + 2,), obs_dtype="float32"))
        self.palette = {".": "#eeece4", "?": "#d69e2e", "@": "#de483c", **dict.fromkeys(_LETTERS, "#3684d6")}
        self.action_names = [f"choose {letter}" for letter in _LETTERS]
        self.length = corridor + 2
        self._clock = np.zeros(2, np.int64)  # the seed, and steps since the reset
        self._cues_E = np.zeros(num_envs, np.int64)

    def reset(self, seed: int) -> None:
        self._clock[:] = seed, 0
        self._begin_counting()
        self._show()

    def step(self, actions_N: NDArray[np.int64]) -> None:
        choice = self._place() == self.length - 1
        self.rewards[:] = (actions_N == self._cues_E) & choice
        self.terminals[:] = choice
        if choice:
            self.final_obs[:] = self.obs
        self._count()
        self._clock[1] += 1
        self._show()

    def _place(self) -> int:
        """How many steps into the episode."""
        return int(self._clock[1]) % self.length

    def _show(self) -> None:
        seed, step = self._clock.tolist()
        random = np.random.Generator(np.random.Philox(key=seed, counter=step << 64))
        place = self._place()
        self.obs[:, :CUES] = random.random((self.spec.num_envs, CUES), np.float32)
        if place == 0:
            self._cues_E[:] = random.integers(CUES, size=self.spec.num_envs)
            self.obs[:, :CUES] = np.eye(CUES, dtype=np.float32)[self._cues_E]
        self.obs[:, _FIRST] = place == 0
        self.obs[:, _CHOICE] = place == self.length - 1

    def state(self) -> dict[str, Array]:
        """All of it between epochs, when `ended` was just called."""
        shown = {"obs": self.obs, "rewards": self.rewards, "terminals": self.terminals}
        return {name: array.copy() for name, array in {**shown, "clock": self._clock, "cues": self._cues_E}.items()}

    def load(self, state: Mapping[str, Array]) -> None:
        self._begin_counting()
        self.obs[:], self.rewards[:], self.terminals[:] = state["obs"], state["rewards"], state["terminals"]
        self._clock[:], self._cues_E[:] = state["clock"], state["cues"]
        self._lengths_E[:] = self._place()  # a reward is paid at the end alone

    def letters(self, env: int) -> NDArray[np.uint8]:
        """The corridor with its cue at one end and the choice at the other; `@` is the agent."""
        row = _LETTERS[self._cues_E[env]] + "." * (self.length - 2) + "?"
        place = self._place()
        drawn = row[:place] + "@" + row[place + 1 :] if place else row
        return np.frombuffer(drawn.encode(), np.uint8)[None]
