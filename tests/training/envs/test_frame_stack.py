"""Stacked observations against a list of the last ones, at starts and at ends too."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from velodrome.errors import InputError
from velodrome.training.envs.interface import VectorEnv
from velodrome.training.envs.make import make_env
from velodrome.training.settings import EnvSettings

K = 3


def made(observation: str, **settings: Any) -> VectorEnv:
    options = {"observation": observation}
    return make_env(EnvSettings(name="gymnasium:toy_envs:toy/Sampled-v0", num_envs=2, options=options, **settings), 5)


def stacked(env: VectorEnv, frames: deque[NDArray[Any]]) -> NDArray[Any]:
    """Channel after channel, or each part of a row after the same part of the frame before."""
    spec = env.spec
    if spec.layout == "planes":
        return np.concatenate(list(frames))
    parts, at = [], 0
    for size in [int(np.prod(image)) for image in spec.images] + [None]:
        end = None if size is None else at + size
        parts += [frame[at:end] for frame in frames]
        at = end or 0
    return np.concatenate(parts)


@pytest.mark.parametrize("observation", ["vector", "image", "floats", "dict", "tuple"])
def test_the_last_observations_are_shown_together_and_none_of_another_episode(observation: str) -> None:
    env, plain = made(observation, frame_stack=K), made(observation)
    frames = [deque([row.copy()] * K, K) for row in plain.obs]
    random, ends = np.random.default_rng(0), 0
    for _ in range(30):
        for e in range(2):
            np.testing.assert_array_equal(env.obs[e], stacked(plain, frames[e]))
        actions = random.integers(0, 3, 2)
        for each in (env, plain):
            each.step(actions)
        np.testing.assert_array_equal(env.rewards, plain.rewards)
        for e in range(2):
            if plain.terminals[e]:
                ends += 1
                frames[e].append(plain.final_obs[e].copy())
                np.testing.assert_array_equal(env.final_obs[e], stacked(plain, frames[e]))
                frames[e] = deque([plain.obs[e].copy()] * K, K)
            else:
                frames[e].append(plain.obs[e].copy())
    assert ends == 6
    assert env.spec.obs_shape == env.obs.shape[1:]
    assert [image[0] for image in env.spec.images] == [K * image[0] for image in plain.spec.images]
    assert env.ended().lengths.tolist() == [8] * 6


def test_tokens_are_refused_in_one_line() -> None:
    with pytest.raises(InputError, match=r"^env\.frame_stack=2: extractor_hub_12 shows tokens"):
        make_env(EnvSettings(name="extractor_hub_12", agents=1, frame_stack=2), 0)
