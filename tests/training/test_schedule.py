"""Phases: no agent step on the wrong side of a gate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from velodrome.errors import InputError
from velodrome.training.schedule import Phase, horizon, phase_at, rollout_steps
from velodrome.training.settings import ActionSupervisedAndCriticConfig, Settings, TrainerSettings


def settings(taught: int, total: int, *, keep_coef: float = 0.0, keep_steps: int = 0, batch: int = 512) -> Settings:
    return Settings(
        supervised=ActionSupervisedAndCriticConfig(steps=taught, keep_coef=keep_coef, keep_steps=keep_steps),
        trainer=TrainerSettings(total_timesteps=total, batch_size=batch, minibatch_size=batch),
    )


def test_a_step_before_the_gate_is_supervised_and_the_one_at_it_is_ppo():
    made = settings(5_000, 10_000)
    assert [phase_at(made, step) for step in (0, 4_999, 5_000)] == [
        Phase("supervised", True, 5_000),
        Phase("supervised", True, 5_000),
        Phase("ppo", False, 10_000),
    ]


def test_the_teacher_is_asked_on_while_its_loss_is_kept():
    made = settings(5_000, 10_000, keep_coef=0.5, keep_steps=1_000)
    assert [phase_at(made, step) for step in (5_999, 6_000)] == [
        Phase("ppo", True, 6_000),
        Phase("ppo", False, 10_000),
    ]


@given(
    taught=some.integers(0, 5_000),
    total=some.integers(1, 10_000),
    agents=some.integers(1, 200),
    full=some.integers(1, 50),
)
def test_every_rollout_is_of_one_phase_and_all_of_them_end_with_the_last_step(taught, total, agents, full):
    made = settings(taught, total)
    step, seen = 0, []
    while step < total:
        phase = phase_at(made, step)
        steps = rollout_steps(phase, step, agents, full)
        assert 1 <= steps <= full
        # Only the last step of all agents may reach over the gate.
        assert phase_at(made, step + (steps - 1) * agents) == phase
        seen.append(phase.name)
        step += steps * agents
    assert seen == sorted(seen, reverse=True)
    assert total <= step < total + agents


def test_a_batch_that_agents_do_not_divide_is_refused_with_the_nearest_that_they_do():
    with pytest.raises(InputError, match=r"trainer.batch_size=500: not a multiple of the 64 agents .*; 448 or 512"):
        horizon(settings(0, 1, batch=500), 64)
    assert horizon(settings(0, 1, batch=512), 64) == 8
