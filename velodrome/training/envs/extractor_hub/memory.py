"""What thinky keeps of an episode, per agent and environment: the map it has seen, and the plan it is walking.

A plan is a field of distances to a goal, flooded from the goal up to the agent. It stays good while the agent walks
down it, so it is made anew only for another goal, for a wall newly seen inside it, or where the agent has left it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from velodrome.training.envs.extractor_hub.rules import (
    AGENT,
    COOLING,
    EXTRACTOR,
    FLOOR,
    HUB,
    REACH,
    RESOURCES,
    WALL,
    WINDOW,
)
from velodrome.training.envs.interface import Array
from velodrome.training.kernels.compiled import inner

UNKNOWN: Final = 255
FAR: Final = 65535

# Goals: a resource's number; the hub; a cell.
GO_HUB: Final = RESOURCES
GO_CELL: Final = RESOURCES + 1
NO_GOAL: Final = -1

# Columns of numbers_EAF.
GOAL: Final = 0
NEAREST: Final = 1  # the smallest distance since the goal was set
STILL: Final = 2  # advice taken since then without coming nearer
ADVICE: Final = 3
EXPLORED: Final = 4  # steps
CORNER: Final = 5  # the one it walks to while exploring: 1 north-east, then clockwise; 0 none
KNOWN: Final = 6  # + resource: extractors seen


class Memory(NamedTuple):
    """Axes: E environments, A agents, C cells (row by row), F the numbers above."""

    map_EAC: Array  # uint8: cell codes without agents and cooldowns, or UNKNOWN
    distance_EAC: Array  # uint16 steps to the goal, or FAR
    numbers_EAF: Array  # int64
    queue: Array  # int64: cells to visit; nothing is kept in it
    size: int


def make_memory(size: int, num_envs: int, agents: int) -> Memory:
    """Memories as `forget` leaves them: a flood through a map without its border would leave the array."""
    map_EAYX = np.full((num_envs, agents, size, size), UNKNOWN, np.uint8)
    map_EAYX[:, :, [0, -1]] = map_EAYX[:, :, :, [0, -1]] = WALL
    numbers_EAF = np.zeros((num_envs, agents, KNOWN + RESOURCES), np.int64)
    numbers_EAF[:, :, GOAL] = NO_GOAL
    return Memory(
        map_EAC=map_EAYX.reshape(num_envs, agents, size * size),
        distance_EAC=np.zeros((num_envs, agents, size * size), np.uint16),
        numbers_EAF=numbers_EAF,
        queue=np.zeros(size * size, np.int64),
        size=size,
    )


@inner
def forget(m: Memory, e: int, a: int) -> None:
    last = m.size - 1
    for c in range(m.size * m.size):
        m.map_EAC[e, a, c] = UNKNOWN
    for i in range(m.size):
        m.map_EAC[e, a, i] = m.map_EAC[e, a, last * m.size + i] = WALL
        m.map_EAC[e, a, i * m.size] = m.map_EAC[e, a, i * m.size + last] = WALL
    for f in range(KNOWN + RESOURCES):
        m.numbers_EAF[e, a, f] = 0
    m.numbers_EAF[e, a, GOAL] = NO_GOAL


@inner
def remember(m: Memory, e: int, a: int, obs_EA: Array, x: int, y: int) -> None:
    """Add the window to the map; drop the plan if something new stands in it, or is another of what it leads to."""
    for wy in range(max(0, REACH - y), min(WINDOW, m.size - y + REACH)):
        for wx in range(max(0, REACH - x), min(WINDOW, m.size - x + REACH)):
            code = int(obs_EA[e, a, wy * WINDOW + wx])
            if code == AGENT:
                code = FLOOR
            elif code >= COOLING:
                code += EXTRACTOR - COOLING
            c = (y + wy - REACH) * m.size + x + wx - REACH
            if m.map_EAC[e, a, c] == code:
                continue
            m.map_EAC[e, a, c] = code
            goal = m.numbers_EAF[e, a, GOAL]
            if code >= EXTRACTOR:
                m.numbers_EAF[e, a, KNOWN + code - EXTRACTOR] += 1
            if code - EXTRACTOR == goal or (code != FLOOR and m.distance_EAC[e, a, c] != FAR):
                m.numbers_EAF[e, a, GOAL] = NO_GOAL


@inner
def plan(m: Memory, e: int, a: int, goal: int, x: int, y: int) -> None:
    """Flood from the goal, four ways, through floor and the unknown, until the agent's cell is reached."""
    put, taken, here = 0, 0, y * m.size + x
    source = HUB if goal == GO_HUB else EXTRACTOR + goal
    for c in range(m.size * m.size):
        m.distance_EAC[e, a, c] = FAR
        if m.map_EAC[e, a, c] == source or c == goal - GO_CELL:
            m.distance_EAC[e, a, c] = 0
            m.queue[put] = c
            put += 1
    while taken < put and m.distance_EAC[e, a, here] == FAR:
        c = m.queue[taken]
        taken += 1
        for towards in (1, -1, m.size, -m.size):
            near = c + towards
            code = m.map_EAC[e, a, near]
            if code in (FLOOR, UNKNOWN) and m.distance_EAC[e, a, near] == FAR:
                m.distance_EAC[e, a, near] = m.distance_EAC[e, a, c] + 1
                m.queue[put] = near
                put += 1
