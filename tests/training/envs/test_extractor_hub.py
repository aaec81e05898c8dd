"""extractor_hub: its kernels do what the plain rules say; nothing is closed off; what it gives it takes again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.plain_rules import PlainWorld
from velodrome.training.envs.extractor_hub import hub_rules
from velodrome.training.envs.extractor_hub.env import ExtractorHub
from velodrome.training.envs.extractor_hub.teacher import Thinky


def hub(size: int = 12, num_envs: int = 2, agents: int = 3, max_steps: int = 40, *, seed: int = 0) -> ExtractorHub:
    env = ExtractorHub(size, num_envs=num_envs, agents=agents, max_steps=max_steps, notes=True)
    env.reset(seed)
    return env


def led_by_teacher(env: ExtractorHub, steps: int, seed: int, noise: float) -> np.ndarray:
    """Actions that get somewhere: the teacher's, some of them replaced, two of them out of range."""
    shape = (env.spec.num_envs, env.spec.agents)
    teacher = Thinky(env.world.size, num_envs=shape[0], agents=shape[1])
    advice, starts = np.zeros(shape, np.int64), True
    random, taken = np.random.default_rng(seed), []
    for _ in range(steps):
        teacher.ask(env.obs.reshape(*shape, -1), np.full(shape[0], starts), advice)
        other = random.integers(-1, 6, env.spec.total)
        taken.append(np.where(random.random(env.spec.total) < noise, other, advice.reshape(-1)))
        env.step(taken[-1])
        starts = bool(env.truncations[0])
    return np.stack(taken)


@settings(max_examples=8, deadline=None)
@given(
    size=st.integers(8, 34),
    agents=st.integers(1, 8),
    max_steps=st.integers(8, 90),
    notes=st.booleans(),
    seed=st.integers(0, 2**31 - 1),
    noise=st.sampled_from([0.0, 0.2, 1.0]),
)
def test_the_kernels_and_the_plain_rules_agree_on_every_byte(
    size: int, agents: int, max_steps: int, notes: bool, seed: int, noise: float
) -> None:
    env = ExtractorHub(size, num_envs=2, agents=agents, max_steps=max_steps, notes=notes)
    env.reset(seed)
    actions = led_by_teacher(env, 100, seed, noise)
    env.reset(seed)
    plain = [PlainWorld(size, agents, max_steps, notes, seed, e) for e in range(2)]
    assert env.obs.tobytes() == b"".join(plain[0].views() + plain[1].views())
    for actions_N in actions:
        env.step(actions_N)
        answers = [w.step(list(actions_N[e * agents : (e + 1) * agents])) for e, w in enumerate(plain)]
        assert env.rewards.tolist() == pytest.approx([r for rewards, _, _ in answers for r in rewards], abs=1e-5)
        assert env.truncations.tolist() == [over for _, over, _ in answers for _ in range(agents)]
        if answers[0][1]:
            assert env.final_obs.tobytes() == b"".join(answers[0][2] + answers[1][2])
        assert env.obs.tobytes() == b"".join(plain[0].views() + plain[1].views())


@pytest.mark.parametrize("size", [8, 9, 12, 23])
def test_as_many_agents_as_a_map_may_have_all_find_a_place(size: int) -> None:
    agents = min(64, hub_rules.most_agents(size))
    env = hub(size, num_envs=100, agents=agents)
    placed_E = (env.world.grid_EYX == hub_rules.AGENT).sum((1, 2))
    assert placed_E.tolist() == [agents] * 100
