"""Other people's environments behind our interface: arrays, ends, seeds, and what cannot be used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from toy_envs import ACTIONS, OBSERVATIONS

from velodrome.cli.main import main
from velodrome.errors import InputError
from velodrome.training.envs.gymnasium_env import make
from velodrome.training.envs.interface import ActionSpace, Spec, VectorEnv
from velodrome.training.envs.make import SCREENS, make_env
from velodrome.training.settings import EnvSettings


class Counting(gymnasium.Env[Any, Any]):
    """Shows how many steps were done; ends by itself on action 7, cut off after four steps; pays the step's number."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

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

    def render(self) -> Any:
        return np.full((2, 2, 3), self.done, np.uint8)

    def _seen(self) -> Any:
        shape = self.observation_space.shape
        assert shape is not None
        if len(shape) == 1:
            return np.array([self.done, -1.0])
        image = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape) + np.uint8(self.done)
        return image.astype(np.int64) if self.ragged else image


class Falling(Counting):
    """Raises in its third step."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.done == 2:
            raise RuntimeError("the floor\ngave way")
        return super().step(action)


class InPlace(Counting):
    """Shows the same array in every step."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__()
        self.shown = np.zeros(2)

    def _seen(self) -> Any:
        self.shown[:] = self.done, -1.0
        return self.shown


class InPlaceMany(SyncVectorEnv):
    """Shows the same arrays in every step, the last views of episodes among them."""

    def __init__(self, num_envs: int, autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP) -> None:
        super().__init__([Counting] * num_envs, copy=False, autoreset_mode=autoreset_mode)
        self.last = np.empty(num_envs, object)
        self.last[:] = [np.zeros(2) for _ in range(num_envs)]

    def step(self, actions: Any) -> Any:
        *shown, infos = super().step(actions)
        for e, view in enumerate(infos.get("final_obs", ())):
            self.last[e][:] = 0 if view is None else view
        return *shown, infos | {"final_obs": self.last}


class Many(SyncVectorEnv):
    """Steps many at once and begins anew in the same step if it is told to."""

    def __init__(self, num_envs: int, autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP) -> None:
        super().__init__([Counting] * num_envs, autoreset_mode=autoreset_mode)


class Late(SyncVectorEnv):
    """Steps many at once and knows only Gymnasium's usual habit."""

    def __init__(self, num_envs: int) -> None:
        super().__init__([Counting] * num_envs)


