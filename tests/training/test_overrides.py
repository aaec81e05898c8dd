"""`key=value` words: what each stands for, and that every mistake is told at once, with the way out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from velodrome.errors import InputError
from velodrome.training.overrides import _ELSEWHERE, apply, keys, parse
from velodrome.training.settings import ActionSupervisedAndCriticConfig, ProfilerSettings, Settings, TrainerSettings

PLAIN = Settings()


def value_of(name: str, text: str) -> Any:
    changed = apply(PLAIN, {name: text})
    return next(key.value for key in keys(changed) if key.name == name)


def problems_of(**given: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        apply(PLAIN, {name.replace("__", "."): text for name, text in given.items()})
    return list(caught.value.problems)


def test_words_become_a_mapping_and_a_value_may_hold_anything():
    words = ["run=a", "trainer.batch_size=1_024", "env.name=gymnasium:A=B", 'trainer.profiler={"a": 1}', "x="]
    assert parse(words) == {
        "run": "a",
        "trainer.batch_size": "1_024",
        "env.name": "gymnasium:A=B",
        "trainer.profiler": '{"a": 1}',
        "x": "",
    }


def test_every_malformed_word_is_told_with_the_way_out():
    with pytest.raises(InputError) as caught:
        parse(["run", "=3", "+run=a", "--seed=1", "a..b=1", "seed=1", "seed=2", "a b=1"])
    assert caught.value.problems == (
        "'run': no \"=\"; write it as key=value",
        "'=3': '' is no name of a setting; names with dots, as in \"a.b=c\"",
        "'+run=a': '+run' is no name of a setting; write run=…",
        "'--seed=1': '--seed' is no name of a setting; write seed=…",
        "'a..b=1': 'a..b' is no name of a setting; names with dots, as in \"a.b=c\"",
        "seed is given twice: '1' and '2'; leave one out",
        "'a b=1': 'a b' is no name of a setting; names with dots, as in \"a.b=c\"",
    )


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("trainer.total_timesteps", "5_000", 5000),
        ("trainer.total_timesteps", "1e6", 1_000_000),
        ("trainer.total_timesteps", "2.5e3", 2500),
        ("trainer.total_timesteps", "64.0", 64),
        ("trainer.total_timesteps", "+7", 7),
        ("trainer.profiler.enabled", "True", True),
        ("trainer.profiler.enabled", "true", True),
        ("evaluator.evaluate_local", "False", False),
        ("trainer.learning_rate", "3e-4", 3e-4),
        ("trainer.learning_rate", "1", 1.0),
        ("ppo.value_coef", "1_000", 1000.0),
        ("policy.core", "lstm", "lstm"),
        ("run", "2026", "2026"),
        ("env.name", "True", "True"),
    ],
)
def test_a_value_is_typed_by_the_setting_it_is_for(name: str, text: str, value: Any):
    found = value_of(name, text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("trainer.total_timesteps", text)
        for text in ("1.5", "1e-1", "", " ", "True", "five", "0", "-1", "inf", "nan", "1e999999999", "9" * 5000, "0x10")
    ]
    + [("trainer.total_timesteps", text) for text in ("1e19", "9" * 19, "٥", "５.0")]
    + [("trainer.profiler.enabled", text) for text in ("yes", "1", "0", "", "None", "truely")]
    + [("trainer.learning_rate", text) for text in ("nan", "inf", "0", "1.1", "x", "", "true", "٠.٥")]
    + [("policy.core", text) for text in ("LSTM", "", "1")]
    + [("run", text) for text in ("", "a b", "../up", ".hidden", "a" * 101, "a\n")]
    + [("output.train_dir", text) for text in ("a\0b", "a\udcff")],
)
def test_what_would_lose_something_or_is_out_of_range_is_refused_in_one_line(name: str, text: str):
    with pytest.raises(InputError) as caught:
        apply(PLAIN, {name: text})
    (line,) = caught.value.problems
    assert line.startswith(f"{name} is ")
    assert "\n" not in line
    assert len(line) < 200


def test_the_range_is_told_in_words():
    assert problems_of(trainer__batch_size="0", trainer__gamma="2", ppo__clip="10", trainer__learning_rate="7") == [
        "trainer.batch_size is a whole number from 1 on, not '0'",
        "trainer.gamma is a number from 0 to 1, not '2'",
        "ppo.clip is a number above 0 and below 10, not '10'",
        "trainer.learning_rate is a number above 0 and at most 1, not '7'",
    ]


@given(st.integers(min_value=1, max_value=10**15))
def test_whole_numbers_can_be_written_in_any_of_the_usual_ways(number: int):
    for text in (str(number), f"{number:_}", f"{number}.0", f"{number}e0"):
        assert value_of("trainer.total_timesteps", text) == number


@given(st.text(max_size=30))
def test_no_text_at_all_gets_past_its_type(text: str):
    try:
        found = value_of("ppo.epochs", text)
    except InputError:
        return
    assert (type(found), 1 <= found <= 100) == (int, True)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("trainer.profiler.enabeld", '; did you mean "trainer.profiler.enabled"?'),
        ("trainer.profilr.enabled", "; did you mean trainer.profiler.enabled?"),
        ("trainr.batch_size", "; did you mean trainer.batch_size?"),
        ("total_timesteps", "; did you mean trainer.total_timesteps?"),
        ("value_coef", "; did you mean supervised.value_coef or ppo.value_coef?"),
        ("trainer.batch_size.more", '; did you mean "trainer.batch_size"?'),
        ("superviced", '; did you mean "supervised"?'),
        ("qqqq", "; -h shows them all"),
    ],
)
def test_a_key_that_is_not_there_is_answered_with_the_nearest_at_any_depth(name: str, answer: str):
    with pytest.raises(InputError) as caught:
        apply(PLAIN, {name: "1"})
    assert caught.value.problems == (f"no setting {name}{answer}",)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("lr", "trainer.learning_rate"),
        ("trainer.lr", "trainer.learning_rate"),
        ("n_epochs", "ppo.epochs"),
        ("update_epochs", "ppo.epochs"),
        ("ppo.ent_coef", "ppo.entropy_coef"),
        ("vf_coef", "ppo.value_coef"),
        ("clip_range", "ppo.clip"),
        ("clip_coef", "ppo.clip"),
        ("clip_range_vf", "ppo.value_clip"),
        ("n_envs", "env.num_envs"),
        ("env_id", "env.name"),
        ("exp_name", "run"),
        ("n_steps", "trainer.batch_size (agent steps of a rollout, of all environments)"),
        ("num_steps", "trainer.batch_size (agent steps of a rollout, of all environments)"),
        ("num_minibatches", "trainer.minibatch_size (trainer.batch_size / num_minibatches)"),
        ("batch_size", "trainer.minibatch_size (agent steps of one gradient) or trainer.batch_size (of a rollout)"),
        ("device", "trainer.device"),
        ("gae_lambda", "trainer.gae_lambda"),
        ("max_grad_norm", "trainer.max_grad_norm"),
        ("total_timesteps", "trainer.total_timesteps"),
    ],
)
def test_a_name_of_stable_baselines3_or_cleanrl_is_answered_with_ours(name: str, answer: str):
    found: list[str] = []
    apply(PLAIN, {name: "1"}, found)
    assert found == [f"no setting {name}; did you mean {answer}?"]


def test_a_name_from_elsewhere_is_an_argument_of_the_recipe_where_it_has_one():
    found: list[str] = []
    apply(PLAIN, {"n_envs": "8", "num_steps": "128"}, found, names=["num_envs", "steps"])
    assert found == ["no setting n_envs; did you mean num_envs?", "no setting num_steps; did you mean steps?"]


def test_every_name_that_stands_for_one_of_elsewhere_is_a_setting():
    there = {key.name for key in keys(PLAIN)}
    last = {offered[-1].partition(" ")[0] for offered in _ELSEWHERE.values()}
    assert last - there == set()
    assert {name for name in _ELSEWHERE if name in {key.rpartition(".")[2] for key in there}} == {"batch_size"}


def test_a_name_of_the_recipes_is_offered_too():
    found: list[str] = []
    apply(PLAIN, {"supervised_step": "1"}, found, names=["supervised_steps"])
    assert found == ['no setting supervised_step; did you mean "supervised_steps"?']


def test_a_choice_is_answered_with_the_nearest():
    assert problems_of(policy__core="lstmm", trainer__device="gpu") == [
        "policy.core is mlp or lstm, not 'lstmm'; did you mean \"lstm\"?",
        "trainer.device is auto, cpu or cuda, not 'gpu'",
    ]


def test_a_group_is_given_as_an_object_and_changes_only_what_it_names():
    text = '{"batch_size": 1024, "profiler": {"enabled": true, "wait_steps": "2"}}'
    assert apply(PLAIN, {"trainer": text, "seed": "3"}) == Settings(
        seed=3, trainer=TrainerSettings(batch_size=1024, profiler=ProfilerSettings(enabled=True, wait_steps=2))
    )


def test_mistakes_inside_a_group_have_their_full_names():
    text = '{"batch_size": 1.5, "profiler": {"enabeld": true, "wait_steps": true}, "gamma": NaN}'
    assert problems_of(trainer=text, trainer__gamma="0.5", env="4", evaluator="[]") == [
        "trainer.batch_size is a whole number from 1 on, not 1.5",
        'no setting trainer.profiler.enabeld; did you mean "trainer.profiler.enabled"?',
        "trainer.profiler.wait_steps is a whole number from 0 on, not True",
        "trainer.gamma is a number from 0 to 1, not nan",
        "trainer.gamma is given twice, by its name and in a group; leave one out",
        "env is a group of settings, not '4'; give one of its keys (name, num_envs, agents, max_steps, notes)",
        "evaluator is a group of settings, not '[]'; "
        "give one of its keys (evaluate_local, epoch_interval, episodes, greedy)",
    ]


def test_a_whole_number_in_a_group_may_be_written_as_outside_of_one():
    changed = apply(PLAIN, {"trainer": '{"total_timesteps": 1e3, "batch_size": 512.0, "profiler": {"repeat": "1e1"}}'})
    found = (changed.trainer.total_timesteps, changed.trainer.batch_size, changed.trainer.profiler.repeat)
    assert (found, {type(each) for each in found}) == ((1000, 512, 10), {int})


def test_why_a_value_is_refused_is_said_where_its_kind_does_not_say_it():
    assert problems_of(trainer__total_timesteps="9" * 19, output='{"train_dir": "a\\u0000"}', seed="1e99") == [
        f"trainer.total_timesteps is a whole number from 1 on, not '{'9' * 19}' (too large)",
        "output.train_dir is a text, not 'a\\x00' (not valid text)",
        "seed is a whole number from 0 and below 2_147_483_648, not '1e99' (too large)",
    ]


def test_a_group_that_names_a_key_twice_or_is_nested_without_end_is_refused():
    inside = "evaluate_local, epoch_interval, episodes, greedy"
    assert problems_of(evaluator='{"episodes": 1, "greedy": true, "episodes": 2}', env="[" * 100_000) == [
        'evaluator is a group of settings, not \'{"episodes": 1, "greedy": true, "episodes": 2}\' '
        f"(episodes stands in it twice); give one of its keys ({inside})",
        f"env is a group of settings, not '{'[' * 76}...; "
        "give one of its keys (name, num_envs, agents, max_steps, notes)",
    ]


def test_malformed_json_is_called_that_with_the_place_and_the_way_out():
    inside = "evaluate_local, epoch_interval, episodes, greedy"
    assert problems_of(evaluator="{greedy:true}", output='{"episodes": }') == [
        "evaluator: '{greedy:true}' is malformed JSON at character 2 (Expecting property name enclosed in double "
        f"quotes); names go in double quotes, the whole word in single ones; or give one of its keys ({inside})",
        "output: '{\"episodes\": }' is malformed JSON at character 14 (Expecting value); "
        "names go in double quotes, the whole word in single ones; or give one of its keys "
        "(train_dir, dashboard, tensorboard, episodes, episode_observations)",
    ]


def test_settings_that_do_not_fit_each_other_are_told():
    assert problems_of(trainer__batch_size="64") == [
        "trainer.minibatch_size: larger than trainer.batch_size; there would be no minibatch"
    ]


def test_a_class_that_a_recipe_has_put_in_stays():
    class Mine(ActionSupervisedAndCriticConfig):
        profiled: bool = True
        patience: int = 3

    changed = apply(Settings(supervised=Mine()), {"supervised.steps": "64", "supervised.patience": "5"})
    assert changed.supervised == Mine(steps=64, patience=5)
    assert changed.supervised.profiled


def test_what_is_not_given_stays_and_the_settings_given_are_not_changed():
    assert apply(PLAIN, {}) == PLAIN
    apply(PLAIN, {"seed": "3"})
    assert PLAIN.seed == 0


def test_every_setting_says_what_it_is_for():
    assert [key.name for key in keys(PLAIN) if not key.field.description] == []
