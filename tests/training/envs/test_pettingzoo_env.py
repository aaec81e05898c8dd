"""Parallel environments: rows of agents that leave, masks, workers, and what cannot be used."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest

from velodrome.errors import InputError
from velodrome.training.envs.interface import ActionSpace, Spec, VectorEnv
from velodrome.training.envs.make import make_env
from velodrome.training.settings import EnvSettings


def made(name: str = "toy_parallel", num_envs: int = 1, **settings: Any) -> VectorEnv:
    return make_env(EnvSettings(name=f"pettingzoo:{name}", num_envs=num_envs, **settings), 0, pictures=True)


def step(env: VectorEnv, *actions: int) -> dict[str, Any]:
    env.step(np.array(actions, np.int64))
    assert env.alive is not None
    return {
        "seen": env.obs[:, :2].tolist(),
        "rewards": env.rewards.tolist(),
        "terminals": env.terminals.tolist(),
        "truncations": env.truncations.tolist(),
        "alive": env.alive.tolist(),
    }


def test_an_agent_that_leaves_ends_once_and_its_row_is_empty_until_the_episode_ends() -> None:
    env = made()
    assert env.spec == Spec("pettingzoo:toy_parallel", 1, 3, ActionSpace((3,)), "vector", (3,), "float32", leavers=True)
    assert env.obs[:, :2].tolist() == [[0, 1], [0, 2], [0, 3]]
    no, yes = False, True
    assert step(env, 0, 0, 0) == {
        "seen": [[1, 1], [1, 2], [1, 3]],
        "rewards": [1, 1, 1],
        "terminals": [no, no, no],
        "truncations": [no, no, no],
        "alive": [yes, yes, yes],
    }
    assert step(env, 0, 0, 0) == {
        "seen": [[0, 0], [2, 2], [2, 3]],
        "rewards": [2, 2, 2],
        "terminals": [yes, no, no],
        "truncations": [no, no, no],
        "alive": [no, yes, yes],
    }
    assert env.final_obs[0, :2].tolist() == [2, 1]
    assert step(env, 1, 2, 0) == {  # the second leaves by its own choice
        "seen": [[0, 0], [0, 0], [3, 3]],
        "rewards": [0, 3, 3],
        "terminals": [no, yes, no],
        "truncations": [no, no, no],
        "alive": [no, no, yes],
    }
    assert env.ended().returns.tolist() == []
    step(env, 0, 0, 0)
    step(env, 0, 0, 0)
    assert step(env, 0, 0, 0) == {
        "seen": [[0, 1], [0, 2], [0, 3]],
        "rewards": [0, 0, 6],
        "terminals": [yes, yes, no],
        "truncations": [no, no, yes],
        "alive": [yes, yes, yes],
    }
    assert env.final_obs[2, :2].tolist() == [6, 3]
    ended = env.ended()
    assert (ended.returns.tolist(), ended.lengths.tolist()) == ([(3 + 6 + 21) / 3], [6])


def test_a_repeated_action_stops_when_anyone_leaves() -> None:
    env = made(action_repeat=5)
    assert step(env, 0, 0, 0)["rewards"] == [3, 3, 3]
    assert step(env, 0, 0, 0)["rewards"] == [0, 7, 7]


def test_masks_of_agents_who_have_left_allow_everything() -> None:
    env = made(options={"masked": True})
    assert env.action_mask is not None
    assert env.spec.obs_shape == (3,)
    assert env.action_mask.tolist() == [[True, False, True]] * 3
    step(env, 2, 0, 0)
    assert env.action_mask.tolist() == [[True] * 3, [True, False, True], [True, False, True]]


@pytest.mark.parametrize("frames", [1, 2])
def test_workers_give_the_numbers_of_one_process(frames: int) -> None:
    random = np.random.default_rng(0)
    with (
        closing(made(num_envs=3, frame_stack=frames)) as one,
        closing(made(num_envs=3, frame_stack=frames, workers=2)) as many,
    ):
        for _ in range(30):
            for name in ("obs", "rewards", "terminals", "truncations", "final_obs", "alive"):
                np.testing.assert_array_equal(getattr(one, name), getattr(many, name))
            actions = random.integers(0, 3, 9)
            one.step(actions)
            many.step(actions)
        np.testing.assert_array_equal(one.letters(2), many.letters(2))


@pytest.mark.parametrize(
    ("name", "options", "part"),
    [
        ("velo_nowhere", None, "No module named 'velo_nowhere'"),
        ("toy_parallel:nothing", None, "made a object, not a ParallelEnv"),
        ("toy_parallel:Sideways", None, "Sideways"),
        ("toy_parallel", {"unequal": True}, "spaces must be equal: first has "),
        ("toy_parallel", {"wings": 2}, "wings"),
        ("toy_parallel:Unknown", None, "has no possible_agents"),
        ("classic/rsp-v2", None, "rsp"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(name: str, options: dict[str, Any] | None, part: str) -> None:
    with pytest.raises(InputError) as refused:
        made(name, options=options)
    assert str(refused.value).startswith(f"env.name=pettingzoo:{name}: ")
    assert part in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_environment_of_pettingzoo_s_registry_is_named_by_its_id() -> None:
    env = made("classic/rps-v2", num_envs=2, options={"max_cycles": 3})
    assert env.spec.agents == 2
    for _ in range(6):
        env.step(np.zeros(4, np.int64))
    assert env.ended().lengths.tolist() == [3] * 4


def test_an_agent_that_comes_later_starts_when_it_comes() -> None:
    env = made("toy_parallel:Arriving")
    assert env.alive is not None
    assert env.alive.tolist() == [True, True, False]
    assert step(env, 0, 0, 0)["alive"] == [True, True, True]
    assert env.terminals.tolist() == [False, False, True]  # so that its first observation starts an episode
    assert env.obs[2, :2].tolist() == [1, 3]


def test_an_agent_that_leaves_without_a_word_ends_there_too() -> None:
    env = made(options={"silent": True})
    ends = [step(env, 0, 0, 0)["terminals"] for _ in range(6)]
    assert [[agent[k] for agent in ends].index(True) + 1 for k in range(3)] == [2, 4, 6]
    assert ends[-1] == [True, True, True]  # with the episode
    assert env.ended().lengths.tolist() == [6]
