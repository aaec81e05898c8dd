"""Pictures as letters, for environments of others: 64 colours, and a plain picture where one draws none."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from velodrome.training.envs.interface import Array, Spec

_BAR_HEIGHT, _BAR_WIDTH, _MOST_BARS = 64, 16, 64  # pixels of the plain picture of a vector, and its first numbers
_MOST_ROWS, _MOST_COLUMNS = 48, 64  # letters; larger pictures are sampled
_LEVELS = 4  # of red, of green and of blue
_ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-", np.uint8)
_HEX = [f"{level * 255 // (_LEVELS - 1):02x}" for level in range(_LEVELS)]

PALETTE = dict(
    zip(
        _ALPHABET.tobytes().decode(),
        (f"#{red}{green}{blue}" for red in _HEX for green in _HEX for blue in _HEX),
        strict=True,
    )
)


def letters_of(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A picture, height x width x RGB, in letters of `PALETTE`."""
    every = max(1, -(-picture.shape[0] // _MOST_ROWS), -(-picture.shape[1] // _MOST_COLUMNS))
    levels = (picture[every // 2 :: every, every // 2 :: every].astype(np.intp) * _LEVELS) // 256
    drawn: NDArray[np.uint8] = _ALPHABET[(levels[..., 0] * _LEVELS + levels[..., 1]) * _LEVELS + levels[..., 2]]
    return drawn


def plain_picture(spec: Spec, obs: Array) -> NDArray[np.uint8]:
    """The first image of an observation, or its numbers as bars from the middle, up for what is above zero."""
    if spec.layout == "mixed":
        obs = obs[: int(np.prod(spec.images[0]))].reshape(spec.images[0]).astype(np.uint8)
    if obs.ndim == 3:
        pixels = obs if obs.dtype == np.uint8 else (np.clip(obs, 0, 1) * 255).astype(np.uint8)
        return np.ascontiguousarray(np.moveaxis(pixels[:3] if len(pixels) >= 3 else np.repeat(pixels[:1], 3, 0), 0, 2))
    obs = obs[:_MOST_BARS]
    picture = np.full((_BAR_HEIGHT, _BAR_WIDTH * len(obs), 3), 255, np.uint8)
    middle = _BAR_HEIGHT // 2
    for k, length in enumerate(np.rint(np.tanh(obs) * (middle - 1)).astype(int)):
        rows = slice(middle - length, middle) if length > 0 else slice(middle, middle - length)
        picture[rows, k * _BAR_WIDTH + 2 : (k + 1) * _BAR_WIDTH - 2] = (40, 90, 200)
    picture[middle] = 0
    return picture


def as_picture(frame: object) -> NDArray[np.uint8] | None:
    """What a renderer returned, if it is a picture."""
    if isinstance(frame, np.ndarray) and frame.ndim == 3 and frame.dtype == np.uint8 and frame.shape[2] == 3:
        return frame if frame.size else None
    return None