IDS: dict[str, dict[str, Any]] = {
    "Counting-v0": {"entry_point": Counting, "kwargs": {"ragged": True}},
    "InPlace-v0": {"entry_point": InPlace},
    "InPlaceMany-v0": {"vector_entry_point": InPlaceMany},
    "Falling-v0": {"entry_point": Falling},
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
    env = make(EnvSettings(name=f"gymnasium:{name}", num_envs=num_envs, **settings), pictures=True)
    env.reset(0)
    return env


def sampled(num_envs: int = 2, **settings: Any) -> VectorEnv:
    env = EnvSettings(name="gymnasium:toy_envs:toy/Sampled-v0", num_envs=num_envs, **settings)
    return make_env(env, 0, pictures=True)


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


@pytest.mark.parametrize("name", ["Counting-v0", "Many-v0", "Both-v0", "InPlace-v0", "InPlaceMany-v0"])
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
    assert env.state() is None
    env.close()


def test_begun_anew_it_has_forgotten_what_was_going_on() -> None:
    env = made("Counting-v0")
    step(env, 2, 0)

    env.reset(0)

    assert env.ended().returns.tolist() == []
    assert step(env, 2, 0)["rewards"] == [1.0, 1.0]
    assert env.ended().returns.tolist() == [1.0]


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


def test_letters_are_the_picture_it_renders_or_its_observation_as_bars() -> None:
    env = made("Counting-v0")
    step(env, 0, 0)
    assert [env.palette[chr(letter)] for letter in env.letters(1).ravel()] == ["#000000"] * 4  # 2 x 2, nearly black
    bars = made("Many-v0").letters(0)  # it cannot render; the observation is [0, -1]
    white = bars == ord("-")
    assert bars.shape == (32, 16)
    assert white[:15].all()
    assert white[17:, :8].all()
    assert not white[17:25, 9:15].any()


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("toy_envs:toy/Acting-v0", "Text("),
        ("toy_envs:toy/Showing-v0", "Text("),
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


def test_an_environment_that_raises_is_named_in_one_line() -> None:
    env = made("Falling-v0")
    step(env, 0, 0)
    step(env, 0, 0)
    with pytest.raises(InputError) as fallen:
        step(env, 0, 0)
    message, place = str(fallen.value).split(" (")
    assert message == "env.name=gymnasium:Falling-v0: RuntimeError: the floor gave way"
    assert "test_gymnasium_env.py:" in place
    env.close()


@pytest.mark.parametrize("observation", OBSERVATIONS)
@pytest.mark.parametrize("action", ACTIONS)
def test_every_kind_of_space_is_shown_and_acted_on(observation: str, action: str) -> None:
    env, random = sampled(options={"observation": observation, "action": action}), np.random.default_rng(0)
    acts = env.spec.actions
    for _ in range(20):  # the environment refuses what is not in its space
        if acts.continuous:
            drawn = np.clip(random.normal(0, 2, (2, acts.width)), acts.low, acts.high).astype(np.float32)
        else:
            drawn = random.integers(0, acts.sizes, (2, len(acts.sizes))).reshape(2, *acts.shape)
        env.step(drawn)
    assert (env.obs.shape, env.obs.dtype) == ((2, *env.spec.obs_shape), env.spec.obs_dtype)
    assert env.ended().lengths.tolist() == [8] * 4
    assert env.letters(1).shape == (2, 3)


@pytest.mark.parametrize("source", ["observation", "info", "method"])
@pytest.mark.parametrize("action", ["discrete", "multi"])
def test_a_mask_is_read_wherever_the_environment_has_it(source: str, action: str) -> None:
    env = sampled(options={"mask": source, "action": action})
    assert env.spec.actions.masked
    assert env.spec.obs_shape == (3,)  # the mask is not part of what is seen
    assert env.action_mask is not None
    starts = np.concatenate(([0], np.cumsum(env.spec.actions.sizes)))
    allowed = set()
    for _ in range(50):
        allowed |= {tuple(row) for row in env.action_mask.tolist()}
        firsts = [env.action_mask[:, a:b].argmax(1) for a, b in pairwise(starts)]
        env.step(np.stack(firsts, 1).reshape(2, *env.spec.actions.shape))  # it refuses what the mask forbids
    assert len(allowed) > 3
    actions = np.zeros((2, len(env.spec.actions.sizes)), np.int64)
    actions[:, 0] = (~env.action_mask)[:, :3].argmax(1)
    assert not env.action_mask[[0, 1], actions[:, 0]].all()
    with pytest.raises(InputError, match="is forbidden by"):
        env.step(actions.reshape(2, *env.spec.actions.shape))


def test_an_observation_called_a_mask_is_seen_where_actions_are_numbers() -> None:
    env = sampled(options={"mask": "info", "action": "box"})
    assert not env.spec.actions.masked
    assert env.action_mask is None


def test_a_repeated_action_sums_its_rewards_and_ends_with_the_episode() -> None:
    env = made("Counting-v0", action_repeat=3)
    assert step(env, 0, 0) == {
        "obs": [3, 3],
        "rewards": [6, 6],
        "terminals": [False, False],
        "truncations": [False, False],
        "final": [],
    }
    assert step(env, 0, 2) == {
        "obs": [0, 0],
        "rewards": [4, 4],
        "terminals": [False, True],
        "truncations": [True, True],
        "final": [4, 4],
    }
    assert env.ended().lengths.tolist() == [2, 2]


def test_options_are_the_keyword_arguments_of_the_environment() -> None:
    assert made("Image-v0", options={"image": [4, 7]}).spec.obs_shape == (1, 4, 7)
    with pytest.raises(InputError, match=r"^env\.name=gymnasium:CartPole-v1: .*wings"):
        made("CartPole-v1", options={"wings": 2})


def test_environments_that_nobody_looks_at_are_not_made_to_draw() -> None:
    """LunarLander steps particles for its pictures: ten times the time."""
    settings = EnvSettings(name="gymnasium:toy_envs:toy/Sampled-v0", num_envs=1)
    pictures = [make_env(settings, 0, pictures=wanted).picture(0) for wanted in (False, True)]
    assert [each is None for each in pictures] == [True, False]


@pytest.mark.parametrize("name", ["CartPole-v1", "FrozenLake-v1"])
def test_a_picture_is_drawn_in_silence_where_there_is_no_screen(name: str) -> None:
    probe = f"""
from velodrome.training.envs.make import make_env
from velodrome.training.settings import EnvSettings
print(make_env(EnvSettings(name="gymnasium:{name}", num_envs=1), 0, pictures=True).picture(0).ndim)
"""
    without = {key: value for key, value in os.environ.items() if key not in (*SCREENS, "SDL_VIDEODRIVER")}
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, env=without)
    assert (done.stdout, done.stderr) == ("3\n", "")


def test_a_missing_box2d_is_named_with_the_way_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "Box2D", None)
    for module in ("gymnasium.envs.box2d", "gymnasium.envs.box2d.lunar_lander"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(InputError) as missing:
        made("LunarLander-v3")
    assert str(missing.value).startswith('env.name=gymnasium:LunarLander-v3: needs the package "Box2D" (pip install ')


def test_a_module_before_the_id_is_imported_for_the_environments_it_registers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "velo_others.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('others/Pole-v0', 'gymnasium.envs.classic_control.cartpole:CartPoleEnv')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    try:
        env = made("velo_others:others/Pole-v0")
    finally:
        gymnasium.registry.pop("others/Pole-v0", None)
        sys.modules.pop("velo_others", None)
    assert env.spec == Spec("gymnasium:velo_others:others/Pole-v0", 2, 1, ActionSpace((2,)), "vector", (4,), "float32")


class Printing(gymnasium.Env[np.ndarray, int]):
    observation_space, action_space = Box(-1, 1, (2,)), Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        print("a new episode")
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.zeros(2, np.float32), 1.0, True, False, {}


def test_what_an_environment_prints_does_not_reach_the_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    gymnasium.register("printing/Env-v0", Printing)
    few = ["trainer.total_timesteps=64", "trainer.batch_size=32", "trainer.minibatch_size=32", "env.num_envs=4"]
    quiet = ["evaluator.evaluate_local=False", "output.dashboard=False", f"output.train_dir={tmp_path}"]
    assert main(["train", "cartpole", "env.name=gymnasium:printing/Env-v0", *few, *quiet]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["finished"]
    assert "a new episode" in err
