"""A loaded policy acts as the student of its run, on one observation or many, and refuses what it cannot read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import velodrome
from tests.support.small_run import Reference, same, weights
from velodrome.errors import InputError
from velodrome.training.envs.make import make_env
from velodrome.training.evaluate import Student
from velodrome.training.run import checkpoint
from velodrome.training.trained.trained_policy import TrainedPolicy


def played(policy: TrainedPolicy, steps: int = 60) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The actions of the policy, and those of the evaluation's student on the same observations."""
    env = make_env(policy.settings.env, 3)
    student = Student(policy.network, torch.device("cpu"))
    starts = np.ones(env.spec.total, np.bool_)
    mine, theirs, state = [], [], None
    for _ in range(steps):
        actions, state = policy.act(env.obs, state, starts=starts)
        mine.append(actions)
        theirs.append(student.act(env.obs, starts))
        env.step(actions)
        starts = env.terminals | env.truncations
    env.close()
    return mine, theirs


@pytest.mark.parametrize("core", ["mlp", "lstm"])
def test_a_policy_acts_as_the_student_of_the_evaluation(reference: Reference, core: str):
    folder = reference(core).folder
    policy = velodrome.load_policy(folder)
    assert same(policy.network.state_dict(), weights(folder))
    assert (policy.step, policy.spec.name, policy.settings.policy.core) == (1024, "extractor_hub_10", core)
    mine, theirs = played(policy)
    assert np.array_equal(mine, theirs)
    assert len(np.unique(mine)) > 1


@pytest.mark.parametrize("core", ["mlp", "lstm"])
def test_one_observation_is_a_batch_of_one_and_memory_goes_through_the_state(reference: Reference, core: str):
    policy = velodrome.load_policy(reference(core).folder)
    obs = np.random.default_rng(0).integers(0, 5, (20, *policy.spec.obs_shape)).astype(np.uint8)
    many, state = policy.act(obs)
    rows = [policy.act(row) for row in obs]
    assert [int(action) for action, _ in rows] == many.tolist()
    assert (many.shape, many.dtype, rows[0][0].shape) == ((20,), np.int64, ())
    if core == "mlp":
        assert state is policy.initial_state(20) is None
        return
    assert np.allclose(state, np.concatenate([one for _, one in rows], 1), atol=1e-6)
    _, later = policy.act(obs, state)
    _, again = policy.act(obs, state, starts=np.arange(20) < 10)
    fresh = policy.act(obs, policy.initial_state(20))[1]
    assert np.array_equal(again[:, :10], fresh[:, :10])
    assert np.array_equal(again[:, 10:], later[:, 10:])
    assert not np.array_equal(later, fresh)


def test_draws_are_repeated_by_their_seed_and_follow_the_probabilities(reference: Reference):
    policy = velodrome.load_policy(reference("mlp").folder)
    obs = np.zeros((4_000, *policy.spec.obs_shape), np.uint8)
    first, second = policy.act(obs, sample=True, seed=5)[0], policy.act(obs, sample=True)[0]
    assert np.array_equal(first, policy.act(obs, sample=True, seed=5)[0])
    assert not np.array_equal(first, second)
    wanted = torch.softmax(policy.network(torch.from_numpy(obs[:1]))[0], 1)[0].detach().numpy()
    assert np.abs(np.bincount(first, minlength=len(wanted)) / len(first) - wanted).max() < 0.03


def test_what_does_not_fit_is_one_line(tmp_path: Path, reference: Reference):
    policy = velodrome.load_policy(reference("lstm").folder)
    obs = np.zeros((3, *policy.spec.obs_shape), np.uint8)
    state = checkpoint.read(checkpoint.checkpoints(reference("mlp").folder)[-1])
    other = {**state, "settings": state["settings"].replace('"hidden":16', '"hidden":32')}
    checkpoint.write(tmp_path / checkpoint.name_of(1), other)
    cases = (
        (lambda: policy.act(obs[:, :-1]), ("obs", "extractor_hub_10", str(policy.spec.obs_shape[0]))),
        (lambda: policy.act(obs + 0.5), ("obs", "uint8", "float64")),
        (lambda: policy.act([[1, 2], [3]]), ("obs", "numbers")),
        (lambda: policy.act(obs, [[1.0], []]), ("state", "numbers")),
        (lambda: policy.act(obs, policy.initial_state(2)), ("state", "(2, 3, 16)", "(2, 2, 16)")),
        (lambda: policy.act(obs, policy.initial_state(1)), ("state", "(2, 3, 16)", "(2, 1, 16)")),
        (lambda: policy.act(obs, starts=[True, False]), ("starts", "3")),
        (lambda: policy.act(obs, mask=np.ones((3, 99))), ("mask", f"(3, {policy.spec.actions.width})")),
        (lambda: policy.act(obs, mask=np.zeros(policy.spec.actions.width)), ("mask", "no option")),
        (lambda: policy.evaluate(env="gymnasium:CartPole-v1"), ("extractor_hub_10", "CartPole")),
        (lambda: velodrome.load_policy(tmp_path), (str(tmp_path), "another network")),
    )
    for call, words in cases:
        with pytest.raises(InputError) as caught:
            call()
        message = str(caught.value)
        assert "\n" not in message
        assert [word for word in words if word not in message] == [], message


def test_nothing_of_the_environment_is_needed_to_load_a_policy(reference: Reference):
    probe = f"""
import sys, velodrome
assert "torch" not in sys.modules
for name in ("gymnasium", "velodrome.training.envs.extractor_hub.env"):
    sys.modules[name] = None
import numpy as np
policy = velodrome.load_policy({str(reference("mlp").folder)!r})
print(policy.act(np.zeros(policy.spec.obs_shape, np.uint8))[0].shape)
"""
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("()\n", "")
