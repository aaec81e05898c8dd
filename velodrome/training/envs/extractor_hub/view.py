"""What an agent sees: the window of cell codes, then the features in the order of rules.py."""

from __future__ import annotations

from velodrome.training.envs.extractor_hub.rules import (
    ACTIONS,
    BLOCKED,
    CAPACITY,
    CELLS,
    FULL,
    HUB_PLACE,
    INDEX,
    INVENTORY,
    LAST_ACTION,
    NOTE_BYTES,
    NOTES,
    OBS_BYTES,
    ON,
    PLENTY,
    PLENTY_OVER,
    POSITION,
    REACH,
    RESOURCES,
    SCARCE,
    STOCK,
    STOCK_SHOWN,
    TIME_LEFT,
    TRADE,
    WINDOW,
)
from velodrome.training.envs.extractor_hub.world import CARRIED, LAST, MARGIN, STOCKED, STOPPED, TIME, World, X, Y
from velodrome.training.envs.interface import Array
from velodrome.training.kernels.compiled import inner


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
