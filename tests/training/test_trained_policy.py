"""A loaded policy acts as the student of its run, on one observation or many, and refuses what it cannot read."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from small_run import Reference, same, weights

import velodrome
from velodrome.errors import InputError
from velodrome.training.envs.make import make_env
from velodrome.training.evaluate import Student
from velodrome.training.loop import run_training
from velodrome.training.run import checkpoint
from velodrome.training.settings import EnvSettings
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


def test_its_evaluation_is_the_runs_own(tmp_path: Path, reference: Reference):
    from small_run import small

    result = run_training(small(tmp_path, evaluator__evaluate_local=True))
    policy = velodrome.load_policy(tmp_path / "small", "best")
    assert policy.evaluate(episodes=4) == result.evaluation
    sampled = policy.evaluate(episodes=4, greedy=False)
    assert (sampled["greedy"], sampled["actions"]) == (False, "sampled")
    assert policy.evaluate(episodes=4, env="extractor_hub_12")["episodes"] == 4  # it looks the same


def _odd_checkpoints(folder: Path, state: checkpoint.State) -> Iterator[Path]:
    """Folders with a whole checkpoint that no run has written."""
    odd = {"kept": 5, "phase": None, "settings": "[]", "spec": "[]", "step": "x"}
    for name, value in odd.items():
        place = folder / f"odd_{name}"
        place.mkdir()
        other = {**state, name: value} if value is not None else {k: v for k, v in state.items() if k != name}
        checkpoint.write(place / checkpoint.name_of(state["step"]), other)
        yield place


def test_what_does_not_fit_is_one_line(tmp_path: Path, reference: Reference):
    policy = velodrome.load_policy(reference("lstm").folder)
    obs = np.zeros((3, *policy.spec.obs_shape), np.uint8)
    file = tmp_path / "x.pt"
    state = checkpoint.read(checkpoint.checkpoints(reference("mlp").folder)[-1])
    checkpoint.write(file, {**state, "settings": state["settings"].replace('"hidden":16', '"hidden":32')})
    cases = (
        (lambda: policy.act(obs[:, :-1]), ("obs", "extractor_hub_10", str(policy.spec.obs_shape[0]))),
        (lambda: policy.act(obs + 0.5), ("obs", "uint8", "float64")),
        (lambda: policy.act(obs.astype(int) - 1), ("obs", "uint8")),
        (lambda: policy.act("x"), ("obs",)),
        (lambda: policy.act([[1, 2], [3]]), ("obs", "numbers")),
        (lambda: policy.act(obs, "x"), ("state", "numbers")),
        (lambda: policy.act(obs, [[1.0], []]), ("state", "numbers")),
        (lambda: policy.act(obs, starts="x"), ("starts", "numbers")),
        (lambda: policy.act(obs, mask=[[True], []]), ("mask", "numbers")),
        (lambda: policy.act(obs, policy.initial_state(2)), ("state", "2 x 3 x 16", "2 x 2 x 16")),
        (lambda: policy.act(obs, starts=[True, False]), ("starts", "3")),
        (lambda: policy.act(obs, mask=np.ones((3, 99))), ("mask", f"3 x {policy.spec.actions.width}")),
        (lambda: policy.act(obs, mask=np.zeros(policy.spec.actions.width)), ("mask", "no option")),
        (lambda: policy.evaluate(env="gymnasium:CartPole-v1"), ("extractor_hub_10", "CartPole")),
        (lambda: policy.evaluate(env="nonsense"), ("nonsense",)),
        (lambda: velodrome.load_policy(file), (str(file), "another network")),
        (lambda: velodrome.load_policy("~nobody_of_this_name/x"), ("~nobody_of_this_name/x",)),
        *(
            (lambda folder=folder: velodrome.load_policy(folder), (str(folder),))
            for folder in _odd_checkpoints(tmp_path, state)
        ),
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


def test_a_spec_survives_its_file(reference: Reference):
    policy = velodrome.load_policy(reference("mlp").folder)
    env = make_env(EnvSettings(**policy.settings.env.model_dump()), 0)
    assert env.spec == policy.spec
