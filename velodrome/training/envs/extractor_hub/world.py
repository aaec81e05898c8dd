"""The world in kernels: its arrays, how an episode starts, one step of all agents, and what each of them sees.

Kernels change the arrays in place; nothing else holds state. Axes: E environments, A agents of one, X extractors, F the
numbers named here. Few arrays with many columns: every array argument costs a kernel compile time. The grid has a
margin of walls, so that a window never leaves it. Random numbers are splitmix64, started at mix(mix(mix(seed) +
environment) + episode), so a layout does not depend on the number of environments; `below(n)` is the upper 31 bits of
the next number, modulo n.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from velodrome.training.compiled import inner, kernel
from velodrome.training.envs.extractor_hub.hub_rules import (
    ACTIONS,
    AGENT,
    BLOCKED,
    CAPACITY,
    CELLS,
    CELLS_PER_WALL,
    COOLDOWN,
    COOLING,
    EAST,
    EXTRACTOR,
    FLOOR,
    FULL,
    HUB,
    HUB_PLACE,
    INDEX,
    INVENTORY,
    LAST_ACTION,
    NOOP,
    NORTH,
    NOTE_BYTES,
    NOTES,
    OBS_BYTES,
    ON,
    PAIR_YIELD,
    PLACE_TRIES,
    PLENTY,
    PLENTY_OVER,
    POSITION,
    REACH,
    RESOURCES,
    SCARCE,
    SOUTH,
    STOCK,
    STOCK_SHOWN,
    TIME_LEFT,
    TRADE,
    UNIT_REWARD,
    WALL,
    WEST,
    WINDOW,
    YIELD,
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


@inner
def write_place(obs_N: Array, n: int, at: int, dx: int, dy: int, scale: int) -> None:
    obs_N[n, at] = ON if dy < 0 else 0
    obs_N[n, at + 1] = ON if dy > 0 else 0
    obs_N[n, at + 2] = ON if dx < 0 else 0
    obs_N[n, at + 3] = ON if dx > 0 else 0
    obs_N[n, at + 4] = 128 + max(-127, min(127, dx * scale))
    obs_N[n, at + 5] = 128 + max(-127, min(127, dy * scale))


@inner
def write_self(w: World, e: int, a: int, obs_N: Array, n: int) -> None:
    room = CAPACITY
    for r in range(RESOURCES):
        carried = w.agents_EAF[e, a, CARRIED + (a + r) % RESOURCES]
        room -= carried
        obs_N[n, CELLS + INVENTORY + r] = carried * ON // CAPACITY
        obs_N[n, CELLS + TRADE + r] = ON if a % RESOURCES == r else 0
    obs_N[n, CELLS + FULL] = ON if room <= 0 else 0
    obs_N[n, CELLS + POSITION] = w.agents_EAF[e, a, X] * ON // (w.size - 1)
    obs_N[n, CELLS + POSITION + 1] = w.agents_EAF[e, a, Y] * ON // (w.size - 1)
    for action in range(ACTIONS):
        obs_N[n, CELLS + LAST_ACTION + action] = ON if w.agents_EAF[e, a, LAST] == action else 0
    obs_N[n, CELLS + BLOCKED] = ON if w.agents_EAF[e, a, STOPPED] else 0
    obs_N[n, CELLS + TIME_LEFT] = (w.max_steps - w.totals_EF[e, TIME]) * ON // w.max_steps
    obs_N[n, CELLS + INDEX] = a * 4


@inner
def write_hub(w: World, e: int, a: int, x: int, y: int, scale: int, obs_N: Array, n: int) -> None:
    least = w.totals_EF[e, STOCKED]
    for r in range(1, RESOURCES):
        least = min(least, w.totals_EF[e, STOCKED + r])
    for r in range(RESOURCES):
        stock = w.totals_EF[e, STOCKED + (a + r) % RESOURCES]
        obs_N[n, CELLS + STOCK + r] = min(stock, STOCK_SHOWN) * 17
        obs_N[n, CELLS + SCARCE + r] = ON if stock == least else 0
        obs_N[n, CELLS + PLENTY + r] = ON if stock - least >= PLENTY_OVER else 0
    middle, radius = w.size // 2, w.hub_radius
    dx = max(middle - radius, min(middle + radius, x)) - x
    dy = max(middle - radius, min(middle + radius, y)) - y
    write_place(obs_N, n, CELLS + HUB_PLACE, dx, dy, scale)


@inner
def write_notes(w: World, e: int, a: int, x: int, y: int, scale: int, obs_N: Array, n: int) -> None:
    """Note the extractors in sight, and show the nearest one known of every resource."""
    for r in range(RESOURCES):
        best, best_dx, best_dy = 1 << 30, 0, 0
        for i in range((a + r) % RESOURCES, w.extractors_EXF.shape[1], RESOURCES):
            dx, dy = w.extractors_EXF[e, i, X] - x, w.extractors_EXF[e, i, Y] - y
            if abs(dx) <= REACH and abs(dy) <= REACH:
                w.seen_EAX[e, a, i] = 1
            if w.seen_EAX[e, a, i] and abs(dx) + abs(dy) < best:
                best, best_dx, best_dy = abs(dx) + abs(dy), dx, dy
        at = CELLS + NOTES + r * NOTE_BYTES
        if best < 1 << 30:
            obs_N[n, at] = ON
            write_place(obs_N, n, at + 1, best_dx, best_dy, scale)
        else:
            for k in range(NOTE_BYTES):
                obs_N[n, at + k] = 0


@inner
def observe(w: World, e: int, a: int, obs_N: Array, n: int) -> None:
    x, y = w.agents_EAF[e, a, X], w.agents_EAF[e, a, Y]
    scale = max(1, 127 // (w.size - 1))
    for i in range(WINDOW):
        for j in range(WINDOW):
            obs_N[n, i * WINDOW + j] = w.grid_EYX[e, y + i - REACH + MARGIN, x + j - REACH + MARGIN]
    write_self(w, e, a, obs_N, n)
    write_hub(w, e, a, x, y, scale, obs_N, n)
    if w.notes:
        write_notes(w, e, a, x, y, scale, obs_N, n)
    else:
        for k in range(CELLS + NOTES, OBS_BYTES):
            obs_N[n, k] = 0


@inner
def cool_down(w: World, e: int) -> None:
    for i in range(w.extractors_EXF.shape[1]):
        left = w.extractors_EXF[e, i, COOLDOWN_LEFT]
        if left > 0:
            w.extractors_EXF[e, i, COOLDOWN_LEFT] = left - 1
            if left == 1:
                x, y = w.extractors_EXF[e, i, X], w.extractors_EXF[e, i, Y]
                w.grid_EYX[e, y + MARGIN, x + MARGIN] = EXTRACTOR + i % RESOURCES


@inner
def agents_beside(w: World, e: int, x: int, y: int) -> int:
    count = 0
    for dx, dy in ((0, -1), (0, 1), (-1, 0), (1, 0)):
        if w.grid_EYX[e, y + dy + MARGIN, x + dx + MARGIN] == AGENT:
            count += 1
    return count


@inner
def carried_units(w: World, e: int, a: int) -> int:
    units = 0
    for r in range(RESOURCES):
        units += w.agents_EAF[e, a, CARRIED + r]
    return units


@inner
def extract(w: World, e: int, a: int, x: int, y: int, resource: int) -> bool:
    room = CAPACITY - carried_units(w, e, a)
    if room <= 0:
        return False
    paired = agents_beside(w, e, x, y) > 1  # one of them is the agent itself
    w.agents_EAF[e, a, CARRIED + resource] += min(room, PAIR_YIELD if paired else YIELD)
    for i in range(resource, w.extractors_EXF.shape[1], RESOURCES):
        if w.extractors_EXF[e, i, X] == x and w.extractors_EXF[e, i, Y] == y:
            w.extractors_EXF[e, i, COOLDOWN_LEFT] = COOLDOWN
    w.grid_EYX[e, y + MARGIN, x + MARGIN] = COOLING + resource
    return True


@inner
def deposit(w: World, e: int, a: int, rewards_N: Array) -> bool:
    agents, units, least = w.agents_EAF.shape[1], carried_units(w, e, a), 1 << 30
    if units == 0:
        return False
    for r in range(RESOURCES):
        w.totals_EF[e, STOCKED + r] += w.agents_EAF[e, a, CARRIED + r]
        w.agents_EAF[e, a, CARRIED + r] = 0
        least = min(least, w.totals_EF[e, STOCKED + r])
    for r in range(RESOURCES):
        w.totals_EF[e, STOCKED + r] -= least
    w.totals_EF[e, DELIVERED] += units
    w.totals_EF[e, HEARTS] += least
    rewards_N[e * agents + a] += np.float32(UNIT_REWARD * units)
    for b in range(agents):
        rewards_N[e * agents + b] += np.float32(least)
    return True


@inner
def act(w: World, e: int, a: int, action: int, rewards_N: Array) -> None:
    from_x, from_y = w.agents_EAF[e, a, X], w.agents_EAF[e, a, Y]
    x = from_x + (action == EAST) - (action == WEST)
    y = from_y + (action == SOUTH) - (action == NORTH)
    code = int(w.grid_EYX[e, y + MARGIN, x + MARGIN])
    done = action == NOOP
    if code == FLOOR:
        w.grid_EYX[e, from_y + MARGIN, from_x + MARGIN] = FLOOR
        w.grid_EYX[e, y + MARGIN, x + MARGIN] = AGENT
        w.agents_EAF[e, a, X] = x
        w.agents_EAF[e, a, Y] = y
        done = True
    elif EXTRACTOR <= code < EXTRACTOR + RESOURCES:
        done = extract(w, e, a, x, y, code - EXTRACTOR)
    elif code == HUB:
        done = deposit(w, e, a, rewards_N)
    w.agents_EAF[e, a, LAST] = action
    w.agents_EAF[e, a, STOPPED] = 0 if done else 1


@inner
def act_all(w: World, e: int, actions_N: Array, rewards_N: Array) -> None:
    agents = w.agents_EAF.shape[1]
    w.totals_EF[e, TIME] += 1
    cool_down(w, e)
    for a in range(agents):
        rewards_N[e * agents + a] = 0
    for a in range(agents):
        action = actions_N[e * agents + a]
        act(w, e, a, action if NOOP <= action <= EAST else NOOP, rewards_N)


@inner
def show(w: World, e: int, over: bool, obs_N: Array, truncations_N: Array) -> None:
    agents = w.agents_EAF.shape[1]
    for a in range(agents):
        truncations_N[e * agents + a] = over
        observe(w, e, a, obs_N, e * agents + a)


@inner
def keep(w: World, e: int, obs_N: Array, final_obs_N: Array) -> None:
    """Byte by byte: assigning a row would compile numba's shape errors too, longer than all the rest."""
    agents = w.agents_EAF.shape[1]
    for n in range(e * agents, (e + 1) * agents):
        for i in range(OBS_BYTES):
            final_obs_N[n, i] = obs_N[n, i]


@kernel
def step_all(
    w: World,
    fresh: bool,
    actions_N: Array,
    obs_N: Array,
    rewards_N: Array,
    truncations_N: Array,
    final_obs_N: Array,
    ended: Array,
    count: int,
) -> int:
    """Add rows of (environment, deliveries, hearts) to `ended` for episodes that end; `fresh` resets all instead.

    One kernel for both, because what they share is most of what there is to compile.
    """
    for e in range(w.agents_EAF.shape[0]):
        over = False
        if not fresh:
            act_all(w, e, actions_N, rewards_N)
            over = w.totals_EF[e, TIME] >= w.max_steps
            show(w, e, over, obs_N, truncations_N)
        if over:
            keep(w, e, obs_N, final_obs_N)
            ended[count, 0] = e
            ended[count, 1] = w.totals_EF[e, DELIVERED]
            ended[count, 2] = w.totals_EF[e, HEARTS]
            count += 1
            w.totals_EF[e, EPISODE] += 1
        if over or fresh:
            begin(w, e)
            show(w, e, over, obs_N, truncations_N)
    return count
