"""Settings of a verb: each of its type, every mistake at once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from velodrome.cli.collect import CollectOptions, with_files
from velodrome.cli.options import read_options
from velodrome.errors import InputError
from velodrome.settings import Config


def options(tmp_path: Path, **settings: Any) -> Any:
    source = tmp_path / "tasks.jsonl"
    source.write_text("{}\n")
    config = Config({"input_jsonl_fpath": str(source), **settings}, {})
    return with_files(read_options(CollectOptions, config))[0]


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
        with_files(CollectOptions())
    with pytest.raises(InputError, match=r"none\.jsonl: no such file"):
        options(tmp_path, input_jsonl_fpath=str(tmp_path / "none.jsonl"))
    with pytest.raises(InputError, match="not a regular file"):
        options(tmp_path, input_jsonl_fpath=str(tmp_path))
