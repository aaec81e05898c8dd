"""`key=value` words: what each stands for, and every mistake reported at once."""

from __future__ import annotations

from typing import Any

import pytest

from velodrome.training.assignments import apply, assign, parse
from velodrome.training.settings import (
    ActionSupervisedAndCriticConfig,
    ProfilerSettings,
    RunSettings,
    TrainerSettings,
    leaves,
)

PLAIN = RunSettings()


def value_of(name: str, text: str) -> Any:
    changed = apply(PLAIN, {name: text})
    return next(leaf.value for leaf in leaves(changed) if leaf.name == name)


def problems_of(values: dict[str, str], **more: Any) -> list[str]:
    problems: list[str] = []
    assign(PLAIN, values, problems, **more)
    return problems


def test_words_become_a_mapping_and_a_value_may_hold_anything():
    problems: list[str] = []
    words = ["trainer.batch_size=1_024", "env.name=gymnasium:A=B", 'profiler={"a": 1}', "x="]
    meant = {"trainer.batch_size": "1_024", "env.name": "gymnasium:A=B", "profiler": '{"a": 1}', "x": ""}
    assert parse(words, problems) == meant
    assert problems == []


def test_every_malformed_word_is_reported():
    problems: list[str] = []
    words = ["run", "=3", "+run=a", "--seed=1", "a..b=1", "seed=1", "seed=2", "a b=1"]
    assert parse(words, problems) == {"seed": "1"}
    places = ["'run'", "'=3'", "'+run=a'", "'--seed=1'", "'a..b=1'", "seed is given twice", "'a b=1'"]
    assert [line.partition(":")[0] for line in problems] == places
    assert "write seed=…" in problems[3]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("trainer.total_timesteps", "5_000", 5000),
        ("trainer.total_timesteps", "64.0", 64),
        ("trainer.profiler.enabled", "True", True),
        ("evaluator.evaluate_local", "false", False),
        ("trainer.learning_rate", "3e-4", 3e-4),
        ("trainer.learning_rate", "1", 1.0),
        ("ppo.learning_rate", "none", None),
        ("run", "2026", "2026"),
    ],
)
def test_a_value_is_typed_by_the_setting_it_is_for(name: str, text: str, value: Any):
    result = value_of(name, text)
    assert (result, type(result)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("trainer.total_timesteps", ["1.5", "", " ", "True", "five", "0", "inf", "nan", "1e999999999", "9" * 5000]),
        ("trainer.total_timesteps", ["1e19", "9" * 19, "0x10", "٥", "５.0"]),
        ("trainer.profiler.enabled", ["yes", "1", "0", "", "None"]),
        ("trainer.learning_rate", ["nan", "inf", "0", "1.1", "x", "", "true", "٠.٥"]),
        ("policy.core", ["LSTM", "", "1"]),
        ("run", ["", "a b", "../up", ".hidden", "a" * 101, "a\n"]),
        ("output.train_dir", ["a\0b", "a\udcff"]),
        (
            "env.name",
            [
                "memory:0",
                "memory:x",
                "memory:1001",
                "extractor_hob_30",
                "extractor_hub_7",
                "gym:CartPole-v1",
                "gymnasium:",
            ],
        ),
    ],
)
def test_what_would_lose_something_or_is_out_of_range_is_refused_in_one_line(name: str, texts: list[str]):
    for text in texts:
        (line,) = problems_of({name: text})
        assert line.startswith(f"{name}: ")
        assert "\n" not in line
        assert len(line) < 250


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("trainer.profiler.enabeld", "trainer.profiler.enabled"),
        ("total_timesteps", "trainer.total_timesteps"),
        ("value_coef", "supervised.value_coef or ppo.value_coef"),
        ("trainer.batch_size.more", "trainer.batch_size"),
        ("supervised_step", "supervised_steps"),
    ],
)
def test_an_unknown_key_is_answered_with_the_nearest_at_any_depth(name: str, nearest: str):
    (line,) = problems_of({name: "1"}, arguments=["supervised_steps", "num_envs"])
    assert line.startswith(f'unknown key "{name}"')
    assert nearest in line.replace('"', "").partition("did you mean ")[2]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("gym:CartPole-v1", "gymnasium"), ("extractor_hob_30", "extractor_hub"), ("gymnasium:", ""), ("CartPole-v1", "")],
)
def test_for_a_misspelt_environment_the_nearest_kind_is_suggested(name: str, kind: str):
    (line,) = problems_of({"env.name": name})
    assert line.partition("did you mean ")[2].partition("?")[0].strip('"') == kind


def test_a_group_is_given_as_an_object_and_changes_only_what_it_names():
    text = '{"batch_size": 1e3, "profiler": {"enabled": true, "wait_steps": "2"}}'
    assert apply(PLAIN, {"trainer": text, "seed": "3"}) == RunSettings(
        seed=3, trainer=TrainerSettings(batch_size=1000, profiler=ProfilerSettings(enabled=True, wait_steps=2))
    )


def test_every_mistake_is_reported_with_its_full_name():
    text = '{"batch_size": 1.5, "profiler": {"enabeld": true, "wait_steps": true}, "gamma": NaN}'
    values = {"trainer": text, "trainer.gamma": "0.5", "env": "4", "evaluator": '{"greedy": 1, "greedy": 2}'}
    lines = problems_of({**values, "output": "{episodes:1}", "seed": "-1"})
    starts = ['unknown key "trainer.profiler.enabeld"', "trainer.gamma is given twice", "env: ", "evaluator: "]
    starts += ["output: ", "trainer.profiler.wait_steps: ", "trainer.batch_size: ", "trainer.gamma: ", "seed: "]
    assert len(lines) == len(starts)
    assert all(line.startswith(start) for line, start in zip(lines, starts, strict=True)), lines


def test_a_class_that_a_recipe_has_put_in_stays_and_the_settings_given_are_not_changed():
    class Mine(ActionSupervisedAndCriticConfig):
        profiled: bool = True
        patience: int = 3

    before = RunSettings(supervised=Mine())
    changed = apply(before, {"supervised.steps": 64, "supervised.patience": "5"})
    assert changed.supervised == Mine(steps=64, patience=5)
    assert before.supervised.steps == 0
    assert '"patience":5' in changed.model_dump_json()
