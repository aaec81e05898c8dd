"""Other people's environments behind our interface: arrays, ends, seeds, stacks, and what cannot be used."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from tests.support.toy_envs import Sampled
from velodrome.cli.main import main
from velodrome.errors import InputError
from velodrome.training.envs.gymnasium_env import make
from velodrome.training.envs.interface import ActionSpace, Spec, VectorEnv
from velodrome.training.settings import EnvSettings


class Counting(gymnasium.Env[Any, Any]):
    """Shows how many steps were done; ends by itself on action 7, cut off after four steps; pays the step's number."""

    def __init__(self, image: tuple[int, ...] = (), render_mode: str | None = None, ragged: bool = False) -> None:
        self.action_space = Discrete(3, start=5)
        self.observation_space = Box(0, 255, image, np.uint8) if image else Box(-1, 9, (2,), np.float64)
        self.render_mode = render_mode
        self.ragged = ragged  # infos of another shape in every step, actions that are int, observations of another type
        self.done = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.done = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        assert not self.ragged or type(action) is int
        self.done += 1
        return self._seen(), float(self.done), bool(action == 7), self.done == 4, self._info()

    def _info(self) -> dict[str, Any]:
        return {"left": np.zeros(4 - self.done)} if self.ragged else {}

    def _seen(self) -> Any:
        shape = self.observation_space.shape
        assert shape is not None
        if len(shape) == 1:
            return np.array([self.done, -1.0])
        image = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape) + np.uint8(self.done)
        return image.astype(np.int64) if self.ragged else image


class InPlace(Counting):
    """Shows the same array in every step."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__()
        self.shown = np.zeros(2)

    def _seen(self) -> Any:
        self.shown[:] = self.done, -1.0
        return self.shown


class Many(SyncVectorEnv):
    """Steps many at once and begins anew in the same step if it is told to."""

    def __init__(self, num_envs: int, autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP) -> None:
        super().__init__([Counting] * num_envs, autoreset_mode=autoreset_mode)


class Late(SyncVectorEnv):
    """Steps many at once and knows only Gymnasium's usual habit."""

    def __init__(self, num_envs: int) -> None:
        super().__init__([Counting] * num_envs)


class Printing(Sampled):
    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        print("a step")
        return super().step(action)


IDS: dict[str, dict[str, Any]] = {
    "Counting-v0": {"entry_point": Counting, "kwargs": {"ragged": True}},
    "InPlace-v0": {"entry_point": InPlace},
    "Printing-v0": {"entry_point": Printing},
    "Many-v0": {"vector_entry_point": Many},
    "Both-v0": {"entry_point": Counting, "vector_entry_point": Late},
    "Late-v0": {"vector_entry_point": Late},
    "Image-v0": {"entry_point": Counting, "kwargs": {"image": (6, 5, 3), "ragged": True}},
    "Gray-v0": {"entry_point": Counting, "kwargs": {"image": (6, 5)}},
    "Stack-v0": {"entry_point": Counting, "kwargs": {"image": (2, 6, 5)}},
}


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    for name, how in IDS.items():
        gymnasium.register(name, **how)
    yield
    for name in IDS:
        del gymnasium.registry[name]


def made(name: str, num_envs: int = 2, **settings: Any) -> VectorEnv:
    env = make(EnvSettings(name=f"gymnasium:{name}", num_envs=num_envs, **settings))
    env.reset(0)
    return env


def step(env: VectorEnv, *actions: int) -> dict[str, Any]:
    env.step(np.array(actions, np.int64))
    over = env.terminals | env.truncations
    return {
        "obs": env.obs[:, 0].tolist(),
        "rewards": env.rewards.tolist(),
        "terminals": env.terminals.tolist(),
        "truncations": env.truncations.tolist(),
        "final": env.final_obs[over, 0].tolist(),
    }


