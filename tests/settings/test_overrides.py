"""The command line: what each form means, and what is refused."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from velodrome.errors import InputError
from velodrome.settings import load, overrides

FILES = "+config_paths=[model.yaml,agent.yaml]"
KNOWN = ["limit", "num_samples_in_parallel", "output", "responses_create_params"]


def test_an_override_is_read_in_hydras_grammar(desk):
    for text, result in {
        "++a=1": {"a": 1},
        "a=1": {"a": 1},
        "a.b.c=x": {"a": {"b": {"c": "x"}}},
        "a=": {"a": ""},
        "a=null": {"a": None},
        "a=true": {"a": True},
        "a=1e-3": {"a": 0.001},
        "a='1'": {"a": "1"},
        'a="x, y"': {"a": "x, y"},
        "a=[1,two,'3']": {"a": [1, "two", "3"]},
        "a={b:1,c:[x]}": {"a": {"b": 1, "c": ["x"]}},
        "a={2:x,true:y,null:z}": {"a": {"2": "x", "true": "y", "null": "z"}},
        "a=http://127.0.0.1:8000/v1": {"a": "http://127.0.0.1:8000/v1"},
        "a=str(5)": {"a": "5"},
        "a={}": {"a": {}},
    }.items():
        assert desk.load(text).settings == result


def test_overrides_apply_in_order_mappings_merge_and_a_tilde_removes(desk):
    desk.write(env="a: {b: 1, c: 2}\nl: [1, 2]\nn: null\n")
    config = desk.load("a.b=5", "+a={d:6}", "l.1=9", "n.x=1", "e=1", "e=2")
    assert config.settings == {"a": {"b": 5, "c": 2, "d": 6}, "l": [1, 9], "n": {"x": 1}, "e": 2}
    assert desk.load("~a.b", "~n=null", "~l").settings == {"a": {"c": 2}}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("~a.bb", 'did you mean "a.b"'),
        ("~a.b.c.d", '"a.b.c.d"'),
        ("~d=4", "another value"),
        ("d.e=1", '"d" is not a mapping'),
        ("l.5=1", '"l" is not a mapping'),
        ("limit", "+name="),
        ("a/b=x", "dots"),
        ("a=1,2", "several values"),
        ("a=" + "9" * 5000, "grammar"),
        ("a=\udcff", "UTF-8"),
    ],
)
def test_a_bad_override_is_one_short_line(desk, text, word):
    desk.write(env="a: {b: 1, c: 2}\nd: 3\nl: [1, 2]\n")
    [problem] = desk.problems(text)
    assert problem.startswith("command line: ")
    assert word in problem
    assert len(problem) < 400


def test_a_flag_is_answered_with_the_setting(desk):
    problems = desk.problems("--num-repeats=3", "--dev", "+a=1", "--api-key=hunter22")
    assert [problem.partition("write ")[2] for problem in problems] == ["+num_repeats=3", "+dev=…", "+api_key=***"]


def test_a_secret_is_not_repeated_in_a_problem(desk):
    problems = desk.problems("+policy_api_key=sk-1,sk-2", "+hf_token=[sk-3", "+x=[http://me:pw@host")
    assert len(problems) == 3
    assert "sk-" not in "".join(problems)
    assert "me:pw@" not in problems[2].split(": ")[1]


@pytest.mark.parametrize(
    ("key", "right"),
    [
        ("num_sampels_in_parallel", 'did you mean "num_samples_in_parallel"?'),
        ("policy_model.responses_api_model.fake_model.x", 'did you mean "responses_api_models"?'),
        ("polcy_model.responses_api_models.fake_model.x", 'did you mean "policy_model"?'),
    ],
)
def test_an_unknown_key_gets_the_nearest_known_one_or_all_of_them(math, key, right):
    [problem] = math.problems(FILES, f"+{key}=1", known=KNOWN)
    assert right in problem


def test_known_keys_keys_of_files_and_keys_that_are_interpolated_may_be_given(math):
    (math.root / "env.yaml").unlink()
    math.write(other="mine: 1\n")
    config = math.load(
        "+config_paths=[model.yaml,agent.yaml,other.yaml]",
        "+limit=3",
        "+responses_create_params.temperature=0.8",
        "+output={path: x}",
        "+policy_base_url=http://a",
        "+policy_api_key=k",
        "mine=2",
        "+policy_model.responses_api_models.fake_model.timeout_s=5",
        "+new={responses_api_models: {fake_model: {}}}",
        known=KNOWN,
    )
    assert config.settings == {
        "mine": 2,
        "limit": 3,
        "responses_create_params": {"temperature": 0.8},
        "output": {"path": "x"},
        "policy_base_url": "http://a",
        "policy_api_key": "k",
    }
    assert config.instances["policy_model"].settings["timeout_s"] == 5
    assert config.instances["new"].source == "command line"


values = st.text(alphabet="ab1.=[]{}(),:'\"\\$~+@/? \t\n-_é\0", max_size=25)


@settings(max_examples=80)
@given(st.lists(values | st.text(max_size=12) | values.map(lambda text: "a=" + text), max_size=3))
def test_any_command_line_is_a_config_or_an_input_error(texts):
    with TemporaryDirectory() as folder:
        try:
            config = load(texts, known=("a",), cwd=Path(folder))
        except InputError as error:
            seen = error.problems
        else:
            assert set(config.settings) | set(config.instances) <= {"a"}
            return
    assert seen
    assert not any("\n" in problem for problem in seen)


PLAIN = (
    "+a=1", "+a=-0", "+a=0.50", "+a=-12.5", "+a=true", "+a=null", "+a=True", "+a=nan", "+a=inf", "+a=1e5",
    "+a=00", "+a=1_000", "+a.b=c", "a=b", "++a.b.c=d_e", "+a=/tmp/x-y.jsonl", "+a=a..b", "+a=a/", "+a=_",
    "+a=null.jsonl", "+a=inf.x", "+a=truely", "+a=http://127.0.0.1:8000/v1", "+a=https://host.name/v1",
    "+a=x:1", "+a=b/c.py:answer", "+a=x:y:z", "+a=[x:y,z]", "+a=[a/b.yaml,c.yaml]", "+a=[a,null]", "+a=[1,2]",
    "+a=[]", "+a=9007199254740993123", "+a=x y", "+a=a,b", "+a=", "~a", "+a='1'", "+a={b:1}", "+a=café",
)  # fmt: skip


def test_an_override_that_is_read_without_hydra_means_what_hydra_says():
    for text in PLAIN:
        simple = overrides._simple(text)
        if simple is not None:
            override, value = overrides._parse_with_hydra(text)
            assert (simple.path, simple.value) == (tuple(override.key_or_group.split(".")), value)
            assert (type(simple.value), override.is_delete()) == (type(value), False)


def test_an_instance_that_becomes_a_value_and_a_number_without_a_form_in_json_are_one_line_each(math):
    assert [problem for problem in math.problems(FILES, "+math=5") if '"math"' not in problem] == []
    large = "expected a whole number up to 9223372036854775807"
    assert math.problems(FILES, f"+limit={10**400}", known=KNOWN) == [f"command line: limit: {large}"]
    key = "policy_model.responses_api_models.fake_model.size"
    assert f"command line: {key}: {large}" in math.problems(FILES, f"+{key}={-(10**30)}")
