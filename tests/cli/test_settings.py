"""Settings of a verb: each of its type, every mistake at once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from velodrome.cli.collect import SETTINGS, make_settings
from velodrome.cli.settings import Setting, read_settings, settings_help
from velodrome.errors import InputError
from velodrome.settings import Config

TABLE = [
    Setting("n", "count", None, "how many"),
    Setting("s", "number", 1.5, "seconds"),
    Setting("f", "flag", False, "whether"),
    Setting("p", "path", None, "where"),
    Setting("t", "text", "name", "who"),
    Setting("o", "object", {}, "what"),
    Setting("w", "parallel", 16, "width"),
]


def test_what_is_not_given_is_the_default():
    defaults = {"n": None, "s": 1.5, "f": False, "p": None, "t": "name", "o": {}, "w": 16}
    assert read_settings({}, TABLE) == defaults
    assert read_settings({"n": None, "other": 5}, TABLE) == defaults


def test_what_is_given_has_its_type():
    given = {"n": 3, "s": 2, "f": True, "p": "~/x.jsonl", "t": 2024, "o": {"a": 1}, "w": "auto"}
    assert read_settings(given, TABLE) == {**given, "p": Path.home() / "x.jsonl", "t": "2024"}


WRONG = {
    "n": ([0, -1, 1.5, "3", True], "a whole number from 1 on"),
    "s": ([-1, "1", True, float("inf"), float("nan")], "a number from 0 on"),
    "f": ([1, "true"], "true or false"),
    "p": (["", True, ["a"]], "a path"),
    "t": (["", False, {"a": 1}], "a text"),
    "o": ([[], "a"], "an object"),
    "w": ([0, "many", 2.0], "a whole number from 1 on, or auto"),
}


@pytest.mark.parametrize(
    ("name", "value", "what"), [(name, value, what) for name, (values, what) in WRONG.items() for value in values]
)
def test_what_does_not_fit_is_said(name: str, value: Any, what: str):
    with pytest.raises(InputError) as caught:
        read_settings({name: value}, TABLE)
    assert caught.value.problems == (f"{name} is {what}, not {value!r}",)


def test_every_mistake_is_said_at_once_and_a_long_value_is_cut():
    with pytest.raises(InputError) as caught:
        read_settings({"n": "x" * 500, "f": 1}, TABLE)
    assert caught.value.problems == (
        f"n is a whole number from 1 on, not '{'x' * 79}",
        "f is true or false, not 1",
    )


def test_the_help_names_every_setting_with_its_default():
    assert settings_help(TABLE[:3]).splitlines() == [
        f"  +{'n':<36} how many",
        f"  +{'s':<36} seconds [1.5]",
        f"  +{'f':<36} whether",
    ]


def options(tmp_path: Path, **settings: Any) -> Any:
    source = tmp_path / "tasks.jsonl"
    source.write_text("{}\n")
    return make_settings(Config({"input_jsonl_fpath": str(source), **settings}, {}))[0]


def test_the_outer_names_of_the_command_line_become_the_inner_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    found = options(
        tmp_path,
        output_jsonl_fpath="out.jsonl",
        agent_name="a",
        limit=5,
        num_repeats=2,
        num_samples_in_parallel="auto",
        responses_create_params={"temperature": 0.5},
        max_failures=0.1,
    )
    assert (found.input, found.output) == (tmp_path / "tasks.jsonl", Path("out.jsonl"))
    assert (found.agent, found.limit, found.repeats, found.parallel) == ("a", 5, 2, "auto")
    assert (found.params, found.max_failures) == ({"temperature": 0.5}, 0.1)
    assert {setting.name for setting in SETTINGS} >= {"max_total_tokens", "max_wall_s", "defer_verification"}


def test_without_an_output_one_is_made_from_the_inputs_name_in_this_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert options(tmp_path).output == Path("tasks.rollouts.jsonl")


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        ("tasks.jsonl", "tasks.jsonl: input and output are the same file"),
        ("out.json", "out.json: an output ends in .jsonl or .jsonl.zst"),
        ("folder.jsonl", "folder.jsonl: a folder; give a file"),
        ("pipe.jsonl", "pipe.jsonl: not a regular file; give a file"),
        ("x" * 300 + ".jsonl", "x" * 300 + ".jsonl: cannot be written: File name too long"),
    ],
)
def test_an_output_that_cannot_be_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, problem: str
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.jsonl").mkdir()
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(InputError) as caught:
        options(tmp_path, output_jsonl_fpath=output)
    assert str(caught.value) == problem


@pytest.mark.parametrize("name", ["out.failures.jsonl", "out.metrics.json", "out.run.json"])
def test_an_input_that_a_collection_would_write_over_is_refused(tmp_path: Path, name: str):
    source, output = tmp_path / name, tmp_path / "out.jsonl"
    source.write_text("tasks\n")
    with pytest.raises(InputError) as caught:
        options(tmp_path, input_jsonl_fpath=str(source), output_jsonl_fpath=str(output))
    assert str(caught.value) == f"{source}: a collection into {output} writes to it; give another output"


def test_an_input_that_is_not_there_or_no_file_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match=r"^no input: give "):
        make_settings(Config({}, {}))
    with pytest.raises(InputError, match=r"none\.jsonl: no such file"):
        options(tmp_path, input_jsonl_fpath=str(tmp_path / "none.jsonl"))
    with pytest.raises(InputError, match="not a regular file"):
        options(tmp_path, input_jsonl_fpath=str(tmp_path))
