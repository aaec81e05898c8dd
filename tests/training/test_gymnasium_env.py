"""Other people's environments behind our interface: arrays, ends, seeds, and what cannot be used."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from velodrome.errors import InputError
from velodrome.training.envs.gymnasium_env import make
from velodrome.training.envs.interface import Spec, VectorEnv
from velodrome.training.settings import EnvSettings


class Counting(gymnasium.Env[Any, Any]):
    """Shows how many steps were done; ends by itself on action 7, cut off after four steps; pays the step's number."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, image: tuple[int, ...] = (), render_mode: str | None = None) -> None:
        self.action_space = Discrete(3, start=5)
        self.observation_space = Box(0, 255, image, np.uint8) if image else Box(-1, 9, (2,), np.float64)
        self.render_mode = render_mode
        self.done = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.done = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.done += 1
        return self._seen(), float(self.done), bool(action == 7), self.done == 4, {}

    def render(self) -> Any:
        return np.full((2, 2, 3), self.done, np.uint8)

    def _seen(self) -> Any:
        shape = self.observation_space.shape
        assert shape is not None
        if len(shape) == 1:
            return np.array([self.done, -1.0])
        return np.arange(np.prod(shape), dtype=np.uint8).reshape(shape) + np.uint8(self.done)


class Falling(Counting):
    """Raises in its third step."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.done == 2:
            raise RuntimeError("the floor\ngave way")
        return super().step(action)


class Many(SyncVectorEnv):
    """Steps many at once and begins anew in the same step if it is told to."""

    def __init__(self, num_envs: int, autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP) -> None:
        super().__init__([Counting] * num_envs, autoreset_mode=autoreset_mode)


class FallingMany(SyncVectorEnv):
    """The same, stepped at once."""

    def __init__(self, num_envs: int, autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP) -> None:
        super().__init__([Falling] * num_envs, autoreset_mode=autoreset_mode)


class Late(SyncVectorEnv):
    """Steps many at once and knows only Gymnasium's usual habit."""

    def __init__(self, num_envs: int) -> None:
        super().__init__([Counting] * num_envs)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    for name, given in {
        "Counting-v0": {"entry_point": Counting},
        "Falling-v0": {"entry_point": Falling},
        "FallingMany-v0": {"vector_entry_point": FallingMany},
        "Many-v0": {"vector_entry_point": Many},
        "Both-v0": {"entry_point": Counting, "vector_entry_point": Late},
        "Late-v0": {"vector_entry_point": Late},
        "Image-v0": {"entry_point": Counting, "kwargs": {"image": (6, 5, 3)}},
        "Gray-v0": {"entry_point": Counting, "kwargs": {"image": (6, 5)}},
        "Stack-v0": {"entry_point": Counting, "kwargs": {"image": (2, 6, 5)}},
    }.items():
        gymnasium.register(name, **given)  # type: ignore[arg-type]
    yield
    for name in (
        "Counting-v0",
        "Falling-v0",
        "FallingMany-v0",
        "Many-v0",
        "Both-v0",
        "Late-v0",
        "Image-v0",
        "Gray-v0",
        "Stack-v0",
    ):
        del gymnasium.registry[name]


def made(name: str, num_envs: int = 2) -> VectorEnv:
    env = make(EnvSettings(name=f"gymnasium:{name}", num_envs=num_envs))
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


