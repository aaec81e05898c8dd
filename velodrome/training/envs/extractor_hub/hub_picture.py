"""A world as letters, as text and as a picture. Nothing here changes anything."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from velodrome.training.envs.extractor_hub import hub_rules
from velodrome.training.envs.extractor_hub.world import CARRIED, HEARTS, MARGIN, STOCKED, TIME, World

PIXELS = 8  # of a cell's side

_GLYPHS = ".#HCOGScogs@"
_SIGNS = np.frombuffer(_GLYPHS.encode(), np.uint8)
_COLOURS = np.array(
    [
        (238, 236, 228),  # floor
        (70, 74, 82),  # wall
        (214, 158, 46),  # hub
        (52, 52, 60),  # carbon
        (54, 132, 214),  # oxygen
        (58, 158, 96),  # germanium
        (150, 86, 190),  # silicon
        (150, 150, 156),  # the same, cooling down
        (164, 202, 236),
        (168, 214, 184),
        (210, 184, 228),
        (222, 72, 60),  # agent
    ],
    np.uint8,
)
PALETTE = {  # a letter's colour; agents are digits
    **{sign: f"#{bytes(_COLOURS[code]).hex()}" for code, sign in enumerate(_GLYPHS) if code != hub_rules.AGENT},
    **dict.fromkeys("0123456789", f"#{bytes(_COLOURS[hub_rules.AGENT]).hex()}"),
}


def cells(w: World, env: int) -> NDArray[np.uint8]:
    grid: NDArray[np.uint8] = w.grid_EYX[env, MARGIN : MARGIN + w.size, MARGIN : MARGIN + w.size]
    return grid


def letters(w: World, env: int) -> NDArray[np.uint8]:
    """The cells as ASCII: height x width."""
    drawn: NDArray[np.uint8] = _SIGNS[cells(w, env)]
    x_A, y_A = w.agents_EAF[env, :, :2].T
    drawn[y_A, x_A] = ord("0") + np.arange(len(x_A)) % 10
    return drawn


def text(w: World, env: int) -> str:
    rows = [row.tobytes().decode() for row in letters(w, env)]
    stock = ", ".join(
        f"{n} {name}" for n, name in zip(w.totals_EF[env, STOCKED:], hub_rules.RESOURCE_NAMES, strict=True)
    )
    head = f"step {w.totals_EF[env, TIME]} of {w.max_steps}   hearts {w.totals_EF[env, HEARTS]}   hub: {stock}"
    carried = [
        " ".join(g * n for g, n in zip(_GLYPHS[3:7], units, strict=True)) for units in w.agents_EAF[env, :, CARRIED:]
    ]
    loads = "   ".join(f"{a}: {''.join(load.split()) or '-'}" for a, load in enumerate(carried))
    return "\n".join([head, *rows, loads])


def picture(w: World, env: int) -> NDArray[np.uint8]:
    """Height x width x 3; agents are discs, with one bright dot for every unit carried."""
    codes = cells(w, env).copy()
    codes[codes == hub_rules.AGENT] = hub_rules.FLOOR
    image: NDArray[np.uint8] = np.repeat(np.repeat(_COLOURS[codes], PIXELS, axis=0), PIXELS, axis=1)
    ticks = np.arange(PIXELS) - (PIXELS - 1) / 2
    disc = ticks[:, None] ** 2 + ticks**2 <= (PIXELS / 2) ** 2 - 2
    for a, (x, y) in enumerate(w.agents_EAF[env, :, :2]):
        cell = image[y * PIXELS : (y + 1) * PIXELS, x * PIXELS : (x + 1) * PIXELS]
        cell[disc] = _COLOURS[hub_rules.AGENT]
        for unit in range(int(w.agents_EAF[env, a, CARRIED:].sum())):
            cell[3 + unit // 2, 3 + unit % 2] = (255, 244, 160)
    return image
