"""Where values come from, in which order, and what a file may not be."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from velodrome.errors import InputError
from velodrome.settings import find_file
from velodrome.settings.files import PACKAGE, find_input, in_package, way_to_file


def test_the_command_line_beats_env_yaml_which_beats_files_which_beat_earlier_files(desk):
    """Mappings merge, lists replace, and a missing mark keeps the earlier value."""
    desk.write(a="w: a\nx: a\ny: a\nz: a\nm: {k: 1, l: [1, 2]}\n", b="w: ???\nx: b\ny: b\nz: b\n")
    desk.write(env="y: env\nz: env\nm: {j: 2, l: [3]}\n")
    config = desk.load("+config_paths=[a.yaml,b.yaml]", "z=line")
    assert config.settings == {"w": "a", "x": "b", "y": "env", "z": "line", "m": {"k": 1, "j": 2, "l": [3]}}


def test_config_paths_may_stand_in_env_yaml_and_the_command_line_replaces_them(desk):
    desk.write(a="x: a\n", b="x: b\n", env="config_paths: [a.yaml]\n")
    assert desk.load().settings == {"x": "a"}
    assert desk.load("+config_paths=[b.yaml]").settings == {"x": "b"}
    assert desk.load("+config_paths=b.yaml").settings == {"x": "b"}
    assert desk.load("~config_paths").settings == {}
    for value in ("{a: b}", "[1]", "''"):
        [problem] = desk.problems(f"+config_paths={value}")
        assert problem.startswith("command line: config_paths")


def test_a_file_may_include_others_wins_over_them_and_reads_each_once(desk):
    desk.write(
        base="x: base\ny: base\n", top="config_paths: [base.yaml]\nx: top\n", b="config_paths: [base.yaml]\nz: b\n"
    )
    assert desk.load("+config_paths=[top.yaml,b.yaml]").settings == {"x": "top", "y": "base", "z": "b"}
    desk.write(a="config_paths: [b.yaml]\n", b="config_paths: [a.yaml]\n")
    [problem] = desk.problems("+config_paths=[a.yaml]")
    assert "a.yaml -> b.yaml -> a.yaml" in problem


def test_a_path_is_looked_up_in_the_working_directory_then_in_the_package(tmp_path):
    package = Path(__file__).parents[2] / "velodrome"
    assert find_file("settings/__init__.py", tmp_path) == package / "settings/__init__.py"
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings/__init__.py").write_text("", encoding="utf-8")
    assert find_file("settings/__init__.py", tmp_path) == tmp_path / "settings/__init__.py"
    assert find_file("no/such.yaml", tmp_path) is None
    assert find_file("x" * 5000, tmp_path) is None
    assert find_file("a\0b", tmp_path) is None


def test_a_missing_file_says_where_it_was_looked_for_and_what_is_there(math):
    [problem] = math.problems("+config_paths=[modle.yaml,agent.yaml]", "+policy_x=1", "~gone", known=["limit"])
    assert ('"modle.yaml" in CWD' in problem, 'did you mean "model.yaml"?' in problem) == (True, True)
    math.write(model="config_paths: [zzz/qqq.yml]\n")
    [problem] = math.problems("+config_paths=[model.yaml]")
    assert problem.startswith('model.yaml: config_paths: no file "zzz/qqq.yml"')


def test_a_missing_file_is_answered_with_the_nearest_of_the_same_ending(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("gen.profile.json", "file.jsonl.zst"):
        (tmp_path / name).touch()
    assert way_to_file(Path("gen.profile.jsonl")) == ""
    assert 'mean "file.jsonl.zst"' in way_to_file(Path("fiel.jsonl"))
    with pytest.raises(InputError, match=r'mean "resources_servers/calculator/data/example.jsonl"'):
        find_input(Path("resources_servers/calculator/data/exmple.jsonl"))


def test_anchors_and_merge_keys_work(desk):
    desk.write(env="# nothing here\n")
    assert desk.load().settings == {}
    text = "\ufeffa: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b], z: 3}\ne: [*a]\n"
    desk.write(env=text)
    settings = desk.load().settings
    assert (settings["c"], settings["e"]) == ({"x": 1, "y": 1, "z": 3}, [{"x": 1, "y": 1}])


def test_numbers_are_read_as_omegaconf_reads_them(desk):
    texts = {"a": "1e-5", "b": "1E3", "c": "1_000", "d": "2024-01-01", "e": ".5", "g": "yes", "h": "~", "i": "'1'"}
    values = {"a": 1e-5, "b": 1000.0, "c": 1000, "d": "2024-01-01", "e": 0.5, "g": True, "h": None, "i": "1"}
    texts |= {"j": ".inf", "k": "=", "l": "12:30:45", "on": "1", "2": "{3: x}"}
    values |= {"j": float("inf"), "k": "=", "l": 45045, "on": 1, "2": {"3": "y"}}  # keys are text as written
    desk.write(env="".join(f"{key}: {text}\n" for key, text in texts.items()))
    assert desk.load("+2.3=y").settings == values


@pytest.mark.parametrize(
    ("text", "place", "word"),
    [
        ("a: 1\nb: [1\nc: 2\n", ":3", "','"),
        ("a: 1\n---\nb: 2\n", ":2", "document"),
        ("a: 1\nb: {c: 1, c: 2}\n", ":2", "'c'"),
        ("- a\n- b\n", "", "a list"),
        ("a: !!python/name:os.system\n", ":1", "os.system"),
        (f"a: {'9' * 5000}\n", "", "4300 digits"),
        ("? [a]\n: 1\n", ":1", "key"),
        ("a: &a [*a]\n", ":1", "recursive"),
        ("a: \0\n", "", "not valid YAML"),
        ("a: " + "[" * 100_000, "", "50 levels"),
        ("a: &0 [1, 1]\n" + "".join(f"b{n}: &{n + 1} [*{n}, *{n}]\n" for n in range(40)), "", "100,000 values"),
        ("a: 1\nb: \udcff\n", ":2", "UTF-8"),
    ],
    ids=lambda value: value[:25].replace("\n", " "),
)
def test_a_bad_file_is_one_line_that_names_the_place(desk, text, place, word):
    (desk.root / "env.yaml").write_bytes(text.encode(errors="surrogateescape"))
    [problem] = desk.problems()
    assert problem.startswith(f"env.yaml{place}: ")
    assert word in problem


def test_what_is_not_a_regular_file_is_one_line_each(desk):
    (desk.root / "folder.yaml").mkdir()
    os.mkfifo(desk.root / "pipe.yaml")
    (desk.root / "loop.yaml").symlink_to("loop.yaml")
    problems = desk.problems("+config_paths=[folder.yaml,pipe.yaml,loop.yaml]")
    assert [name in problem for name, problem in zip(("folder", "pipe", "loop"), problems, strict=True)] == [True] * 3


def test_every_mistake_is_reported_at_once(math):
    math.write(broken="a: [\n", twice="a: 1\na: 2\n")
    problems = math.problems("+config_paths=[model.yaml,broken.yaml,twice.yaml,nope.yaml]", "+x=1,2", "y")
    assert [problem.split(": ")[0] for problem in problems] == [
        "command line",
        "command line",
        "broken.yaml:2",
        "twice.yaml:2",
        "command line",
    ]


def test_every_data_file_that_a_shipped_config_names_is_there_or_comes_with_the_command_that_fetches_it():
    absent = []
    for config in sorted(PACKAGE.glob("*/*/configs/*.yaml")):
        for named in re.findall(r"jsonl_fpath: (\S+)", config.read_text()):
            if not any(place.is_file() for place in in_package(named)):
                absent.append(named)
                command = way_to_file(Path(named)).removeprefix("; to fetch it: python -m ")
                module, _, output = command.partition(" --output ")
                assert output == named
                assert callable(importlib.import_module(module).main)
    assert absent == ["resources_servers/math_with_judge/data/dapo17k_bytedtsinghua_train.jsonl"]
    assert way_to_file(Path("resources_servers/calculator/data/none.jsonl")) == ""
    assert way_to_file(Path("none.jsonl")) == ""


@pytest.mark.slow
def test_hydra_and_omegaconf_are_not_loaded_by_importing_or_by_a_load_without_overrides(tmp_path):
    code = (
        "import sys; from velodrome.settings import load; load([]); "
        "print([name for name in ('hydra', 'omegaconf', 'antlr4') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": ":".join(sys.path)},
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert done.stdout == "[]\n"
