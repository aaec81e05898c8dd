"""Training on every kind of action and observation: it runs, it learns, it resumes, and workers change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
import torch
from small_run import same, small, weights
from toy_envs import ACTIONS, OBSERVATIONS

from velodrome.errors import InputError, TrainError
from velodrome.training.loop import TrainingResult, run_training

TOY = "gymnasium:toy_envs:toy/Sampled-v0"


def trained(folder: Path, name: str = TOY, *, steps: int = 256, **more: Any) -> TrainingResult:
    return run_training(
        small(
            folder,
            env__name=name,
            env__num_envs=4,
            env__agents=4,
            env__max_steps=256,
            supervised__steps=0,
            trainer__total_timesteps=steps,
            **{"evaluator__evaluate_local": True, "output__episodes": 2, **more},
        )
    )


@pytest.mark.parametrize("observation", OBSERVATIONS)
@pytest.mark.parametrize("action", ["multi", "box"])
def test_every_observation_is_trained_on(tmp_path: Path, observation: str, action: str) -> None:
    result = trained(tmp_path, env__options={"observation": observation, "action": action})
    assert result.finished
    assert result.evaluation is not None
    assert result.evaluation["mean_length"] == 8
    assert len((result.folder / "episodes.jsonl").read_bytes().splitlines()) == 2


@pytest.mark.parametrize("core", ["mlp", "lstm"])
@pytest.mark.parametrize("action", ACTIONS)
def test_every_action_is_trained_on(tmp_path: Path, action: str, core: str) -> None:
    result = trained(tmp_path, env__options={"action": action}, policy__core=core, env__frame_stack=2)
    assert result.finished
    episode = orjson.loads((result.folder / "episodes.jsonl").read_bytes().splitlines()[0])["episode"]
    assert len(episode["actions"]) == 8


@pytest.mark.parametrize("core", ["mlp", "lstm"])
@pytest.mark.parametrize("action", ACTIONS)
def test_every_action_is_trained_on_in_half_precision(tmp_path: Path, action: str, core: str) -> None:
    more = {"evaluator__evaluate_local": False, "output__episodes": 0, "trainer__mixed_precision": True}
    result = trained(tmp_path, env__options={"action": action, "observation": "dict"}, policy__core=core, **more)
    assert result.finished
    assert all(weight.dtype != torch.bfloat16 for weight in weights(result.folder).values())


@pytest.mark.parametrize("action", ["discrete", "multi"])
@pytest.mark.parametrize("source", ["observation", "info", "method"])
def test_a_masked_action_is_never_taken(tmp_path: Path, source: str, action: str) -> None:
    """The environment raises if it is, which would end the run; also in evaluations and episodes."""
    options = {"mask": source, "action": action}
    assert trained(tmp_path, steps=2048, env__options=options, evaluator__epoch_interval=8).finished


def test_workers_change_no_weight(tmp_path: Path) -> None:
    options = {"observation": "dict", "action": "box"}
    one, many = (trained(tmp_path / str(n), env__options=options, env__workers=n) for n in (0, 2))
    assert same(weights(one.folder), weights(many.folder))


@pytest.mark.parametrize("core", ["mlp", "lstm"])
def test_agents_that_leave_are_trained_together(tmp_path: Path, core: str) -> None:
    result = trained(tmp_path, "pettingzoo:toy_parallel", steps=2304, policy__core=core, trainer__batch_size=96)
    assert result.evaluation is not None
    assert 2 <= result.evaluation["mean_length"] <= 6
    episode = orjson.loads((result.folder / "episodes.jsonl").read_bytes().splitlines()[0])["episode"]
    assert len(episode["returns"]) == 3
    assert len(episode["rewards"]) == len(episode["actions"]) > 1


def test_an_environment_in_which_nobody_acts_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    name = "pettingzoo:toy_parallel:Deserted"
    with pytest.raises(TrainError, match=rf"^env.name={name}: no agent acted .*; its reset must return .*$"):
        trained(tmp_path, name, trainer__batch_size=96)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "options"),
    [
        (TOY, {"observation": "dict", "action": "box"}),
        (TOY, {"mask": "info", "action": "multi"}),
        ("pettingzoo:toy_parallel", {"masked": True}),
    ],
)
def test_a_run_that_is_resumed_at_a_checkpoint_is_the_run_in_one(
    tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    more = {
        "env__options": options,
        "env__frame_stack": 2,
        "env__workers": 2,
        "policy__normalize_obs": True,
        "trainer__normalize_rewards": True,
        "trainer__batch_size": 96,
        "output__episodes": 0,
    }
    whole = trained(tmp_path / "whole", name, steps=576, **more)
    trained(tmp_path / "parts", name, steps=288, **more)  # three epochs: a checkpoint that the whole run has, too
    parts = trained(tmp_path / "parts", name, steps=576, **more)
    assert whole.finished
    assert parts.finished
    assert same(weights(whole.folder), weights(parts.folder))


def test_a_network_that_does_not_fit_into_memory_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^policy\.hidden=16 .* 10,000,000,000,000 actions .*; use less$"):
        run_training(small(tmp_path, env__name="gymnasium:toy_envs:toy/Many-v0", supervised__steps=0))
