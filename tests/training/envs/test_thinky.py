"""thinky: far better than chance, never stuck for good, a function of what it has seen."""

from __future__ import annotations

import numpy as np
import pytest

from velodrome.training.envs.extractor_hub.env import ExtractorHub
from velodrome.training.envs.extractor_hub.teacher import Thinky


class Class:
    """A teacher leading an environment, step by step."""

    def __init__(self, size: int, num_envs: int, agents: int, *, notes: bool = True, seed: int = 0) -> None:
        self.shape = (num_envs, agents)
        self.env = ExtractorHub(size, num_envs=num_envs, agents=agents, max_steps=256, notes=notes)
        self.env.reset(seed)
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


@pytest.mark.parametrize(("size", "agents"), [(8, 1), (8, 4), (8, 8), (12, 18), (20, 50), (30, 12), (60, 4)])
def test_no_standoff_lasts_an_episode(size: int, agents: int) -> None:
    assert Class(size, 64, agents).hearts().min() >= 4


def test_it_does_as_well_without_notes_because_it_remembers_itself() -> None:
    assert Class(30, 32, 4, notes=False).hearts().tolist() == Class(30, 32, 4).hearts().tolist()


def test_an_episode_that_begins_finds_no_memory_of_the_last() -> None:
    late, fresh = Class(16, 4, 3), Class(16, 4, 3)
    late.hearts()
    fresh.env.load(late.env.state())
    for _ in range(60):
        late.step()
        fresh.step()
        assert late.actions_EA.tolist() == fresh.actions_EA.tolist()


def test_one_that_comes_late_to_an_episode_knows_no_more_than_one_that_has_forgotten() -> None:
    lesson = Class(12, 8, 2)
    for _ in range(9):
        lesson.step()
    result = []
    for starts in (False, True):
        new = Thinky(12, num_envs=8, agents=2)
        new.ask(lesson.env.obs.reshape(8, 2, -1), np.full(8, starts), lesson.actions_EA)
        result.append((lesson.actions_EA.tolist(), {name: array.tolist() for name, array in new.state().items()}))
    assert result[0] == result[1]


def test_a_memory_that_was_given_is_taken_again_and_the_advice_goes_on_the_same() -> None:
    first, second = Class(20, 4, 4), Class(20, 4, 4, seed=3)
    for _ in range(70):
        first.step()
        second.step()
    second.env.load(first.env.state())
    kept = first.teacher.state()
    then = {name: array.tobytes() for name, array in kept.items()}
    second.teacher.load(kept)
    for _ in range(200):
        first.step()
        second.step()
        assert first.actions_EA.tolist() == second.actions_EA.tolist()
    assert {name: array.tobytes() for name, array in kept.items()} == then


def test_its_advice_for_one_agent_does_not_depend_on_what_it_is_told_of_others() -> None:
    both = Class(16, 2, 2)
    alone = Thinky(16, num_envs=1, agents=1)
    advice, starts = np.zeros((1, 1), np.int64), np.ones(1, np.bool_)
    for _ in range(120):
        seen = both.env.obs.reshape(2, 2, -1)[1:, 1:].copy()
        both.step()
        alone.ask(seen, starts, advice)
        starts[:] = False
        assert advice[0, 0] == both.actions_EA[1, 1]


def test_a_student_that_goes_its_own_way_is_told_the_same_as_one_that_has_just_come_there() -> None:
    """Wandering is not being stuck: with the map known, advice depends on the place and not on how it was reached."""
    lesson, newcomer = Class(8, 8, 1), Thinky(8, num_envs=8, agents=1)
    random, result = np.random.default_rng(1), np.zeros((8, 1), np.int64)
    for _ in range(200):  # the window shows nearly all of so small a map
        seen = lesson.env.obs.reshape(8, 1, -1)
        lesson.teacher.ask(seen, lesson.starts_E, lesson.actions_EA)
        lesson.starts_E[:] = False
        newcomer.ask(seen, np.ones(8, np.bool_), result)
        centred = (np.abs(lesson.env.world.agents_EAF[:, :, :2] - 4) <= 1).all(axis=2)
        assert lesson.actions_EA[centred].tolist() == result[centred].tolist()
        lesson.env.step(random.integers(0, 5, 8))
