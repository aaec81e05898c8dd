"""Environments: arrays that `step` changes in place, for all agents at once.

Agents are environment-major: agent `a` of environment `e` is row `e * agents + a`. After the end of an
episode the next one starts in the same step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from velodrome.errors import InputError

Array = NDArray[Any]
Allocate = Callable[[tuple[int, ...], str], Array]
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


class EnvArrays(NamedTuple):
    """The arrays of some agents: their actions are read, everything else is written."""

    actions: Array
    obs: Array
    final_obs: Array
    rewards: NDArray[np.float32]
    terminals: NDArray[np.bool_]
    truncations: NDArray[np.bool_]
    action_mask: NDArray[np.bool_]  # without columns if nothing is masked

    def rows(self, start: int, end: int) -> EnvArrays:
        """Some rows of each."""
        return EnvArrays._make(array[start:end] for array in self)


def allocate_arrays(spec: Spec, allocate: Allocate = np.zeros) -> EnvArrays:
    """The arrays of all agents."""
    n, acts = spec.total, spec.actions
    return EnvArrays(
        actions=allocate((n, *acts.shape), acts.dtype),
        obs=allocate((n, *spec.obs_shape), spec.obs_dtype),
        final_obs=allocate((n, *spec.obs_shape), spec.obs_dtype),
        rewards=allocate((n,), "float32"),
        terminals=allocate((n,), "bool"),
        truncations=allocate((n,), "bool"),
        action_mask=allocate((n, acts.width if acts.masked else 0), "bool"),
    )


class VectorEnv:
    """Many environments as one. Subclasses step, write into the arrays, and call `_count`.

    By default there is no state to save, no map to draw and nothing to close.
    """

    def __init__(self, spec: Spec, rows: EnvArrays | None = None) -> None:
        rows = rows or allocate_arrays(spec)
        self.spec = spec
        self.obs = rows.obs
        self.final_obs = rows.final_obs  # good where an episode ended in the last step
        self.rewards = rows.rewards
        self.terminals = rows.terminals  # the episode ended here by its own rules
        self.truncations = rows.truncations  # it was truncated here; final_obs is its last observation
        self.action_mask = rows.action_mask if spec.actions.masked else None  # what is allowed now
        self.palette: dict[str, str] = {}  # the colour of every letter, #rrggbb
        self.action_names: list[str] = []  # empty if unknown
        self._begin_counting()

    def reset(self, seed: int) -> None:
        """Reset every environment; everything that follows is a function of this seed and the actions."""
        raise NotImplementedError

    def step(self, actions_N: Array) -> None:
        """One step of all, by N x `actions.shape` actions, numbers within their bounds.

        Rows of `obs` where an episode ended are the first view of the next one.
        """
        raise NotImplementedError

    def _begin_counting(self) -> None:
        self._returns_E = np.zeros(self.spec.num_envs)
        self._lengths_E = np.zeros(self.spec.num_envs, np.int64)
        self._ended: list[tuple[int, float, int]] = []
        for array in (self.rewards, self.terminals, self.truncations):
            array[:] = 0

    def _count(self) -> list[int]:
        """Count a step; returns the environments whose episode has ended."""
        self._returns_E += self.rewards.reshape(self.spec.num_envs, -1).mean(1)
        self._lengths_E += 1
        over = np.flatnonzero((self.terminals | self.truncations).reshape(self.spec.num_envs, -1).all(1)).tolist()
        for e in over:
            self._ended.append((e, float(self._returns_E[e]), int(self._lengths_E[e])))
            self._returns_E[e] = self._lengths_E[e] = 0
        return over

    def ended(self) -> Ended:
        """Episodes that ended since the last call."""
        envs, returns, lengths = zip(*self._ended, strict=True) if self._ended else ((), (), ())
        self._ended = []
        return Ended(np.array(envs, np.int64), np.array(returns, np.float64), np.array(lengths, np.int64), {})

    def state(self) -> dict[str, Array] | None:
        """Everything that decides what follows, as arrays; None if the environment has no state to save."""
        return None

    def load(self, state: Mapping[str, Array]) -> None:
        """Restore a state from `state`."""
        raise InputError(f"env.name={self.spec.name}: has no state to restore; it is reset")

    def letters(self, env: int) -> NDArray[np.uint8] | None:
        """One environment as ASCII, height x width; None if it draws no map."""
        return None

    def close(self) -> None:
        """Release resources."""


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
