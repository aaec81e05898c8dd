"""Policies of every kind of space: evaluated, written as episodes, loaded, and playing in the environment itself."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import orjson
import pytest
import toy_envs
from small_run import trained

import velodrome
from velodrome.errors import InputError
from velodrome.training.loop import TrainingResult

CASES = [
    *(("vector", action, "", "mlp") for action in toy_envs.ACTIONS),
    *(("vector", "discrete", mask, "mlp") for mask in ("observation", "info", "method")),
    ("vector", "multi", "observation", "lstm"),
    *((seen, "box", "", "mlp") for seen in toy_envs.OBSERVATIONS if seen != "vector"),
    ("dict", "multi", "info", "lstm"),
]


def run(folder: Path, seen: str, action: str, mask: str, core: str, **more: object) -> TrainingResult:
    options = {"observation": seen, "action": action, **({"mask": mask} if mask else {})}
    values = {
        "env__name": "gymnasium:toy_envs:toy/Sampled-v0",
        "env__options": options,
        "policy__core": core,
        "supervised__steps": 0,
        "trainer__total_timesteps": 128,
        "evaluator__evaluate_local": True,
        "output__episodes": 2,
    }
    return trained(folder, **{**values, **more})


@pytest.mark.parametrize("case", CASES, ids=["-".join(case) for case in CASES])
def test_a_policy_of_any_space_is_evaluated_and_plays_in_its_environment(tmp_path: Path, case: tuple[str, ...]):
    result = run(tmp_path, *case)
    assert result.evaluation is not None
    assert (result.evaluation["episodes"], result.evaluation["actions"]) == (4, "greedy")
    rows = [orjson.loads(line) for line in (result.folder / "episodes.jsonl").read_bytes().splitlines()]
    assert [row["length"] for row in rows] == [8, 8]
    policy = velodrome.load_policy(result.folder, "best")
    assert policy.evaluate(episodes=4) == result.evaluation  # the environment refuses what its mask forbids
    assert policy.evaluate(episodes=4, greedy=False)["actions"] == "sampled"
    options = policy.settings.env.options or {}
    env = gymnasium.make("toy/Sampled-v0", **options)
    actor = policy.for_env(env)
    (obs, info), state = env.reset(seed=3), None
    for step in range(8):
        action, state = actor.act(obs, state, info=info, sample=step % 2 == 1)
        obs, _, done, _, info = env.step(action)  # which refuses an action that is not in its space
    assert done
    env.close()


def test_what_the_environment_was_given_is_what_the_policy_of_the_file_does(tmp_path: Path):
    result = run(tmp_path, "vector", "box", "", "mlp", policy__normalize_obs=True)
    row = orjson.loads((result.folder / "episodes.jsonl").read_bytes().splitlines()[0])
    policy = velodrome.load_policy(result.folder)
    env = gymnasium.make("toy/Sampled-v0", observation="vector", action="box")
    seen = row["episode"]["observations"]
    import base64
    import zlib

    obs = np.frombuffer(zlib.decompress(base64.b64decode(seen["zlib_base64"])), seen["dtype"]).reshape(seen["shape"])
    actions = np.array(row["episode"]["actions"])[:, 0]
    assert actions.shape == (8, 2)
    assert np.allclose(policy.act(obs[:8, 0])[0], actions, atol=1e-6)
    assert all(env.action_space.contains(action.astype(np.float64)) for action in actions)


def test_an_environment_of_other_spaces_is_one_line(tmp_path: Path):
    policy = velodrome.load_policy(run(tmp_path, "dict", "multi", "info", "mlp").folder)
    for options, words in (
        ({"observation": "vector", "action": "multi", "mask": "info"}, "observations"),
        ({"observation": "dict", "action": "box"}, "actions"),
    ):
        with pytest.raises(InputError, match=words) as caught:
            policy.for_env(gymnasium.make("toy/Sampled-v0", **options))
        assert "\n" not in str(caught.value)
    env = gymnasium.make("toy/Sampled-v0", observation="dict", action="multi", mask="info")
    obs, _ = env.reset(seed=0)
    with pytest.raises(InputError, match="action_mask"):
        policy.for_env(env).act(obs)
    with pytest.raises(InputError, match="mask: expected"):
        policy.act(np.zeros(policy.spec.obs_shape))
    with pytest.raises(InputError, match="for_env"):
        policy.act(obs)
