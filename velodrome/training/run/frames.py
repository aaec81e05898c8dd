"""What an environment looks like as rows of letters, each letter a colour: small, readable, easy to draw.

A frame is its rows or, where that is shorter, the change since the frame before: cells counted row by row, and their
new letters.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from velodrome.training.envs.interface import VectorEnv

Frame = list[str] | dict[str, Any]
Letters = NDArray[np.uint8]  # height x width, ASCII

_MOST_ROWS, _MOST_COLUMNS = 48, 64  # of a picture; larger ones are sampled
_LEVELS = 4  # of red, of green and of blue in a picture
_ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-", np.uint8)
_CHANGE_BYTES = 6  # of JSON, about; a cell of a whole frame is one


@runtime_checkable
class Lettered(Protocol):
    """An environment that can be written in letters."""

    palette: dict[str, str]  # a letter's colour, #rrggbb
    action_names: list[str]

    def letters(self, env: int) -> Letters:
        """One environment."""
        ...


class _Picture:
    """Any environment by its picture: sampled, and with 64 colours."""

    def __init__(self, env: VectorEnv) -> None:
        self._env = env
        self.action_names: list[str] = []  # unknown
        levels = [f"{level * 255 // (_LEVELS - 1):02x}" for level in range(_LEVELS)]
        colours = [f"#{red}{green}{blue}" for red in levels for green in levels for blue in levels]
        self.palette = dict(zip(_ALPHABET.tobytes().decode(), colours, strict=True))

    def letters(self, env: int) -> Letters:
        picture = self._env.picture(env)
        every = max(1, -(-picture.shape[0] // _MOST_ROWS), -(-picture.shape[1] // _MOST_COLUMNS))
        levels = (picture[every // 2 :: every, every // 2 :: every].astype(np.intp) * _LEVELS) // 256
        drawn: Letters = _ALPHABET[(levels[..., 0] * _LEVELS + levels[..., 1]) * _LEVELS + levels[..., 2]]
        return drawn


def lettered(env: VectorEnv) -> Lettered:
    """The environment itself if it has letters, otherwise its picture as letters."""
    return env if isinstance(env, Lettered) else _Picture(env)


class Film:
    """The frames of one environment, one after another."""

    def __init__(self, shown: Lettered, env: int) -> None:
        self.frames: list[Frame] = []
        self._shown = shown
        self._env = env
        self._last: Letters | None = None

    def take(self) -> None:
        """Add a frame of the current state."""
        now, last = self._shown.letters(self._env), self._last
        self._last = now
        if last is not None and last.shape == now.shape:
            changed = np.flatnonzero(now != last)
            if len(changed) * _CHANGE_BYTES < now.size:
                self.frames.append({"at": changed.tolist(), "put": now.ravel()[changed].tobytes().decode()})
                return
        self.frames.append([row.tobytes().decode() for row in now])
