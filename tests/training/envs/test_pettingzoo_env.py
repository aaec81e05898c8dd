"""The example of PettingZoo's parallel environments: a row for each agent, whole games, and what cannot be used."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.small_run import small
from tests.support.toy_parallel import Counting
from velodrome.errors import InputError
from velodrome.training.envs.interface import VectorEnv
from velodrome.training.envs.make import make_env
from velodrome.training.loop import run_training
from velodrome.training.settings import EnvSettings

NAME = "gymnasium:pettingzoo_vector:PettingZoo-v0"


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[3] / "examples"), *sys.path])


def made(num_envs: int, **options: Any) -> VectorEnv:
    return make_env(EnvSettings(name=NAME, num_envs=num_envs, options={"env": Counting, **options}), 0)


def test_each_agent_of_each_game_is_a_row_and_the_last_game_may_be_shown_in_part() -> None:
    env = made(4)
    assert env.obs.tolist() == [[0, 0], [0, 1], [0, 2], [0, 0]]
    for step in (1, 2, 3):
        env.step(np.zeros(4, np.int64))
        assert (env.obs[:, 0].tolist(), env.rewards.tolist()) == ([step] * 4, [0, 1, 2, 0])
        assert not (env.terminals | env.truncations).any()
    env.step(np.zeros(4, np.int64))
    assert (env.truncations.all(), env.terminals.any()) == (True, False)
    assert (env.final_obs[:, 0].tolist(), env.obs[:, 0].tolist()) == ([4] * 4, [0] * 4)
    assert env.ended().returns.tolist() == [0, 4, 8, 0]


@pytest.mark.parametrize(
    ("options", "line"), [({"leaves": True}, "an agent left"), ({"unequal": True}, "spaces must be equal")]
)
def test_a_game_that_rows_cannot_show_is_refused_in_one_line(options: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError, match=rf"^env\.name={NAME}: [^\n]*{line}"):
        made(3, **options).step(np.zeros(3, np.int64))


def test_a_policy_is_trained_on_an_environment_of_pettingzoo_s_registry(tmp_path: Path) -> None:
    more: dict[str, Any] = {"env__num_envs": 8, "env__options": {"env": "sisl/pursuit-v5", "max_cycles": 20}}
    result = run_training(small(tmp_path, env__name=NAME, supervised__steps=0, trainer__total_timesteps=128, **more))
    assert (result.finished, result.step) == (True, 128)
