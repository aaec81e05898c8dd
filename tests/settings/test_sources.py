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
from velodrome.settings.files import PACKAGE, find_input, way_to_file

FILES = "+config_paths=[model.yaml,agent.yaml]"


def test_the_command_line_beats_env_yaml_which_beats_files_which_beat_earlier_files(desk):
    desk.write(a="w: a\nx: a\ny: a\nz: a\n", b="x: b\ny: b\nz: b\n", env="y: env\nz: env\n")
    config = desk.load("+config_paths=[a.yaml,b.yaml]", "z=line")
    assert config.settings == {"w": "a", "x": "b", "y": "env", "z": "line"}


def test_nothing_at_all_is_an_empty_config(desk):
    config = desk.load()
    assert (config.settings, config.instances) == ({}, {})


def test_mappings_merge_and_lists_replace(desk):
    desk.write(a="m: {k: 1, l: [1, 2]}\n", env="m: {j: 2, l: [3]}\n")
    assert desk.load("+config_paths=[a.yaml]").settings == {"m": {"k": 1, "j": 2, "l": [3]}}


def test_a_missing_mark_in_a_later_file_keeps_the_earlier_value(desk):
    desk.write(a="x: 1\n", b="x: ???\n")
    assert desk.load("+config_paths=[a.yaml,b.yaml]").settings == {"x": 1}


def test_config_paths_may_stand_in_env_yaml_and_the_command_line_replaces_them(desk):
    desk.write(a="x: a\n", b="x: b\n", env="config_paths: [a.yaml]\n")
    assert desk.load().settings == {"x": "a"}
    assert desk.load("+config_paths=[b.yaml]").settings == {"x": "b"}
    assert desk.load("+config_paths=b.yaml").settings == {"x": "b"}
    assert desk.load("~config_paths").settings == {}


def test_a_file_may_include_others_and_wins_over_them(desk):
    desk.write(base="x: base\ny: base\n", top="config_paths: [base.yaml]\nx: top\n")
    assert desk.load("+config_paths=[top.yaml]").settings == {"x": "top", "y": "base"}


def test_a_file_included_twice_is_read_at_the_first_place_only(desk):
    desk.write(base="x: base\n", a="config_paths: [base.yaml]\nx: a\n", b="config_paths: [base.yaml]\ny: b\n")
    assert desk.load("+config_paths=[a.yaml,b.yaml]").settings == {"x": "a", "y": "b"}


def test_includes_that_go_round_are_named(desk):
    desk.write(a="config_paths: [b.yaml]\n", b="config_paths: [a.yaml]\n")
    [problem] = desk.problems("+config_paths=[a.yaml]")
    assert "a.yaml -> b.yaml -> a.yaml" in problem


@pytest.mark.parametrize(
    "override",
    [*(f"+config_paths={value}" for value in ("{a: b}", "[1]", "[null]", "3", "['']")), "config_paths.0=a.yaml"],
)
def test_config_paths_that_are_not_files_are_a_problem(desk, override):
    [problem] = desk.problems(override)
    assert problem.startswith("command line: config_paths")


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
    [problem] = math.problems("+config_paths=[modle.yaml,agent.yaml]")
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


def test_a_missing_file_does_not_drag_in_problems_that_only_follow_from_it(math):
    problems = math.problems("+config_paths=[nope/model.yaml,agent.yaml]", "+policy_x=1", "~gone", known=["limit"])
    assert len(problems) == 1


def test_a_config_in_a_folder_of_an_implementation_is_found_by_a_near_name(desk):
    folder = desk.root / "responses_api_models/fake_model/configs"
    folder.mkdir()
    (folder / "fake.yaml").write_text("x: 1\n", encoding="utf-8")
    [problem] = desk.problems("+config_paths=[responses_api_models/fake_modle/configs/fake.yaml]")
    assert problem.endswith('did you mean "responses_api_models/fake_model/configs/fake.yaml"?')


def test_numbers_are_read_as_omegaconf_reads_them(desk):
    desk.write(
        env="a: 1e-5\nb: 1E3\nc: 1_000\nd: 2024-01-01\ne: .5\nf: 1.5\n"
        "g: yes\nh: ~\ni: '1'\nj: .inf\nk: =\nl: 12:30:45\n"
    )
    assert desk.load().settings == {
        "a": 1e-5,
        "b": 1000.0,
        "c": 1000,
        "d": "2024-01-01",
        "e": 0.5,
        "f": 1.5,
        "g": True,
        "h": None,
        "i": "1",
        "j": float("inf"),
        "k": "=",
        "l": 45045,
    }


def test_keys_are_text_as_written(desk):
    desk.write(env="on: 1\n2: {3: x}\n")
    assert desk.load("+2.3=y").settings == {"on": 1, "2": {"3": "y"}}


