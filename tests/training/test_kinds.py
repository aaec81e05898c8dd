"""Every kind of observation, action and mask: trained on, evaluated, written as episodes, loaded and played."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import Any

import gymnasium
import orjson
import pytest

import velodrome
from tests.support.small_run import same, small, weights
from tests.support.toy_envs import ACTIONS, OBSERVATIONS
from velodrome.errors import InputError
from velodrome.training.loop import TrainingResult, run_training

TOY = "gymnasium:tests.support.toy_envs:toy/Sampled-v0"
EACH = zip(OBSERVATIONS, cycle(ACTIONS), cycle(("mlp", "lstm")), strict=False)
KINDS = [({"observation": seen, "action": action}, core) for seen, action, core in EACH]
KINDS += [
    ({"mask": "observation", "action": "multi"}, "lstm"),
    ({"mask": "info", "action": "discrete", "observation": "dict"}, "mlp"),
    ({"mask": "method", "action": "multi"}, "mlp"),
]


def trained(folder: Path, *, steps: int = 128, **more: Any) -> TrainingResult:
    values = {"env__num_envs": 4, "env__agents": 4, "env__max_steps": 256, "supervised__steps": 0}
    values |= {"trainer__total_timesteps": steps, "evaluator__evaluate_local": True, "output__episodes": 2, **more}
    return run_training(small(folder, env__name=TOY, **values))


def episodes(result: TrainingResult) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (result.folder / "episodes.jsonl").read_bytes().splitlines()]


@pytest.mark.parametrize(("options", "core"), KINDS, ids=str)
def test_every_kind_is_trained_on_and_its_policy_plays_in_the_environment(
    tmp_path: Path, options: dict[str, str], core: str
) -> None:
    """The environment raises if an action is outside its space, or if its mask forbids it."""
    result = trained(tmp_path, env__options=options, policy__core=core)
    assert result.evaluation is not None
    assert (result.evaluation["episodes"], result.evaluation["mean_length"]) == (4, 8)
    assert [row["length"] for row in episodes(result)] == [8, 8]
    policy = velodrome.load_policy(result.folder, "best")
    assert policy.evaluate(episodes=4) == result.evaluation
    assert policy.evaluate(episodes=4, greedy=False)["actions"] == "sampled"
    env = gymnasium.make("toy/Sampled-v0", **options)
    actor = policy.for_env(env)
    (obs, info), state = env.reset(seed=3), None
    for step in range(8):
        action, state = actor.act(obs, state, info=info, sample=step % 2 == 1)
        obs, _, done, _, info = env.step(action)
    assert done


def test_a_run_with_workers_that_is_resumed_is_the_run_in_one_process(tmp_path: Path) -> None:
    more = {
        "env__options": {"observation": "dict", "mask": "info", "action": "multi"},
        "policy__normalize_obs": True,
    }
    more |= {"trainer__normalize_rewards": True, "trainer__batch_size": 96, "output__episodes": 0}
    whole = trained(tmp_path / "whole", steps=576, **more)
    trained(tmp_path / "parts", steps=288, env__workers=2, **more)  # a checkpoint that the whole run has, too
    parts = trained(tmp_path / "parts", steps=576, env__workers=2, **more)
    assert same(weights(whole.folder), weights(parts.folder))


def test_a_network_that_does_not_fit_into_memory_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^gymnasium:[^\n]* policy\.hidden=16 [^\n]*memory; use less$"):
        run_training(small(tmp_path, env__name="gymnasium:tests.support.toy_envs:toy/Many-v0", supervised__steps=0))


def test_an_environment_of_other_spaces_is_one_line(tmp_path: Path) -> None:
    options = {"observation": "dict", "action": "multi", "mask": "info"}
    policy = velodrome.load_policy(trained(tmp_path, env__options=options).folder)
    for other, words in (({**options, "observation": "vector"}, "observations"), ({"action": "box"}, "actions")):
        with pytest.raises(InputError, match=rf"^[^\n]*{words}[^\n]*$"):
            policy.for_env(gymnasium.make("toy/Sampled-v0", **{"observation": "dict", **other}))
    env = gymnasium.make("toy/Sampled-v0", **options)
    obs, _ = env.reset(seed=0)
    for act, words in ((lambda: policy.for_env(env).act(obs), "action_mask"), (lambda: policy.act(obs), "for_env")):
        with pytest.raises(InputError, match=words):
            act()
