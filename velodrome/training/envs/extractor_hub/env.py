"""extractor_hub behind the common interface: preallocated arrays, changed by kernels.

Everything is a function of the seed and the actions; `state` returns every array.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from velodrome.training.envs.env_names import hub_size
from velodrome.training.envs.extractor_hub import hub_rules
from velodrome.training.envs.extractor_hub.teacher import Thinky, fill
from velodrome.training.envs.extractor_hub.world import EPISODE, MARGIN, World, make_world, step_all
from velodrome.training.envs.interface import ActionSpace, Array, Ended, Spec, VectorEnv
from velodrome.training.settings import EnvSettings

_NOT_STATE = ("size", "hub_radius", "max_steps", "notes")
_GLYPHS = ".#HCOGScogs"  # by cell code; agents are digits
_SIGNS = np.frombuffer(f"{_GLYPHS}@".encode(), np.uint8)
_COLOURS = (
    *("#eeece4", "#464a52", "#d69e2e"),  # floor, wall, hub
    *("#34343c", "#3684d6", "#3a9e60", "#9656be"),  # carbon, oxygen, germanium, silicon
    *("#96969c", "#a4caec", "#a8d6b8", "#d2b8e4"),  # the same, cooling down
)
PALETTE = {**dict(zip(_GLYPHS, _COLOURS, strict=True)), **dict.fromkeys("0123456789", "#de483c")}


def make(settings: EnvSettings) -> ExtractorHub:
    """The environments that `extractor_hub_<size>` names."""
    size = hub_size(settings.name)
    assert size is not None, "settings accept no other name"
    shape = {"num_envs": settings.num_envs, "agents": settings.agents}
    return ExtractorHub(size, **shape, max_steps=settings.max_steps, notes=settings.notes)


def make_teacher(env: VectorEnv) -> Thinky:
    """The teacher of these environments."""
    size = hub_size(env.spec.name)
    assert size is not None, "only an extractor_hub has this teacher"
    return Thinky(size, num_envs=env.spec.num_envs, agents=env.spec.agents)


class ExtractorHub(VectorEnv):
    """Many worlds of one size as one. `reset` begins."""

    def __init__(self, size: int, *, num_envs: int, agents: int, max_steps: int, notes: bool) -> None:
        spec = Spec(
            name=f"extractor_hub_{size}",
            num_envs=num_envs,
            agents=agents,
            actions=ActionSpace((hub_rules.ACTIONS,)),
            layout="tokens",
            obs_shape=(hub_rules.OBS_BYTES,),
            obs_dtype="uint8",
            window=hub_rules.WINDOW,
            codes=hub_rules.CODES,
            features=hub_rules.FEATURES,
        )
        super().__init__(spec)
        self.palette = PALETTE
        self.action_names = list(hub_rules.ACTION_NAMES)
        self.world: World = make_world(size, num_envs, agents, max_steps, notes)
        self._actions_N: NDArray[np.int64] = np.zeros(spec.total, np.int64)
        self._episodes: NDArray[np.float64] = np.zeros((num_envs, 3), np.float64)
        self._ended_count = 0

    def reset(self, seed: int) -> None:
        self.world.seed[0] = seed
        self.world.totals_EF[:, EPISODE] = 0
        self.rewards[:] = 0
        self._ended_count = 0
        self._run(True)

    def step(self, actions_N: NDArray[np.int64]) -> None:
        if self._ended_count + self.spec.num_envs > len(self._episodes):  # `ended` was not called for a while
            self._episodes = np.concatenate([self._episodes, np.zeros_like(self._episodes)])
        self._actions_N[:] = actions_N  # the kernel is compiled for one kind of array
        self._run(False)

    def _run(self, fresh: bool) -> None:
        shown = (self.obs, self.rewards, self.truncations, self.final_obs)
        self._ended_count = step_all(self.world, fresh, self._actions_N, *shown, self._episodes, self._ended_count)

    def ended(self) -> Ended:
        envs, deliveries, hearts = self._episodes[: self._ended_count].T.copy()
        self._ended_count = 0
        return Ended(
            envs=envs.astype(np.int64),
            returns=hearts + hub_rules.UNIT_REWARD * deliveries / self.spec.agents,
            lengths=np.full(len(hearts), self.world.max_steps, np.int64),
            numbers={"deliveries": deliveries, "hearts": hearts},
        )

    def _arrays(self) -> dict[str, Array]:
        arrays: dict[str, Array] = {k: v for k, v in self.world._asdict().items() if k not in _NOT_STATE}
        shown = {"obs": self.obs, "final_obs": self.final_obs, "rewards": self.rewards, "truncations": self.truncations}
        return arrays | shown

    def state(self) -> dict[str, Array]:
        copies = {name: array.copy() for name, array in self._arrays().items()}
        return copies | {"ended": self._episodes[: self._ended_count].copy()}

    def load(self, state: Mapping[str, Array]) -> None:
        fill(self._arrays(), state, self.spec.name)
        self._ended_count = len(state["ended"])
        self._episodes = np.concatenate([state["ended"], np.zeros((self.spec.num_envs, 3), np.float64)])

    def letters(self, env: int) -> NDArray[np.uint8]:
        w = self.world
        drawn: NDArray[np.uint8] = _SIGNS[w.grid_EYX[env, MARGIN : MARGIN + w.size, MARGIN : MARGIN + w.size]]
        x_A, y_A = w.agents_EAF[env, :, :2].T
        drawn[y_A, x_A] = ord("0") + np.arange(len(x_A)) % 10
        return drawn
