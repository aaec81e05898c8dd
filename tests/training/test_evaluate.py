"""Evaluation: so many whole episodes, each counted once, however many are play at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from small_run import RandomActor, small

from velodrome.training.envs.make import make_env
from velodrome.training.evaluate import Evaluation, Stopped, evaluate, evaluation_line, play
from velodrome.training.network.policy import Policy
from velodrome.training.random_streams import stream
from velodrome.training.settings import RunSettings


def student(settings: RunSettings) -> Policy:
    return Policy(settings.policy, make_env(settings.env, 0).spec, stream(0, "weights", 0))


def test_more_episodes_than_are_played_at_once_are_all_played_and_all_differ(tmp_path: Path):
    settings = small(tmp_path)
    spec = make_env(settings.env, 0).spec
    few, many = (play(settings, RandomActor(spec, 1), episodes=count, teacher_forced=True) for count in (256, 600))
    assert len(many.returns) == 600
    assert many.returns[:256] == few.returns  # the first ones are the same for everybody
    parts = [many.returns[first : first + 88] for first in (0, 256, 512)]
    assert len(set(parts)) == 3  # no part is another one again


def test_a_student_with_memory_starts_every_part_with_none(tmp_path: Path):
    settings = small(tmp_path, policy__core="lstm")
    result = evaluate(settings, student(settings), torch.device("cpu"), step=0, episodes=300)
    assert result["episodes"] == 300
    assert 0 <= result["agreement"] <= 1


def test_agreement_is_of_steps_over_all_parts(tmp_path: Path):
    settings = small(tmp_path)
    spec = make_env(settings.env, 0).spec
    result = play(settings, RandomActor(spec, 1), episodes=300, teacher_forced=True)
    assert result.agreement is not None
    assert abs(result.agreement - 1 / spec.actions.width) < 0.02  # dice agree as often as there are actions


def test_an_evaluation_in_words():
    result = {"episodes": 4, "mean_return": 1.5, "standard_error": 0.25, "greedy": False, "unfinished": 2}
    line = evaluation_line(result)
    assert all(part in line for part in ("1.50", "0.25", "4 episodes", "evaluation, sampled:", "2 without an end"))
    line = evaluation_line({"episodes": 1, "mean_return": 2.0, "greedy": True, "agreement": 0.925})
    assert all(part in line for part in ("evaluation, greedy:", "2.00", "1 episode", "92.5%"))


def test_an_evaluation_is_left_when_somebody_asks(tmp_path: Path):
    settings = small(tmp_path)
    request = iter([False] * 5 + [True] * 10)
    with pytest.raises(Stopped):
        evaluate(settings, student(settings), torch.device("cpu"), step=0, episodes=4, stop=lambda: next(request))
    assert len(list(request)) == 9


def test_episodes_without_an_end_are_reported_and_one_episode_has_no_standard_error():
    assert Evaluation((3.0,), (5,), None).as_json() == {"episodes": 1, "mean_return": 3.0, "mean_length": 5.0}
    result = Evaluation((1.0, 2.0), (5, 7), None, unfinished=1)
    assert result.as_json() == {
        "episodes": 2,
        "mean_return": 1.5,
        "mean_length": 6.0,
        "standard_error": float(np.std([1.0, 2.0], ddof=1) / np.sqrt(2)),
        "unfinished": 1,
    }
