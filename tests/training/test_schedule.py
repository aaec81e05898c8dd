"""Phases and plans: gates exact to a step of all agents, rollouts cut at them, and the plan that counts them."""

from __future__ import annotations

from collections import Counter

import pytest

from velodrome.training.assignments import apply
from velodrome.training.recipes.cvc.thinky_supervised_to_ppo import thinky_supervised_to_ppo
from velodrome.training.schedule import PlannedPhase, conflicts, horizon, make_plan, phase_at, rollout_steps
from velodrome.training.settings import ActionSupervisedAndCriticConfig, EnvSettings, RunSettings, TrainerSettings


def settings(**values: object) -> RunSettings:
    """Of 16 x 4 agents and batches of 512; a key's dots are written as double underscores."""
    return apply(RunSettings(), {name.replace("__", "."): value for name, value in values.items()})


def phases(**values: object) -> tuple[PlannedPhase, ...]:
    return make_plan(settings(**values), 64).phases


def test_a_step_belongs_to_the_phase_of_the_next_action():
    taught = ActionSupervisedAndCriticConfig(steps=100, kickstart_coef=0.5, kickstart_steps=50)
    run = RunSettings(supervised=taught, trainer=TrainerSettings(total_timesteps=400))
    facts = [(each.name, each.asks_teacher, each.until) for each in (phase_at(run, step) for step in (0, 99, 100, 150))]
    assert facts == [("supervised", True, 100), ("supervised", True, 100), ("ppo", True, 150), ("ppo", False, 400)]
    assert [term.name for term in phase_at(run, 100).terms] == ["ppo", "kickstart"]
    run = apply(run, {"supervised.kickstart_steps": 0})  # as long as PPO
    assert [(phase_at(run, step).asks_teacher, phase_at(run, step).until) for step in (100, 399)] == [(True, 400)] * 2


@pytest.mark.parametrize(
    ("args", "batch"),
    [
        ({}, 65_536),  # an episode of 64 x 4 agents
        ({"supervised_steps": 5_000}, 512),  # ten rollouts of it
        ({"num_envs": 16}, 16_384),
        ({"num_envs": 65_536, "agents": 2}, 131_072),  # one step of all
        ({"supervised_steps": 1, "num_envs": 1, "agents": 1}, 1),
    ],
)
def test_a_rollout_of_the_recipe_is_an_episode_or_a_tenth_of_a_short_supervised_phase(args: dict[str, int], batch: int):
    run = thinky_supervised_to_ppo(**args)
    assert run.trainer.batch_size == batch
    assert run.trainer.minibatch_size == max(1, min(512, batch // 2))
    assert (run.supervised.kickstart_coef > 0) == (run.supervised.steps > 0)


@pytest.mark.parametrize(
    ("taught", "total", "expected"),
    [
        (0, 512, (PlannedPhase("ppo", False, 512, 1, 8),)),
        (10**9, 512, (PlannedPhase("supervised", True, 512, 1, 2),)),
        (1, 65, (PlannedPhase("supervised", True, 64, 1, 1), PlannedPhase("ppo", False, 64, 1, 4))),
        (0, 576, (PlannedPhase("ppo", False, 576, 2, 12),)),
    ],
)
def test_a_phase_without_steps_is_absent_and_a_rollout_is_cut_where_its_phase_ends(
    taught: int, total: int, expected: tuple[PlannedPhase, ...]
):
    assert phases(supervised__steps=taught, trainer__total_timesteps=total) == expected


def test_the_plan_counts_the_rollouts_that_the_schedule_gives():
    run = settings(supervised__steps=777, supervised__kickstart_coef=1, supervised__kickstart_steps=333)
    run = apply(run, {"trainer.total_timesteps": 5001, "trainer.batch_size": 384})
    done, counts = 0, Counter[tuple[str, bool]]()
    while done < run.trainer.total_timesteps:
        phase = phase_at(run, done)
        done += 64 * rollout_steps(phase, done, 64, horizon(run, 64))
        counts[phase.name, phase.asks_teacher] += 1
    plan = make_plan(run, 64)
    assert {(each.phase, each.asks_teacher): each.rollouts for each in plan.phases} == counts
    assert sum(each.agent_steps for each in plan.phases) == done


@pytest.mark.parametrize(
    ("values", "notes"),
    [
        ({}, []),
        ({"supervised__steps": 1024}, ["no PPO phase"]),
        ({"policy__core": "lstm"}, ["trainer.batch_size=1024 would allow 16"]),
        ({"supervised__kickstart_coef": 1, "supervised__kickstart_steps": 100}, ["ppo 612 -> 640"]),
    ],
)
def test_where_the_plan_differs_from_the_request_is_noted(values: dict[str, object], notes: list[str]):
    run = settings(**{"supervised__steps": 512, "trainer__total_timesteps": 1024, **values})
    result = make_plan(run, 64).notes
    assert len(result) == len(notes)
    assert all(part in note for part, note in zip(notes, result, strict=True)), result


def test_settings_that_an_environment_does_not_know_are_noted():
    env = EnvSettings(name="gymnasium:CartPole-v1", max_steps=50, agents=3)
    notes = make_plan(RunSettings(env=env), 16).notes
    assert [note.partition(":")[0] for note in notes if "no effect" in note] == ["env.agents", "env.max_steps"]


@pytest.mark.parametrize(
    ("values", "places"),
    [
        ({"env__name": "extractor_hub_8", "env__agents": 9, "trainer__batch_size": 432}, ["env.agents"]),
        ({"env__name": "gymnasium:CartPole-v1", "supervised__steps": 64}, ["gymnasium:CartPole-v1"]),
        ({"env__name": "gymnasium:CartPole-v1", "supervised__kickstart_steps": 9}, []),
        ({"env__agents": 3, "env__num_envs": 7}, ["trainer.batch_size=512: not a multiple of the 21 agents"]),
    ],
)
def test_settings_that_cannot_be_trained_together_are_known_before_anything_is_made(
    values: dict[str, object], places: list[str]
):
    problems = conflicts(settings(**values))
    assert len(problems) == len(places)
    assert all(line.startswith(place) for line, place in zip(problems, places, strict=True)), problems
