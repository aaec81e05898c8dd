"""thinky, the scripted teacher: explores, remembers, plans, extracts, delivers. It sees what an agent sees, no more.

A student without memory is to imitate it, so wherever possible it decides by the observation: lamps, place, number and
last action; ties are broken in a fixed order. Only the map comes from memory, kept per agent and environment. A plan is
a field of distances to a goal, flooded from the goal up to the agent. It stays valid while the agent walks down it, so
it is rebuilt only for another goal, for a wall newly seen inside it, or where the agent has left it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velodrome.errors import InputError
from velodrome.training.compiled import inner, kernel
from velodrome.training.envs.extractor_hub.hub_rules import (
    ACTIONS,
    AGENT,
    BLOCKED,
    CELLS,
    COOLING,
    EAST,
    EXTRACTOR,
    FLOOR,
    FULL,
    HUB,
    INDEX,
    INVENTORY,
    LAST_ACTION,
    NOOP,
    NORTH,
    ON,
    PLENTY,
    POSITION,
    REACH,
    RESOURCES,
    SCARCE,
    SOUTH,
    WALL,
    WEST,
    WINDOW,
)
from velodrome.training.envs.interface import Array

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


PATIENCE: Final = 4  # steps without coming nearer, before it makes room
MAKE_ROOM: Final = 4  # steps
LAP: Final = 9  # steps on a ring, for each of its radius: once around, and the way to it

_RIGHT = (NOOP, EAST, WEST, NORTH, SOUTH)  # of each action
_LEFT = (NOOP, WEST, EAST, SOUTH, NORTH)
_BACK = (NOOP, SOUTH, NORTH, EAST, WEST)


@inner
def seen_beside(obs_EA: Array, e: int, a: int, action: int) -> int:
    x = REACH + (action == EAST) - (action == WEST)
    y = REACH + (action == SOUTH) - (action == NORTH)
    return int(obs_EA[e, a, y * WINDOW + x])


@inner
def last_action(obs_EA: Array, e: int, a: int) -> int:
    for action in range(ACTIONS):
        if obs_EA[e, a, CELLS + LAST_ACTION + action]:
            return action
    return NOOP


@inner
def wanted(obs_EA: Array, e: int, a: int) -> int:
    """What to fetch, counted from one's trade: what is carried already; else the trade, unless the hub has plenty."""
    most, carried = 0, -1
    for r in range(RESOURCES):
        units = int(obs_EA[e, a, CELLS + INVENTORY + r])
        if units > most:
            most, carried = units, r
    if carried >= 0:
        return carried
    if obs_EA[e, a, CELLS + PLENTY]:
        for r in range(1, RESOURCES):
            if obs_EA[e, a, CELLS + SCARCE + r]:
                return r
    return 0


