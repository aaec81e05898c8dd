"""thinky: far better than chance, never stuck for good, a function of what it has seen."""

from __future__ import annotations

import numpy as np
import pytest

from velodrome.training.envs.extractor_hub.env import ExtractorHub
from velodrome.training.envs.extractor_hub.teacher import Thinky


class Class:
    """A teacher leading an environment, step by step."""

    def __init__(self, size: int, num_envs: int, agents: int, *, notes: bool = True) -> None:
        self.shape = (num_envs, agents)
        self.env = ExtractorHub(size, num_envs=num_envs, agents=agents, max_steps=256, notes=notes)
        self.env.reset(0)
        self.teacher = Thinky(size, num_envs=num_envs, agents=agents)
        self.starts_E = np.ones(num_envs, np.bool_)
        self.actions_EA = np.zeros(self.shape, np.int64)

    def step(self) -> None:
        self.teacher.ask(self.env.obs.reshape(*self.shape, -1), self.starts_E, self.actions_EA)
        self.env.step(self.actions_EA.reshape(-1))
        self.starts_E = self.env.truncations.reshape(self.shape)[:, 0].copy()

    def hearts(self, steps: int = 256) -> np.ndarray:
        for _ in range(steps):
            self.step()
        return self.env.ended().numbers["hearts"]


def random_hearts(size: int, num_envs: int, agents: int) -> np.ndarray:
    env = ExtractorHub(size, num_envs=num_envs, agents=agents, max_steps=256, notes=True)
    env.reset(0)
    for actions_N in np.random.default_rng(0).integers(0, 5, (256, env.spec.total)):
        env.step(actions_N)
    return env.ended().numbers["hearts"]


def test_it_earns_a_hundred_times_the_hearts_of_chance_on_the_seeds_map() -> None:
    taught, chance = Class(30, 64, 4).hearts(), random_hearts(30, 64, 4)
    assert taught.mean() > 15
    assert taught.min() >= 8
    assert chance.mean() < 0.15


@pytest.mark.parametrize(("size", "agents"), [(8, 1), (8, 8), (20, 50), (60, 4)])
def test_no_standoff_lasts_an_episode(size: int, agents: int) -> None:
    assert Class(size, 64, agents).hearts().min() >= 4


def test_an_episode_that_begins_finds_no_memory_of_the_last() -> None:
    late, fresh = Class(16, 4, 3), Class(16, 4, 3)
    late.hearts()
    fresh.env.load(late.env.state())
    for _ in range(60):
        late.step()
        fresh.step()
        assert late.actions_EA.tolist() == fresh.actions_EA.tolist()
