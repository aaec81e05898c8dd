"""A world as letters, each with a colour."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from velodrome.training.envs.extractor_hub.world import MARGIN, World

_GLYPHS = ".#HCOGScogs"  # by cell code; agents are digits
_SIGNS = np.frombuffer(f"{_GLYPHS}@".encode(), np.uint8)
_COLOURS = (
    *("#eeece4", "#464a52", "#d69e2e"),  # floor, wall, hub
    *("#34343c", "#3684d6", "#3a9e60", "#9656be"),  # carbon, oxygen, germanium, silicon
    *("#96969c", "#a4caec", "#a8d6b8", "#d2b8e4"),  # the same, cooling down
)
PALETTE = {**dict(zip(_GLYPHS, _COLOURS, strict=True)), **dict.fromkeys("0123456789", "#de483c")}


def letters(w: World, env: int) -> NDArray[np.uint8]:
    """The cells as ASCII: height x width."""
    drawn: NDArray[np.uint8] = _SIGNS[w.grid_EYX[env, MARGIN : MARGIN + w.size, MARGIN : MARGIN + w.size]]
    x_A, y_A = w.agents_EAF[env, :, :2].T
    drawn[y_A, x_A] = ord("0") + np.arange(len(x_A)) % 10
    return drawn
