"""Gymnasium's environments as text: actions by name, targets, faults, and code that never runs on the loop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy
import pytest

from tests.resources_servers.playing import Json, play
from velodrome.environments.gymnasium_text.app import GymnasiumText
from velodrome.errors import TaskError, ToolError

LAKE: Json = {"env_id": "FrozenLake-v1", "env_kwargs": {"is_slippery": False, "desc": ["SF", "HG"]}}


class Words(gymnasium.Env[Any, Any]):
    """Say the word; another word is a fault, or a reward that is not one."""

    metadata = {"render_modes": []}  # noqa: RUF012 - as Gymnasium has it
    closed: list[str] = []  # noqa: RUF012 - of all of them

    def __init__(self, mean: str = ""):
        self.action_space = gymnasium.spaces.Text(8)
        self.observation_space = gymnasium.spaces.Box(0, 1, (2,))
        self.mean = mean

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return numpy.array([0.0, 0.5]), {}

    def step(self, action: Any) -> Any:
        assert threading.current_thread() is not threading.main_thread()
        if self.mean == "raises":
            raise ValueError("its own bug")
        reward = float("nan") if self.mean == "nan" else 1.0
        return numpy.array([1.0, 0.5]), reward, action == "please", False, {}

    def close(self):
        self.closed.append(self.mean)


class Steers(Words):
    """Actions that cannot be said in a word."""

    def __init__(self):
        super().__init__()
        self.action_space = gymnasium.spaces.Box(0, 1, (2,))


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    gymnasium.register("VeloWords-v0", Words)
    gymnasium.register("VeloSteers-v0", Steers)
    yield
    del gymnasium.registry["VeloWords-v0"], gymnasium.registry["VeloSteers-v0"]


def test_actions_have_names_and_numbers_and_the_view_is_text():
    result = play(GymnasiumText(), LAKE, "Right.", "1")
    prompt = result["responses_create_params"]["input"][0]["content"]
    assert "[S]F\nHG\nObservation: 0" in prompt
    assert "left, down, right, up" in prompt
    (view, end) = (item["content"] for item in result["response"]["output"] if item["role"] == "user")
    assert "S[F]" in view
    assert "\x1b" not in view + end
    assert (result["reward"], result["episode_return"], result["step_rewards"]) == (1.0, 1.0, [0.0, 1.0])


def test_a_target_needs_an_end_and_doing_nothing_is_none():
    cliff = {"env_id": "CliffWalking", "target_return": -13}
    assert play(GymnasiumText(), cliff, "nothing")["reward"] == 0.0
    assert play(GymnasiumText(max_turns=3), cliff, "left")["reward"] == 0.0
    assert play(GymnasiumText(), cliff, "up", *["right"] * 11, "down")["reward"] == 1.0
    assert play(GymnasiumText(max_turns=3), {"env_id": "CliffWalking"}, "left")["reward"] == -3.0


def test_texts_are_actions_where_the_space_says_so_and_environments_are_closed():
    Words.closed.clear()
    result = play(GymnasiumText(), {"env_id": "VeloWords", "env_kwargs": {"mean": "ok"}}, "no!", "hello", "please")
    assert (result["reward"], result["step_rewards"], result["actions"]) == (2.0, [0.0, 1.0, 1.0], 2)
    assert "Observation: [0.0, 0.5]" in result["responses_create_params"]["input"][0]["content"]
    assert Words.closed == ["ok"]


@pytest.mark.parametrize(("mean", "says"), [("raises", "its own bug"), ("nan", "reward")])
def test_a_fault_of_the_environment_is_its_own(mean: str, says: str):
    with pytest.raises(ToolError, match=says):
        play(GymnasiumText(), {"env_id": "VeloWords-v0", "env_kwargs": {"mean": mean}}, "hello")


@pytest.mark.parametrize(
    ("task", "says"),
    [
        ({"env_id": "FrozenLake-v99"}, "cannot be made"),
        ({**LAKE, "env_kwargs": {"slippers": True}}, "cannot be made"),
        ({**LAKE, "seed": "x"}, '"seed"'),
        ({"env_id": "VeloSteers-v0"}, "discrete ones and texts"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_task_that_cannot_be_played_is_blamed_on_the_input(task: Json, says: str):
    with pytest.raises(TaskError, match=says):
        play(GymnasiumText(), task, "left")
