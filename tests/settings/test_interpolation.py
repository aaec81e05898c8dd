"""Filling in `${…}` and `???`."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from velodrome.errors import InputError
from velodrome.settings import load

FILES = "+config_paths=[model.yaml,agent.yaml]"


def test_expressions_are_filled_in_wherever_they_stand(desk, monkeypatch):
    monkeypatch.setenv("VELODROME_TEST_HOME", "from ${env}")
    desk.write(
        env="""
n: 3
text: n is ${n}
number: ${n}
deep: {list: [1, "${n}"], up: "${..n}", beside: "${.list}"}
copy: ${deep.list}
inside: ${copy[1]}
variable: ${oc.env:VELODROME_TEST_HOME}
default: ${oc.env:VELODROME_TEST_ABSENT,fallback}
which: n
chosen: ${${which}}
escaped: \\${n}
chain: ${inside}
"""
    )
    assert desk.load().settings == {
        "n": 3,
        "text": "n is 3",
        "number": 3,
        "deep": {"list": [1, 3], "up": 3, "beside": [1, 3]},
        "copy": [1, 3],
        "inside": 3,
        "variable": "from ${env}",
        "default": "fallback",
        "which": "n",
        "chosen": 3,
        "escaped": "${n}",
        "chain": 3,
    }


def test_a_missing_key_is_reported_where_it_is_needed_with_the_way_out(math):
    (math.root / "env.yaml").unlink()
    assert math.problems(FILES) == [
        "model.yaml: policy_model.responses_api_models.fake_model.base_url needs policy_base_url;"
        " put it in env.yaml or give +policy_base_url=…",
        "model.yaml: policy_model.responses_api_models.fake_model.api_key needs policy_api_key;"
        " put it in env.yaml or give +policy_api_key=…",
    ]


def test_a_missing_key_that_was_misspelt_gets_the_nearest_one(math):
    math.write(env="polcy_base_url: x\npolicy_api_key: y\n")
    assert math.problems(FILES) == [
        "model.yaml: policy_model.responses_api_models.fake_model.base_url needs policy_base_url;"
        ' put it in env.yaml or give +policy_base_url=…; did you mean "polcy_base_url"?'
    ]


def test_a_key_whose_override_could_not_be_read_is_not_reported_again(math):
    (math.root / "env.yaml").unlink()
    problems = math.problems(FILES, "+policy_base_url=a,b", "+policy_api_key=k")
    assert [problem.split(":")[1] for problem in problems] == [" +policy_base_url=a,b"]


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("a:\n  b: ???\n", ["env.yaml: a.b is mandatory; put it in env.yaml or give +a.b=…"]),
        ("a: ???\nb: ${a}\nc: x${b}\n", ["env.yaml: a is mandatory; put it in env.yaml or give +a=…"]),
        (
            "a: ${oc.env:VELODROME_TEST_ABSENT}\n",
            ["env.yaml: a needs the environment variable VELODROME_TEST_ABSENT, which is not set; set it or give +a=…"],
        ),
        ("a: ${a}\n", ["env.yaml: a refers to itself: a -> a; give one of them a value"]),
        (
            "a: ${b}\nb: x${c.d}\nc: {d: '${a}'}\ne: ${a}\n",
            ["env.yaml: a refers to itself: a -> b -> c.d -> a; give one of them a value"],
        ),
        ("a: {b: '${a}'}\n", ["env.yaml: a.b refers to itself: a.b -> a.b; give one of them a value"]),
        ("a: ${oc.select:a}\n", ["env.yaml: a refers to itself; give +a=…"]),
        ("a: {b: '${.c}'}\n", ["env.yaml: a.b needs a.c; put it in env.yaml or give +a.c=…"]),
        (
            "a: ${nope:1}\n",
            ["env.yaml: a cannot be filled in (Unsupported interpolation type nope); correct it or give +a=…"],
        ),
        ("my_api_key: ${nope:1}\n", ["env.yaml: my_api_key cannot be filled in; correct it or give +my_api_key=…"]),
        (
            "a: ${b\nc: 1\n",
            [r"env.yaml: a has a ${…} that cannot be read; write ${key} or ${oc.env:NAME}, and \${ for a plain ${"],
        ),
        (
            "a: 1\nb: ${a.c.d}\n",
            [
                "env.yaml: b cannot be filled in (Error trying to access a.c.d: node `a` is not a container and thus"
                " cannot contain `c`); correct it or give +b=…"
            ],
        ),
    ],
)
def test_what_cannot_be_filled_in_is_one_line(desk, text, problems):
    desk.write(env=text)
    assert desk.problems() == problems


def test_text_that_doubles_and_doubles_is_refused_before_it_is_built(desk):
    desk.write(env="a0: xx\n" + "".join(f"a{n}: ${{a{n - 1}}}${{a{n - 1}}}\n" for n in range(1, 45)))
    assert desk.problems() == ["env.yaml: a9 grows too large once its references are filled in; shorten it"]


def test_lists_that_double_and_double_are_refused_before_they_are_built(desk):
    desk.write(env="a0: [x, x]\n" + "".join(f"a{n}: ['${{a{n - 1}}}', '${{a{n - 1}}}']\n" for n in range(1, 45)))
    problems = desk.problems()
    assert problems[0].endswith("grows too large once its references are filled in; shorten it")
    assert len(problems) <= 2


def test_a_long_chain_of_references_is_cut_without_an_avalanche(desk):
    desk.write(env="".join(f"a{n}: ${{a{n + 1}}}\n" for n in range(2000)) + "a2000: 1\n")
    problems = desk.problems()
    assert problems[0] == "env.yaml: a50 is reached through more than 50 references; give it a value"
    assert len(problems) < 50


keys = st.sampled_from(
    ["a", "b", "c", "d.e", ".a", "..b", "a[0]", "oc.env:NO,1", "oc.env:NO", "x:y", "${a}", "oc.select:b"]
)
texts = st.lists(keys.map("${{{}}}".format) | st.sampled_from(["x", "${", "}", "\\", "???", "'"]), max_size=3).map(
    "".join
)
trees = st.dictionaries(
    st.sampled_from("abcd"), texts | st.lists(texts, max_size=2) | st.dictionaries(st.just("e"), texts)
)


@settings(max_examples=200, deadline=None)
@given(trees)
def test_any_expressions_are_filled_in_or_an_input_error(tree):
    import yaml

    with TemporaryDirectory() as folder:
        (Path(folder) / "env.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
        try:
            config = load([], cwd=Path(folder))
        except InputError as error:
            seen = error.problems
        else:
            assert set(config.settings) == set(tree)
            return
    assert seen
    assert not any("\n" in problem for problem in seen)
