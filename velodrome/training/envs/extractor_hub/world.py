"""The arrays of all environments, and how an episode starts: the layout is drawn, the agents are placed around the hub.

Kernels change the arrays in place; nothing else holds state. Axes: E environments, A agents of one, X extractors, F the
numbers named here. Few arrays with many columns: every array argument costs a kernel compile time. The grid has a
margin of walls, so that a window never leaves it. Random numbers are splitmix64, started at mix(mix(mix(seed) +
environment) + episode), so a layout does not depend on the number of environments; `below(n)` is the upper 31 bits of
the next number, modulo n.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from velodrome.training.compiled import inner
from velodrome.training.envs.extractor_hub.hub_rules import (
    ACTIONS,
    AGENT,
    CELLS_PER_WALL,
    EXTRACTOR,
    FLOOR,
    HUB,
    PLACE_TRIES,
    REACH,
    RESOURCES,
    WALL,
    hub_radius,
    per_resource,
)
from velodrome.training.envs.interface import Array

MARGIN: Final = REACH - 1

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
    side, extractors = size + 2 * MARGIN, RESOURCES * per_resource(size)
    return World(
        grid_EYX=np.zeros((num_envs, side, side), np.uint8),
        agents_EAF=np.zeros((num_envs, agents, CARRIED + RESOURCES), np.int64),
        seen_EAX=np.zeros((num_envs, agents, extractors), np.uint8),
        extractors_EXF=np.zeros((num_envs, extractors, COOLDOWN_LEFT + 1), np.int64),
        totals_EF=np.zeros((num_envs, STOCKED + RESOURCES), np.int64),
        random_E=np.zeros(num_envs, np.uint64),
        seed=np.zeros(1, np.uint64),
        size=size,
        hub_radius=hub_radius(size),
        max_steps=max_steps,
        notes=notes,
    )


_STEP = np.uint64(0x9E3779B97F4A7C15)
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31, _S33 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(33)


@inner
def mix(z: np.uint64) -> np.uint64:
    z = (z ^ (z >> _S30)) * _M1
    z = (z ^ (z >> _S27)) * _M2
    return z ^ (z >> _S31)


@inner
def below(random_E: Array, e: int, n: int) -> int:
    random_E[e] += _STEP
    return int(np.int64(mix(random_E[e]) >> _S33)) % n


@inner
def all_floor(w: World, e: int, x0: int, y0: int, x1: int, y1: int) -> bool:
    """Whether the rectangle grown by one is floor, as far as it is inside the border."""
    for y in range(max(1, y0 - 1), min(w.size - 2, y1 + 1) + 1):
        for x in range(max(1, x0 - 1), min(w.size - 2, x1 + 1) + 1):
            if w.grid_EYX[e, y + MARGIN, x + MARGIN] != FLOOR:
                return False
    return True


@inner
def put(w: World, e: int, x0: int, y0: int, x1: int, y1: int, code: int) -> None:
    for y in range(y0 + MARGIN, y1 + MARGIN + 1):
        for x in range(x0 + MARGIN, x1 + MARGIN + 1):
            w.grid_EYX[e, y, x] = code


@inner
def place_extractors(w: World, e: int) -> bool:
    count, placed, tries = int(w.extractors_EXF.shape[1]), 0, PLACE_TRIES
    while placed < count and tries > 0:
        x = 1 + below(w.random_E, e, w.size - 2)
        y = 1 + below(w.random_E, e, w.size - 2)
        tries -= 1
        if all_floor(w, e, x, y, x, y):
            w.extractors_EXF[e, placed, X] = x
            w.extractors_EXF[e, placed, Y] = y
            w.extractors_EXF[e, placed, COOLDOWN_LEFT] = 0
            put(w, e, x, y, x, y, EXTRACTOR + placed % RESOURCES)
            placed += 1
            tries = PLACE_TRIES
    return placed == count


@inner
def place_walls(w: World, e: int) -> None:
    for _ in range(w.size * w.size // CELLS_PER_WALL):
        longer = 1 + below(w.random_E, e, 3)
        across = below(w.random_E, e, 2)
        x0 = 1 + below(w.random_E, e, w.size - 2)
        y0 = 1 + below(w.random_E, e, w.size - 2)
        x1, y1 = x0 + longer * across, y0 + longer * (1 - across)
        if x1 <= w.size - 2 and y1 <= w.size - 2 and all_floor(w, e, x0, y0, x1, y1):
            put(w, e, x0, y0, x1, y1, WALL)


@inner
def place_agents(w: World, e: int) -> None:
    middle, agents, radius, a, again = w.size // 2, w.agents_EAF.shape[1], w.hub_radius, 0, False
    while a < agents:
        radius += 1
        if radius == middle:  # the border: where few were offered, few may have been floor
            radius, again = w.hub_radius + 1, True
        side = 2 * radius
        stride = 1 if again else max(1, 4 * side // (agents - a))
        for p in range(0, 4 * side, stride):
            edge, along = p // side, p % side - radius
            x = middle + (along, radius, -along, -radius)[edge]
            y = middle + (-radius, along, radius, -along)[edge]
            inside = 0 < x < w.size - 1 and 0 < y < w.size - 1
            if a < agents and inside and w.grid_EYX[e, y + MARGIN, x + MARGIN] == FLOOR:
                w.grid_EYX[e, y + MARGIN, x + MARGIN] = AGENT
                w.agents_EAF[e, a, X] = x
                w.agents_EAF[e, a, Y] = y
                w.agents_EAF[e, a, LAST] = ACTIONS
                w.agents_EAF[e, a, STOPPED] = 0
                a += 1


@inner
def forget(w: World, e: int) -> None:
    w.totals_EF[e, TIME] = w.totals_EF[e, DELIVERED] = w.totals_EF[e, HEARTS] = 0
    for r in range(RESOURCES):
        w.totals_EF[e, STOCKED + r] = 0
    for a in range(w.agents_EAF.shape[1]):
        for r in range(RESOURCES):
            w.agents_EAF[e, a, CARRIED + r] = 0
        for i in range(w.seen_EAX.shape[2]):
            w.seen_EAX[e, a, i] = 0


@inner
def begin(w: World, e: int) -> None:
    """Begin the episode that the environment's number EPISODE names."""
    w.random_E[e] = mix(mix(mix(w.seed[0]) + np.uint64(e)) + np.uint64(w.totals_EF[e, EPISODE]))
    forget(w, e)
    middle, inner, side = w.size // 2, w.size - 2, w.size - 1 + MARGIN
    put(w, e, -MARGIN, -MARGIN, side, side, WALL)
    placed = False
    while not placed:
        put(w, e, 1, 1, inner, inner, FLOOR)
        put(w, e, middle - w.hub_radius, middle - w.hub_radius, middle + w.hub_radius, middle + w.hub_radius, HUB)
        placed = place_extractors(w, e)
    place_walls(w, e)
    place_agents(w, e)
