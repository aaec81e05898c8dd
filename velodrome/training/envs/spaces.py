"""Gymnasium's spaces as arrays: what a policy reads, how it acts, and which actions are allowed.

An observation is a row. Images come first, channel by channel; everything else follows as numbers, in the order of
the space, as Gymnasium flattens it: choices one-hot. One image alone stays an image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from gymnasium import Env
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple, flatdim, flatten
from numpy.typing import NDArray

from velodrome.errors import InputError
from velodrome.training.envs.interface import ActionSpace, Array, Layout

MASK = "action_mask"  # its key in a Dict observation, and in an info

Image = tuple[int, int, int]  # channels, height, width
Key = str | int
MaskSource = Literal["observation", "info", "method"]


class _Leaf(NamedTuple):
    """A space without spaces inside, and the keys that lead to it."""

    keys: tuple[Key, ...]
    space: Space[Any]

    def value(self, obs: Any) -> Any:
        for key in self.keys:
            obs = obs[key]
        return obs


class ObservationReader:
    """Writes observations of one space into rows. The key `without` of a Dict is left out."""

    def __init__(self, where: str, space: Space[Any], without: str | None = None) -> None:
        leaves = [leaf for leaf in _leaves(where, space) if leaf.keys[:1] != (without,)]
        images = [(leaf, shape) for leaf in leaves if (shape := _image(leaf.space)) is not None]
        self._numbers = [leaf for leaf in leaves if _image(leaf.space) is None]
        self._pixels = [(leaf, 1 if leaf.space.dtype == np.uint8 else 255) for leaf, _ in images]
        rest = sum(flatdim(leaf.space) for leaf in self._numbers)
        self.images = tuple(shape for _, shape in images)
        self.layout: Layout = "mixed" if images else "vector"
        self.dtype = "float32"
        self.shape: tuple[int, ...] = (sum(int(np.prod(shape)) for shape in self.images) + rest,)
        self._write: Callable[[Any, Array], None] = self._write_all
        if self.shape == (0,):
            raise InputError(f"{where}: shows {space}, in which there is nothing to see")
        if len(leaves) == 1 and images:
            self.layout, self.shape, self.images = "planes", self.images[0], ()
            self.dtype = "uint8" if leaves[0].space.dtype == np.uint8 else "float32"
            self._write = self._write_image
        elif len(leaves) == 1 and isinstance(leaves[0].space, Box):
            self._write = self._write_box

    def layout_fields(self) -> dict[str, Any]:
        """What a `Spec` says of the observations."""
        return {"layout": self.layout, "obs_shape": self.shape, "obs_dtype": self.dtype, "images": self.images}

    def write(self, obs: Any, row: Array) -> None:
        """Write an observation into a row of this shape and type."""
        self._write(obs, row)

    def _write_image(self, obs: Any, row: Array) -> None:
        row[:] = _planes(np.asarray(self._pixels[0][0].value(obs)))

    def _write_box(self, obs: Any, row: Array) -> None:
        row[:] = np.reshape(self._numbers[0].value(obs), -1)

    def _write_all(self, obs: Any, row: Array) -> None:
        at = 0
        for leaf, scale in self._pixels:
            pixels = _planes(np.asarray(leaf.value(obs)))
            np.multiply(pixels.reshape(-1), np.float32(scale), out=row[at : at + pixels.size], casting="unsafe")
            at += pixels.size
        for leaf in self._numbers:
            numbers = flatten(leaf.space, leaf.value(obs))
            row[at : at + len(numbers)] = numbers
            at += len(numbers)


def _leaves(where: str, space: Space[Any], keys: tuple[Key, ...] = ()) -> Iterator[_Leaf]:
    if isinstance(space, Dict | Tuple):
        inner = space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces)
        for key, one in inner:
            yield from _leaves(where, one, (*keys, key))
    elif isinstance(space, Box | Discrete | MultiDiscrete | MultiBinary):
        yield _Leaf(keys, space)
    else:
        kinds = "Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple"
        raise InputError(f"{where}: shows {space}; supported are {kinds}")


def _image(space: Space[Any]) -> Image | None:
    """The shape of an image: uint8 with two or three dimensions, or three of floats from 0 to 1."""
    if not isinstance(space, Box) or not all(space.shape):
        return None
    by_bytes = space.dtype == np.uint8 and len(space.shape) in (2, 3)
    by_floats = space.dtype.kind == "f" and len(space.shape) == 3 and space.low.min() >= 0 and space.high.max() <= 1
    return _planes(np.empty(space.shape, np.uint8)).shape if by_bytes or by_floats else None


def _planes(image: Array) -> Array:
    """Height x width (x channels) with channels first; an image that has them first is unchanged."""
    if image.ndim == 2:
        return image[None]
    return image if image.shape[0] < image.shape[2] else np.moveaxis(image, 2, 0)


class ActionWriter:
    """Turns actions of ours into those of an action space: its type, its shape, and inside its bounds."""

    def __init__(self, where: str, space: Space[Any], *, masked: bool) -> None:
        self._space = space
        self.write: Callable[[Any], Any]
        sizes: tuple[int, ...] = ()
        low: tuple[float, ...] = ()
        high: tuple[float, ...] = ()
        if isinstance(space, Discrete):
            sizes, self.write = (int(space.n),), self._choice
        elif isinstance(space, MultiDiscrete):
            sizes, self.write = tuple(space.nvec.ravel().tolist()), self._choices
        elif isinstance(space, MultiBinary):
            sizes, self.write = (2,) * int(np.prod(space.shape)), self._choices
        elif isinstance(space, Box) and space.dtype.kind in "fiu" and all(space.shape):
            low, high = (tuple(bound.ravel().astype(float).tolist()) for bound in (space.low, space.high))
            self.write = self._numbers
        else:
            kinds = "Discrete, MultiDiscrete, MultiBinary and Box"
            raise InputError(f"{where}: acts by {space}; supported are {kinds}")
        if not (sizes or low):
            raise InputError(f"{where}: acts by {space}, in which there is nothing to choose")
        self._start = getattr(space, "start", 0)
        self.actions = ActionSpace(sizes, low, high, masked=masked)

    def _choice(self, action: Any) -> int:
        return int(action + self._start)

    def _choices(self, action: Array) -> Array:
        return (action.reshape(self._space.shape) + self._start).astype(self._space.dtype)

    def _numbers(self, action: Array) -> Array:
        space = self._space
        assert isinstance(space, Box)
        within = np.clip(action.reshape(space.shape).astype(np.float64), space.low, space.high)
        return np.asarray(within if space.dtype.kind == "f" else np.rint(within), space.dtype)


class MaskReader:
    """Writes which options an environment allows: an array over all of them, or one per choice."""

    def __init__(self, where: str, actions: ActionSpace, source: MaskSource | None, env: Env[Any, Any]) -> None:
        self._where, self._source, self._env = where, source, env
        self._width = actions.width
        self._starts = np.concatenate(([0], np.cumsum(actions.sizes)[:-1]))

    def write(self, obs: Any, info: Mapping[str, Any], row: NDArray[np.bool_]) -> None:
        """Write the mask of this moment into a row of booleans; each choice needs an option."""
        if self._source is None:
            return
        if self._source == "info" and MASK not in info:
            raise InputError(f'{self._where}: the info of this observation has no "{MASK}"')
        if self._source == "method":
            mask = self._env.get_wrapper_attr("action_masks")()
        else:
            mask = (obs if self._source == "observation" else info)[MASK]
        parts = [np.ravel(part) for part in mask] if isinstance(mask, list | tuple) else [np.ravel(mask)]
        allowed = np.concatenate(parts)
        if allowed.size != self._width:
            raise InputError(f"{self._where}: its action_mask has {allowed.size} entries for {self._width} actions")
        row[:] = allowed
        if not np.logical_or.reduceat(row, self._starts).all():
            raise InputError(f"{self._where}: its action_mask allows no action")


def mask_source(space: Space[Any], acted: Space[Any], info: Mapping[str, Any], *, method: bool) -> MaskSource | None:
    """Where an environment says which actions are allowed, by the first of these that is there."""
    if isinstance(acted, Box):
        return None
    if isinstance(space, Dict) and MASK in space.spaces:
        return "observation"
    return "info" if MASK in info else "method" if method else None
