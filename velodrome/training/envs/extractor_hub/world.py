"""The arrays of all environments at once. The kernels change them in place; nothing else holds state.

Axes: E environments, A agents of one, X extractors, F the numbers named here. Few arrays with many columns: every array
a kernel is given costs it compile time. The grid has a margin of walls, so that a window never leaves it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from velodrome.training.envs.extractor_hub import rules
from velodrome.training.envs.interface import Array

MARGIN: Final = rules.REACH - 1

# Columns of agents_EAF and extractors_EXF.
X: Final = 0
Y: Final = 1
COOLDOWN_LEFT: Final = 2
LAST: Final = 2  # ACTIONS at the beginning
STOPPED: Final = 3  # the last move did nothing
CARRIED: Final = 4  # + resource

# Columns of totals_EF.
TIME: Final = 0
EPISODE: Final = 1
DELIVERED: Final = 2  # units
HEARTS: Final = 3
STOCKED: Final = 4  # + resource


class World(NamedTuple):
    """State first, then what stays as it is."""

    grid_EYX: Array  # uint8 cell codes, agents and cooldowns included
    agents_EAF: Array  # int64
    seen_EAX: Array  # uint8: extractors this agent has had in its window
    extractors_EXF: Array  # int64
    totals_EF: Array  # int64
    random_E: Array  # uint64: where the environment's stream is
    seed: Array  # uint64, one number
    size: int
    hub_radius: int
    max_steps: int
    notes: bool


def make_world(size: int, num_envs: int, agents: int, max_steps: int, notes: bool) -> World:
    side, extractors = size + 2 * MARGIN, rules.RESOURCES * rules.per_resource(size)
    return World(
        grid_EYX=np.zeros((num_envs, side, side), np.uint8),
        agents_EAF=np.zeros((num_envs, agents, CARRIED + rules.RESOURCES), np.int64),
        seen_EAX=np.zeros((num_envs, agents, extractors), np.uint8),
        extractors_EXF=np.zeros((num_envs, extractors, COOLDOWN_LEFT + 1), np.int64),
        totals_EF=np.zeros((num_envs, STOCKED + rules.RESOURCES), np.int64),
        random_E=np.zeros(num_envs, np.uint64),
        seed=np.zeros(1, np.uint64),
        size=size,
        hub_radius=rules.hub_radius(size),
        max_steps=max_steps,
        notes=notes,
    )
