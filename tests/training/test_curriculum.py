"""A curriculum: other environments for the first part of a run, changed at exact steps and resumed bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.small_run import metrics, same, small, weights
from velodrome.errors import InputError
from velodrome.training.loop import TrainingResult, run_training
from velodrome.training.recipes import make_recipe, resolve
from velodrome.training.run.checkpoint import checkpoints
from velodrome.training.schedule import env_at, make_plan
from velodrome.training.settings import CurriculumStage, RunSettings

STAGES = {
    "near": CurriculumStage(until=256, env={"name": "extractor_hub_8", "max_steps": 8}),
    "far": CurriculumStage(until=600, env={"max_steps": 12}),
}


def with_stages(folder: Path, stages: dict[str, CurriculumStage] = STAGES, **more: Any) -> RunSettings:
    return small(folder, **more).model_copy(update={"curriculum": stages})


def trained(folder: Path, stages: dict[str, CurriculumStage] = STAGES, **more: Any) -> TrainingResult:
    return run_training(with_stages(folder, stages, **more))


def test_each_stage_has_its_environments_until_its_last_step(tmp_path: Path):
    settings = with_stages(tmp_path)
    names = [(env_at(settings, step).name, env_at(settings, step).max_steps) for step in (0, 255, 256, 599, 600, 9_999)]
    near, far, own = ("extractor_hub_8", 8), ("extractor_hub_10", 12), ("extractor_hub_10", 24)
    assert names == [near, near, far, far, own, own]
    lines = metrics(run_training(settings).folder)
    assert [line["step"] for line in lines if line["step"] in (256, 600)] == [256, 600]  # rollouts end there
    ended = [line for line in lines if "rollout_length" in line]
    lengths = {(line["step"] > 256) + (line["step"] > 600): line["rollout_length"] for line in ended}
    assert lengths == {0: 8.0, 1: 12.0, 2: 24.0}


@pytest.mark.parametrize("core", ["mlp", "lstm"])
def test_a_run_that_resumes_in_any_stage_ends_with_the_same_weights(tmp_path: Path, core: str):
    whole = trained(tmp_path / "whole", policy__core=core)
    for step in (192, 256, 600, 792, 1024):  # within each stage, and where one ends
        parts = trained(tmp_path / "parts", policy__core=core, trainer__total_timesteps=step)
        assert checkpoints(parts.folder)[-1].name == f"checkpoint_{step:012d}.pt"
    assert same(weights(whole.folder), weights(parts.folder))


BAD = [
    ({"a": {"env": {"max_step": 8}}}, r'curriculum.a.env: unknown key "max_step"; .*"max_steps"'),
    ({"a": {"env": {"max_steps": 1}}}, r"curriculum.a.env: max_steps: expected a whole number from 8"),
    ({"a": {"env": {"num_envs": 2}}}, r"curriculum.a.env: num_envs must stay the same"),
    ({"a": {}, "b": {"until": 8}}, r"^curriculum.b.until=8: .* a, .* 9; "),
    ({"a": {}, "b": {"until": 9}}, r"^curriculum.b.until=9: .* a, .* 9; "),
]


@pytest.mark.parametrize(("stages", "message"), BAD)
def test_a_mistake_in_a_stage_is_one_line(stages: dict[str, Any], message: str):
    curriculum = {name: CurriculumStage(**{"until": 9, **stage}) for name, stage in stages.items()}
    with pytest.raises(InputError, match=message) as raised:
        resolve(make_recipe("mine", lambda: RunSettings(curriculum=curriculum)), {})
    assert len(raised.value.problems) == 1


def test_environments_that_look_different_are_refused_where_they_would_be_entered(tmp_path: Path):
    stages = {"a": CurriculumStage(until=64, env={"name": "gymnasium:CartPole-v1", "agents": 2})}
    with pytest.raises(InputError, match="extractor_hub_10 at agent step 64 has other observations or actions"):
        run_training(with_stages(tmp_path, stages, supervised__steps=0))


def test_the_plan_names_the_stages(tmp_path: Path):
    settings = with_stages(tmp_path, supervised__steps=0, trainer__total_timesteps=1000)
    plan = make_plan(settings, settings.env.num_envs * settings.env.agents)
    phases = [("ppo (near)", 256), ("ppo (far)", 344), ("ppo", 400)]
    assert [(each.title, each.agent_steps) for each in plan.phases] == phases
    assert "256 agent steps ppo (near), then 344 agent steps ppo (far), then 400 agent steps ppo" in plan.words