def test_anchors_and_merge_keys_work(desk):
    desk.write(env="a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b], z: 3}\nd: {<<: *b}\ne: [*a]\n")
    settings = desk.load().settings
    assert settings["c"] == {"x": 1, "y": 1, "z": 3}
    assert settings["d"] == {"y": 2, "z": 2}
    assert settings["e"] == [{"x": 1, "y": 1}]


LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
)


@pytest.mark.parametrize(
    ("text", "place", "word"),
    [
        ("a: 1\nb: [1\nc: 2\n", ":3", "','"),
        ("a: 1\n---\nb: 2\n", ":2", "document"),
        ("a: 1\nb: {c: 1, c: 2}\n", ":2", "'c'"),
        ("a: 1\na: 2\n", ":2", "'a'"),
        ("- a\n- b\n", "", "a list"),
        ("hello\n", "", "a single value"),
        ("a: !!python/name:os.system\n", ":1", "os.system"),
        ("a: !!set {b}\n", ":1", "set"),
        ("a: !!int x\n", ":1", "int"),
        (f"a: {'9' * 5000}\n", ":1", "int"),
        ("a: !!bool perhaps\n", ":1", "bool"),
        ("? [a]\n: 1\n", ":1", "key"),
        ("a: {<<: 3}\n", ":1", "<<"),
        ("a: &a [*a]\n", ":1", "recursive"),
        (LAUGHS, "", "100,000 values"),
        ("a: " + "[" * 100_000, ":1", "50 levels"),
        ("a: " + "[" * 60 + "]" * 60, ":1", "50 levels"),
        ("a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 60)), "", "50 levels"),
        ("a: " + "x" * (4 * 1024 * 1024), "", "4 MiB"),
        ("a: \0\n", "", "not valid YAML"),
        ("a: 1\nb: \udcff\n", ":2", "UTF-8"),
    ],
    ids=lambda value: value[:25].replace("\n", " "),
)
def test_a_bad_file_is_one_line_that_names_the_place(desk, text, place, word):
    (desk.root / "env.yaml").write_bytes(text.encode(errors="surrogateescape"))
    [problem] = desk.problems()
    assert problem.startswith(f"env.yaml{place}: ")
    assert word in problem


def test_merge_keys_that_double_and_double_are_not_expanded(desk):
    chain = "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}], k{n}: 1}}\n" for n in range(1, 40))
    desk.write(env="a0: &a0 {x: 1}\n" + chain)
    assert len(desk.load().settings["a39"]) == 40


def test_a_byte_order_mark_is_skipped_and_an_empty_file_is_an_empty_mapping(desk):
    (desk.root / "env.yaml").write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert desk.load().settings == {"a": 1}
    desk.write(env="# nothing here\n")
    assert desk.load().settings == {}


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


def test_a_real_pair_of_files_becomes_instances(math):
    config = math.load(FILES)
    assert list(config.instances) == ["policy_model", "math", "math_agent"]
    assert config.agents() == ["math_agent"]
    assert config.settings == {"policy_base_url": "http://127.0.0.1:1/v1", "policy_api_key": "sk-very-secret"}
    agent = config.instances["math_agent"]
    assert (agent.kind, agent.implementation, agent.source) == ("responses_api_agents", "fake_agent", "agent.yaml")
    assert agent.references() == {"resources_server": "math", "model_server": "policy_model"}
    assert agent.settings["datasets"][0]["gitlab_identifier"] == {"dataset_name": "sums", "version": "0.0.1"}
    assert config.instances["policy_model"].settings == {
        "entrypoint": "app.py",
        "base_url": "http://127.0.0.1:1/v1",
        "api_key": "sk-very-secret",
    }


def test_every_data_file_that_a_shipped_config_names_is_there_or_comes_with_the_command_that_fetches_it():
    absent = []
    for config in sorted(PACKAGE.glob("*/*/configs/*.yaml")):
        for named in re.findall(r"jsonl_fpath: (\S+)", config.read_text()):
            if not (PACKAGE / named).is_file():
                absent.append(named)
                command = way_to_file(Path(named)).removeprefix("; to fetch it: python -m ")
                module, _, output = command.partition(" --output ")
                assert output == named
                assert callable(importlib.import_module(module).main)
    assert absent == ["resources_servers/math_with_judge/data/dapo17k_bytedtsinghua_train.jsonl"]
    assert way_to_file(Path("resources_servers/calculator/data/none.jsonl")) == ""
    assert way_to_file(Path("none.jsonl")) == ""


def test_hydra_and_omegaconf_are_not_loaded_by_importing_or_by_a_load_without_overrides(tmp_path):
    code = (
        "import sys; from velodrome.settings import load; load([]); "
        "print([name for name in ('hydra', 'omegaconf', 'antlr4') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": ":".join(sys.path)},
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert done.stdout == "[]\n"