@inner
def exploring(m: Memory, e: int, a: int, x: int, y: int, index: int, last: int) -> int:
    """The cell to head for: straight away from the hub, then clockwise around it, at a distance that shows all.

    A walk at distance R shows all cells between R - REACH and R + REACH, one less at the corners, which are cut. Where
    the map needs several such rings, laps and groups of four take turns.
    """
    middle, step, explored = m.size // 2, WINDOW - 1, m.numbers_EAF[e, a, EXPLORED]
    rings = max(1, (middle - REACH + step - 1) // step)
    ring = index // RESOURCES % rings
    radius = min(step * (ring + 1), middle - 2)
    while explored > LAP * radius:
        explored -= LAP * radius
        ring = (ring + 1) % rings
        radius = min(step * (ring + 1), middle - 2)
    dx, dy = x - middle, y - middle
    along, out, side = dx, -dy, 0
    while side < 3 and not -out <= along < out:  # sides in turn: north, east, south, west
        along, out, side = -out, along, side + 1
    outward = (NORTH, EAST, SOUTH, WEST)[side]
    if out < radius - 3 or (out < radius - 1 and last == outward):
        out = radius
    else:
        if along + 1 >= out:
            side = (side + 1) % 4
        if m.numbers_EAF[e, a, CORNER] == 1 + (side + 1) % 4:  # a way around a wall does not turn it back
            side = (side + 1) % 4
        m.numbers_EAF[e, a, CORNER] = 1 + side
        along, out = radius, radius
    to_x = middle + (along, out, -along, -out)[side]
    to_y = middle + (-out, along, out, -along)[side]
    return GO_CELL + to_y * m.size + to_x


@inner
def choose_goal(m: Memory, e: int, a: int, obs_EA: Array, x: int, y: int, index: int, last: int) -> int:
    resource = (index + wanted(obs_EA, e, a)) % RESOURCES
    full, known = obs_EA[e, a, CELLS + FULL] != 0, m.numbers_EAF[e, a, KNOWN + resource] > 0
    if full or known:
        m.numbers_EAF[e, a, CORNER] = 0
        return GO_HUB if full else resource
    m.numbers_EAF[e, a, EXPLORED] += 1
    return exploring(m, e, a, x, y, index, last)


@inner
def step_down(m: Memory, e: int, a: int, obs_EA: Array, here: int, last: int) -> int:
    """The way down the field: along the row before along the column, not back, and around whoever stands there."""
    moved = obs_EA[e, a, CELLS + BLOCKED] == 0
    distance = m.distance_EAC[e, a, here]
    taken, back = NOOP, NOOP
    for action in (EAST, WEST, NORTH, SOUTH):
        towards = (0, -m.size, m.size, -1, 1)[action]
        if int(m.distance_EAC[e, a, here + towards]) + 1 == distance:
            if seen_beside(obs_EA, e, a, action) == AGENT:
                taken = taken if taken != NOOP else action
            elif moved and last != NOOP and action == _BACK[last]:
                back = action
            else:
                return action
    if back != NOOP:
        return back
    for around in (_RIGHT[taken], _LEFT[taken]):
        if taken != NOOP and seen_beside(obs_EA, e, a, around) == FLOOR:
            return around
    if taken in (WEST, NORTH) and seen_beside(obs_EA, e, a, _BACK[taken]) == FLOOR:
        return _BACK[taken]  # where two cannot pass, this one gives way
    return NOOP


@inner
def step_up(m: Memory, e: int, a: int, obs_EA: Array, here: int, first: int) -> int:
    """Away from the goal, to let others out: what was never flooded is farthest."""
    best, farthest = NOOP, -1
    for k in range(4):
        action = 1 + (first + k) % 4
        distance = int(m.distance_EAC[e, a, here + (0, -m.size, m.size, -1, 1)[action]])
        if seen_beside(obs_EA, e, a, action) == FLOOR and distance > farthest:
            best, farthest = action, distance
    return best


@inner
def advise(m: Memory, e: int, a: int, obs_EA: Array) -> int:
    x = (int(obs_EA[e, a, CELLS + POSITION]) * (m.size - 1) + ON - 1) // ON
    y = (int(obs_EA[e, a, CELLS + POSITION + 1]) * (m.size - 1) + ON - 1) // ON
    index, last = int(obs_EA[e, a, CELLS + INDEX]) // 4, last_action(obs_EA, e, a)
    here = y * m.size + x
    remember(m, e, a, obs_EA, x, y)
    goal = choose_goal(m, e, a, obs_EA, x, y, index, last)
    new_goal = goal != m.numbers_EAF[e, a, GOAL]
    if new_goal or m.distance_EAC[e, a, here] == FAR:
        plan(m, e, a, goal, x, y)
        m.numbers_EAF[e, a, GOAL] = goal
    distance, still = int(m.distance_EAC[e, a, here]), m.numbers_EAF[e, a, STILL]
    if distance == FAR:
        return step_up(m, e, a, obs_EA, here, index)
    nearer = distance == 1 or distance < m.numbers_EAF[e, a, NEAREST]
    left = last != m.numbers_EAF[e, a, ADVICE]  # a student that took another action is not stuck
    patience = PATIENCE + 2 * (index % 4)  # differs by agent, or two would block each other forever
    if new_goal or nearer or left or still >= patience + MAKE_ROOM:
        m.numbers_EAF[e, a, NEAREST] = distance
        still = 0
    else:
        still += 1
    m.numbers_EAF[e, a, STILL] = still
    if still >= patience:
        return step_up(m, e, a, obs_EA, here, index)
    return step_down(m, e, a, obs_EA, here, last)


@kernel
def advise_all(m: Memory, obs_EA: Array, starts_E: Array, actions_EA: Array) -> None:
    for e in range(obs_EA.shape[0]):
        for a in range(obs_EA.shape[1]):
            if starts_E[e]:
                forget(m, e, a)
            action = advise(m, e, a, obs_EA)
            m.numbers_EAF[e, a, ADVICE] = action
            actions_EA[e, a] = action


class Thinky:
    """The teacher of `num_envs` worlds of one size."""

    def __init__(self, size: int, *, num_envs: int, agents: int) -> None:
        self._memory = make_memory(size, num_envs, agents)
        self._starts_E: NDArray[np.bool_] = np.zeros(num_envs, np.bool_)

    def ask(self, obs_EA: Array, starts_E: NDArray[np.bool_], actions_EA: NDArray[np.int64]) -> None:
        self._starts_E[:] = starts_E  # the kernel is compiled for one kind of array
        advise_all(self._memory, obs_EA, self._starts_E, actions_EA)

    def _arrays(self) -> dict[str, Array]:
        m = self._memory
        return {"map_EAC": m.map_EAC, "distance_EAC": m.distance_EAC, "numbers_EAF": m.numbers_EAF}

    def state(self) -> dict[str, Array]:
        return {name: array.copy() for name, array in self._arrays().items()}

    def load(self, state: Mapping[str, Array]) -> None:
        fill(self._arrays(), state, "thinky")


def fill(arrays: Mapping[str, Array], state: Mapping[str, Array], of: str) -> None:
    """Copy a state into existing arrays; refuse one of other shapes."""
    for name, array in arrays.items():
        value = state.get(name)
        if value is None or value.shape != array.shape or value.dtype != array.dtype:
            was = "missing" if value is None else f"{value.dtype}{list(value.shape)}"
            raise InputError(f"{of}: state {name!r} is {was}, not {array.dtype}{list(array.shape)}; same env settings?")
        array[...] = value
