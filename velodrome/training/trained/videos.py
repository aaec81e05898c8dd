"""Episodes as mp4 files: what the environment draws of itself, or else its letters in their colours.

A frame is the world at the moment when the actions of its step are chosen, so a film has as many as the episode steps.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from velodrome.errors import InputError, StorageError
from velodrome.training.envs.interface import VectorEnv
from velodrome.training.evaluate import AT_ONCE, Student, evaluation_actions, play
from velodrome.training.network.policy import Policy
from velodrome.training.settings import RunSettings
from velodrome.training.trained.exported_policy import refuse_missing

Json = dict[str, Any]
Picture = NDArray[np.uint8]  # height x width x RGB

FPS = 15
_SIDE = 480  # pixels, about, of letters that are drawn


def film_episodes(
    settings: RunSettings, policy: Policy, step: int, folder: Path, episodes: int, fps: int
) -> list[Json]:
    """Play episodes as an evaluation of so many does; a film of each, with its return and length."""
    refuse_missing("video", "av")
    if not 1 <= episodes <= AT_ONCE:
        raise InputError(f"episodes: expected a whole number from 1 to {AT_ONCE}, not {episodes}")
    generator = evaluation_actions(settings, step, torch.device("cpu"))
    files = [folder / f"step_{step:012d}_episode_{number}.mp4" for number in range(episodes)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as undo:
            films = [undo.enter_context(Video(path, fps)) for path in files]

            def watch(env: VectorEnv, playing_E: NDArray[np.bool_]) -> None:
                for number in np.flatnonzero(playing_E).tolist():
                    films[number].add(drawn(env, number))

            result = play(settings, Student(policy, torch.device("cpu"), generator), episodes=episodes, watch=watch)
    except OSError as error:
        raise StorageError(f"{folder}: cannot be written ({error.strerror or error})") from error
    each = zip(files, result.returns, result.lengths, strict=True)
    return [{"file": str(path), "return": total, "length": length} for path, total, length in each]


def drawn(env: VectorEnv, number: int) -> Picture:
    """One environment as a picture."""
    picture = env.picture(number)
    if picture is not None:
        return picture
    letters = env.letters(number)
    colours = np.zeros((256, 3), np.uint8)
    for letter, colour in env.palette.items():
        colours[ord(letter)] = tuple(bytes.fromhex(colour[1:]))
    size = max(1, _SIDE // max(letters.shape))
    cells: Picture = colours[letters].repeat(size, 0).repeat(size, 1)
    return cells


class Video:
    """An mp4 that is written frame by frame; the first one gives its size. Without a frame there is no file."""

    def __init__(self, path: Path, fps: int) -> None:
        self._path = path
        self._new = path.with_suffix(".new")
        self._fps = fps
        self._container: Any = None
        self._stream: Any = None

    def __enter__(self) -> Video:
        return self

    def add(self, picture: Picture) -> None:
        """Add a frame. H.264 has even sizes: an odd picture gets one more row or column, a copy of the last."""
        import av

        if self._container is None:
            self._container = av.open(str(self._new), "w", format="mp4")
            self._stream = self._container.add_stream("libx264", rate=self._fps, options={"crf": "18"})
            self._stream.height, self._stream.width = (side + side % 2 for side in picture.shape[:2])
            self._stream.pix_fmt = "yuv420p"
        height, width = self._stream.height, self._stream.width
        picture = picture[:height, :width]
        even = np.pad(picture, ((0, height - len(picture)), (0, width - picture.shape[1]), (0, 0)), "edge")
        try:
            packets = self._stream.encode(av.VideoFrame.from_ndarray(even, format="rgb24"))
        except av.error.ExternalError as error:
            raise InputError(f"{self._path}: H.264 has no pictures of {width} x {height}") from error
        for packet in packets:
            self._container.mux(packet)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._container is None:
            return
        if kind is None:
            for packet in self._stream.encode(None):
                self._container.mux(packet)
        self._container.close()
        self._new.replace(self._path) if kind is None else self._new.unlink(missing_ok=True)