@pytest.mark.parametrize("name", ["Counting-v0", "Many-v0", "Both-v0"])
def test_an_episode_that_ends_is_begun_anew_in_the_same_step_and_its_last_view_is_kept(name: str) -> None:
    env = made(name)
    told = [step(env, 0, 0), step(env, 0, 2), step(env, 1, 0), step(env, 0, 0)]
    ended = env.ended()

    assert env.spec == Spec(f"gymnasium:{name}", 2, 1, 3, "vector", (2,), "float32")
    no = [False, False]
    assert told == [
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
    raw = gymnasium.make(name).reset()[0]
    expected = {"Image-v0": raw.transpose(2, 0, 1) if raw.ndim == 3 else raw, "Gray-v0": raw[None], "Stack-v0": raw}

    assert (env.spec.layout, env.spec.obs_shape, env.spec.obs_dtype) == ("planes", shape, "uint8")
    assert np.array_equal(env.obs[1], expected[name])


def test_cart_pole_goes_as_gymnasium_itself_has_it_and_every_seed_goes_its_own_way() -> None:
    ours = made("CartPole-v1", 3)
    theirs = SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 3, autoreset_mode=AutoresetMode.SAME_STEP)
    seeds = [int(seed) for seed in np.random.SeedSequence(11).generate_state(3)]
    ours.reset(11)
    assert np.array_equal(ours.obs, theirs.reset(seed=seeds)[0])
    drawn = np.random.default_rng(0)
    for _ in range(200):
        actions = drawn.integers(0, 2, 3)
        ours.step(actions)
        obs, rewards, terminals, truncations, infos = theirs.step(actions)
        assert np.array_equal(ours.obs, obs)
        assert np.array_equal(ours.rewards, rewards)
        assert np.array_equal(ours.terminals, terminals)
        assert np.array_equal(ours.truncations, truncations)
        for k in np.flatnonzero(terminals | truncations):
            assert np.array_equal(ours.final_obs[k], infos["final_obs"][k])
    assert len(ours.ended().returns) > 3
    assert len(np.unique(ours.obs, axis=0)) == 3


def test_it_can_be_looked_at_as_text_and_as_a_picture() -> None:
    env = made("Counting-v0")
    step(env, 0, 0)
    assert env.text(1) == "gymnasium:Counting-v0 1: step 1, return 1\n[ 1. -1.]"
    assert np.array_equal(env.picture(1), np.full((2, 2, 3), 1, np.uint8))


def test_what_cannot_draw_itself_is_drawn_as_bars() -> None:
    env = made("Many-v0")
    picture = env.picture(0)
    assert (picture.shape, picture.dtype) == ((64, 32, 3), np.uint8)
    above, below = picture[:32, 16:] < 255, picture[33:, 16:] < 255
    assert (above.any(), below.any()) == (False, True)


@pytest.mark.parametrize(
    ("name", "part"),
    [("Pendulum-v1", "Box(-2.0, 2.0, (1,), float32)"), ("FrozenLake-v1", "Discrete(16)"), ("Late-v0", "a step late")],
)
def test_what_cannot_be_used_is_refused_in_one_line(name: str, part: str) -> None:
    with pytest.raises(InputError) as refused:
        made(name)
    assert str(refused.value).startswith(f"env.name=gymnasium:{name}: ")
    assert part in str(refused.value)


def test_a_name_gymnasium_does_not_know_is_refused_with_what_it_says() -> None:
    with pytest.raises(InputError, match=r"^env\.name=gymnasium:CartPoole-v1: NameNotFound: .*CartPole"):
        made("CartPoole-v1")


@pytest.mark.parametrize("name", ["Falling-v0", "FallingMany-v0"])
def test_an_environment_that_raises_is_named_in_one_line(name: str) -> None:
    env = made(name)
    step(env, 0, 0)
    step(env, 0, 0)
    with pytest.raises(InputError) as fallen:
        step(env, 0, 0)
    message, place = str(fallen.value).split(" (")
    assert message == f"env.name=gymnasium:{name}: RuntimeError: the floor gave way"
    assert "test_gymnasium_env.py:" in place
    env.close()


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
    assert env.spec == Spec("gymnasium:velo_others:others/Pole-v0", 2, 1, 2, "vector", (4,), "float32")


def test_a_module_that_is_not_there_is_refused_in_one_line() -> None:
    with pytest.raises(InputError) as refused:
        made("velo_nowhere:Pole-v0")
    assert str(refused.value) == (
        "env.name=gymnasium:velo_nowhere:Pole-v0: ModuleNotFoundError: No module named 'velo_nowhere'"
    )