@pytest.mark.parametrize("name", ["Counting-v0", "Many-v0", "Both-v0", "InPlace-v0"])
def test_an_episode_that_ends_is_begun_anew_in_the_same_step_and_its_last_view_is_kept(name: str) -> None:
    env = made(name)
    result = [step(env, 0, 0), step(env, 0, 2), step(env, 1, 0), step(env, 0, 0)]
    ended = env.ended()

    assert env.spec == Spec(f"gymnasium:{name}", 2, 1, ActionSpace((3,)), "vector", (2,), "float32")
    no = [False, False]
    assert result == [
        {"obs": [1, 1], "rewards": [1, 1], "terminals": no, "truncations": no, "final": []},
        {"obs": [2, 0], "rewards": [2, 2], "terminals": [False, True], "truncations": no, "final": [2]},
        {"obs": [3, 1], "rewards": [3, 1], "terminals": no, "truncations": no, "final": []},
        {"obs": [0, 2], "rewards": [4, 2], "terminals": no, "truncations": [True, False], "final": [4]},
    ]
    assert (ended.returns.tolist(), ended.lengths.tolist(), dict(ended.numbers)) == ([3.0, 10.0], [2, 4], {})
    assert env.ended().returns.tolist() == []
    assert [step(env, 0, 2)["terminals"], step(env, 2, 0)["terminals"]] == [[False, True], [True, False]]
    ended = env.ended()
    assert (ended.returns.tolist(), ended.lengths.tolist()) == ([6.0, 3.0], [3, 2])  # each its own steps alone
    step(env, 2, 0)
    env.reset(0)
    assert env.ended().returns.tolist() == []
    assert step(env, 2, 0)["rewards"] == [1.0, 1.0]
    assert env.ended().returns.tolist() == [1.0]
    env.close()


@pytest.mark.parametrize(("name", "shape"), [("Image-v0", (3, 6, 5)), ("Gray-v0", (1, 6, 5)), ("Stack-v0", (2, 6, 5))])
def test_images_become_planes_with_their_channels_first(name: str, shape: tuple[int, ...]) -> None:
    env = made(name)
    raw = gymnasium.make(name, disable_env_checker=True).reset()[0]
    expected = raw.transpose(2, 0, 1) if name == "Image-v0" else raw.reshape(shape)

    assert (env.spec.layout, env.spec.obs_shape, env.spec.obs_dtype) == ("planes", shape, "uint8")
    assert np.array_equal(env.obs[1], expected)


def test_every_environment_has_a_seed_of_its_own_made_from_the_one_for_all() -> None:
    env = made("CartPole-v1", 3)
    env.reset(11)
    seeds = np.random.SeedSequence(11).generate_state(3).tolist()
    assert np.array_equal(env.obs, [gymnasium.make("CartPole-v1").reset(seed=seed)[0] for seed in seeds])


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("tests.support.toy_envs:toy/Acting-v0", "Text("),
        ("tests.support.toy_envs:toy/Showing-v0", "Text("),
        ("Late-v0", "a step late"),
        ("CartPoole-v1", "CartPole"),  # what Gymnasium says
        ("velo_nowhere:Pole-v0", "No module named 'velo_nowhere'"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(name: str, part: str) -> None:
    with pytest.raises(InputError) as refused:
        made(name)
    assert str(refused.value).startswith(f"env.name=gymnasium:{name}: ")
    assert part in str(refused.value)


def test_a_repeated_action_sums_its_rewards_and_ends_with_the_episode() -> None:
    env = made("Counting-v0", action_repeat=3)
    no = [False, False]
    assert step(env, 0, 0) == {"obs": [3, 3], "rewards": [6, 6], "terminals": no, "truncations": no, "final": []}
    last = step(env, 0, 2)
    assert (last["rewards"], last["terminals"], last["truncations"]) == ([4, 4], [False, True], [True, True])
    assert (last["obs"], last["final"]) == ([0, 0], [4, 4])
    assert env.ended().lengths.tolist() == [2, 2]


def test_what_an_environment_prints_does_not_reach_the_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    few = ["trainer.total_timesteps=64", "trainer.batch_size=32", "trainer.minibatch_size=32", "env.num_envs=4"]
    quiet = ["evaluator.evaluate_local=False", "output.dashboard=False", f"output.train_dir={tmp_path}"]
    assert main(["train", "cartpole", "env.name=gymnasium:Printing-v0", *few, *quiet]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["finished"]
    assert "a step" in err


def test_an_environment_that_changes_the_working_directory_moves_no_file_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there = tmp_path / "there"
    there.mkdir()

    class Moving(Sampled):
        def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
            os.chdir(there)
            return super().reset(**how)

    gymnasium.register("Moving-v0", Moving)
    monkeypatch.chdir(tmp_path)
    steps = ("trainer.total_timesteps=64", "trainer.batch_size=32", "trainer.minibatch_size=32")
    words = ["train", "cartpole", "run=m", "env.name=gymnasium:Moving-v0", "env.num_envs=2", *steps, "--json"]
    try:
        assert main(words) == 0
    finally:
        gymnasium.registry.pop("Moving-v0")
    folder = json.loads(capsys.readouterr().out)["folder"]
    assert (folder.startswith("train_dir/m_"), list(there.iterdir())) == (True, [])
    assert (tmp_path / folder / "checkpoint_000000000064.pt").exists()
