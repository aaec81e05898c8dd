"""The interface of environments: arrays that `step` changes in place, for all agents at once.

Agents are environment-major: agent `a` of environment `e` is row `e * agents + a`. After the end of an
episode the next one starts in the same step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Layout = Literal["tokens", "planes", "vector", "mixed"]


@dataclass(frozen=True, slots=True)
class ActionSpace:
    """How an agent acts: by one choice or several, each from its own number of options, or by numbers within bounds."""

    sizes: tuple[int, ...] = ()  # options of each choice: one for Discrete, several for MultiDiscrete
    low: tuple[float, ...] = ()  # Box: bounds of each number, perhaps infinite
    high: tuple[float, ...] = ()
    masked: bool = False  # the environment's `action_mask` says which options are allowed

    @property
    def continuous(self) -> bool:
        return not self.sizes

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one agent's action."""
        return () if len(self.sizes) == 1 else (len(self.sizes) or len(self.low),)

    @property
    def dtype(self) -> Literal["int64", "float32"]:
        return "float32" if self.continuous else "int64"

    @property
    def width(self) -> int:
        """All options of all choices, or how many numbers."""
        return sum(self.sizes) or len(self.low)


@dataclass(frozen=True, slots=True)
class Spec:
    """The shapes of an environment.

    tokens: uint8 rows of `window * window` cell codes below `codes`, then `features` bytes that are numbers (0..255).
    planes: uint8 or float32 of shape (channels, height, width). vector: float32 of shape (n,). mixed: float32 rows: the
    pixels (0..255) of each of `images` in turn, flattened, then other numbers.
    """

    name: str
    num_envs: int
    agents: int  # in each environment
    actions: ActionSpace
    layout: Layout
    obs_shape: tuple[int, ...]
    obs_dtype: str  # "uint8" or "float32"
    window: int = 0
    codes: int = 0
    features: int = 0
    images: tuple[tuple[int, int, int], ...] = ()  # channels, height, width

    @property
    def total(self) -> int:
        """Agents in all environments: the axis N."""
        return self.num_envs * self.agents


@dataclass(frozen=True, slots=True)
class Ended:
    """Episodes that ended, in order: environment, mean return per agent, steps, and the environment's own numbers."""

    envs: NDArray[np.int64]
    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    numbers: Mapping[str, NDArray[np.float64]]  # as deliveries, hearts


class VectorEnv(Protocol):
    """Many environments as one."""

    spec: Spec
    obs: Array  # N x obs_shape
    rewards: NDArray[np.float32]  # N
    terminals: NDArray[np.bool_]  # N: the episode ended here by its own rules
    truncations: NDArray[np.bool_]  # N: it was truncated here; final_obs is its last observation
    action_mask: NDArray[np.bool_] | None  # N x actions.width: what is allowed now; None unless `actions.masked`
    final_obs: Array  # N x obs_shape, good where an episode ended in the last step
    palette: dict[str, str]  # the colour of every letter, #rrggbb; empty if it draws none
    action_names: list[str]  # empty if unknown

    def reset(self, seed: int) -> None:
        """Reset every environment; everything that follows is a function of this seed and the actions."""
        ...

    def step(self, actions_N: Array) -> None:
        """One step of all, by N x `actions.shape` actions, numbers within their bounds.

        Rows of `obs` where an episode ended are the first view of the next one.
        """
        ...

    def ended(self) -> Ended:
        """Episodes that ended since the last call."""
        ...

    def state(self) -> dict[str, Array] | None:
        """Everything that decides what follows, as arrays; None if the environment has no state to save."""
        ...

    def load(self, state: Mapping[str, Array]) -> None:
        """Restore a state from `state`."""
        ...

    def letters(self, env: int) -> NDArray[np.uint8] | None:
        """One environment as ASCII, height x width; None if it draws no map."""
        ...

    def close(self) -> None:
        """Release resources."""
        ...


class Teacher(Protocol):
    """Says what it would do. `ask` updates its memory of each agent."""

    def ask(self, obs_EA: Array, starts_E: NDArray[np.bool_], actions_EA: NDArray[np.int64]) -> None:
        """Write the actions for what every agent sees now; where an episode has just begun, the memory is reset."""
        ...

    def state(self) -> dict[str, Array]:
        """The memory, as arrays."""
        ...

    def load(self, state: Mapping[str, Array]) -> None:
        """Restore a memory from `state`."""
        ...
