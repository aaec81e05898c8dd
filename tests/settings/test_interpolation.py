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


def test_a_missing_key_is_reported_where_it_is_needed_with_the_nearest_one(math):
    block = "model.yaml: policy_model.responses_api_models.fake_model"
    (math.root / "env.yaml").unlink()
    first, second = math.problems(FILES)
    assert first.startswith(f"{block}.base_url needs policy_base_url;")
    assert second.startswith(f"{block}.api_key needs policy_api_key;")
    math.write(env="polcy_base_url: x\npolicy_api_key: y\n")
    [problem] = math.problems(FILES)
    assert 'did you mean "polcy_base_url"?' in problem


def test_a_key_whose_override_could_not_be_read_is_not_reported_again(math):
    (math.root / "env.yaml").unlink()
    problems = math.problems(FILES, "+policy_base_url=a,b", "+policy_api_key=k")
    assert [problem.split(":")[1] for problem in problems] == [" +policy_base_url=a,b"]


@pytest.mark.parametrize(
    ("text", "place", "word"),
    [
        ("a:\n  b: ???\n", "a.b", "+a.b="),
        ("a: ???\nb: ${a}\nc: x${b}\n", "a", "+a="),
        ("a: ${oc.env:VELODROME_TEST_ABSENT}\n", "a", "VELODROME_TEST_ABSENT"),
        ("a: ${b}\nb: x${c.d}\nc: {d: '${a}'}\ne: ${a}\n", "a", "a, b, c.d, e: refer to each other in a circle"),
        ("a: {b: '${.c}'}\n", "a.b", "needs a.c"),
        ("my_api_key: ${nope:1}\n", "my_api_key", "cannot be filled in;"),
        ("a: ${b\nc: 1\n", "a", "${key}"),
        ("a: 1\nb: ${a.c.d}\n", "b", "a.c.d"),
    ],
)
def test_what_cannot_be_filled_in_is_one_line_where_it_stands(desk, text, place, word):
    desk.write(env=text)
    [problem] = desk.problems()
    assert problem.startswith(f"env.yaml: {place}")
    assert word in problem


keys = st.sampled_from(
    ["a", "b", "c", "d.e", ".a", "..b", "a[0]", "oc.env:NO,1", "oc.env:NO", "x:y", "${a}", "oc.select:b"]
)
texts = st.lists(keys.map("${{{}}}".format) | st.sampled_from(["x", "${", "}", "\\", "???", "'"]), max_size=3).map(
    "".join
)
trees = st.dictionaries(
    st.sampled_from("abcd"), texts | st.lists(texts, max_size=2) | st.dictionaries(st.just("e"), texts)
)


@settings(max_examples=60)
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
