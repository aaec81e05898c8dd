"""A mistake in the arguments is one line and exit code 2, whichever verb it is."""

from __future__ import annotations

import os
from pathlib import Path

import orjson
import pytest

from velodrome.cli.main import main
from velodrome.records.rollout import encode, make_rollout


@pytest.fixture
def rollouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    task = {"responses_create_params": {"input": "Hi"}}
    answer = {"role": "assistant", "type": "message", "content": [{"type": "output_text", "text": "x"}]}
    result = {**task, "response": {"output": [answer]}, "reward": 1.0}
    path = Path("r.jsonl")
    path.write_bytes(encode(make_rollout(task, result, {"key": "a/0", "schema": 1})))
    Path("q.csv").write_text("id,question\n1,What?\n")
    return path


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("view r.jsonl --port x", "argument --port: a port from 0 to 65535, not 'x' (see velo view --help)"),
        ("view r.jsonl --terminal --limit 5", "--limit goes with --export; in the terminal the list is browsed"),
        ("view r.jsonl --export=", "argument --export: a name, not nothing (see velo view --help)"),
        ("check r.jsonl --fail-on bad", "argument --fail-on: invalid choice: 'bad'"),
        ("check r.jsonl r.jsonl", "r.jsonl: named twice"),
        ("check r.jsonl ./r.jsonl", "./r.jsonl: named twice"),
        ("check r.jsonl --only=", "--only: names with commas between them, not ''; velo check --list has them"),
        ("check r.jsonl --skip all-zero,", "--skip: names with commas between them, not 'all-zero,'"),
        ("export sft r.jsonl --to x.jsonl --limit 0", "argument --limit: a whole number from 1 on, not '0'"),
        ("export sft r.jsonl", "the following arguments are required: --to (see velo export --help)"),
        ("export sft r.jsonl --to=", "argument --to: a name, not nothing (see velo export --help)"),
        ("export sft . --to x.jsonl", ".: not a regular file"),
        ("export dpo r.jsonl --to x.jsonl --margin nan", "argument --margin: a number, not 'nan'"),
        ("export dpo r.jsonl --to x.jsonl --margin inf", "argument --margin: a number, not 'inf'"),
        ("data", "the following arguments are required: prepare|validate (see velo data --help)"),
        ("data prepare q.csv --prompt {question}", "the following arguments are required: --to"),
        (
            "data prepare q.csv --prompt {question} --to t.txt",
            "argument --to: a name that ends in .jsonl or .jsonl.zst, not 't.txt' (see velo data prepare --help)",
        ),
        ("data validate .", ".: not a regular file"),
        ("import nemo_gym . --to x.jsonl", ".: not a regular file"),
        ("import nemo_gym r.jsonl --to x.txt", "argument --to: a name that ends in .jsonl or .jsonl.zst, not 'x.txt'"),
        ("import nemo_gym r.jsonl --to x.jsonl --as both", "argument --as: invalid choice: 'both'"),
        ("show", "the following arguments are required: file"),
        ("profile r.jsonl --what", "unrecognized arguments: --what (see velo profile --help)"),
        ("envs --what", "unrecognized arguments: --what (see velo envs --help)"),
        ("metrics r.jsonl --ci x", "argument --ci: a number, not 'x' (see velo metrics --help)"),
    ],
)
def test_a_wrong_argument_is_told_in_one_line_and_nothing_is_written(
    rollouts: Path, capsys: pytest.CaptureFixture[str], words: str, told: str
):
    before = sorted(os.listdir())
    assert main(words.split()) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert err.startswith(f"velo: {told}")
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("id,question\n1,\n", 'q.csv:2: "question" is empty, so that nothing is asked'),
        ("id,question\n1,  \n", 'q.csv:2: "question" is empty, so that nothing is asked'),
        ("id,question\n,What?\n", 'q.csv:2: "id" is empty'),
    ],
)
def test_an_empty_prompt_or_id_is_a_mistake_of_its_row(
    rollouts: Path, capsys: pytest.CaptureFixture[str], table: str, told: str
):
    Path("q.csv").write_text(table)
    assert main(["data", "prepare", "q.csv", "--prompt", "Solve: {question}", "--id", "id", "--to", "t.jsonl"]) == 2
    assert capsys.readouterr().err.splitlines()[0] == f"velo: {told}"
    assert not Path("t.jsonl").exists()


def test_of_several_fields_of_a_prompt_some_may_be_empty(rollouts: Path):
    Path("q.csv").write_text("hint,question\n,What?\n")
    assert main(["data", "prepare", "q.csv", "--prompt", "{hint} {question}", "--to", "t.jsonl"]) == 0
    [task] = map(orjson.loads, Path("t.jsonl").read_bytes().splitlines())
    assert task["responses_create_params"]["input"] == [{"role": "user", "content": " What?"}]


def test_the_statistics_of_no_tasks_have_no_lengths(rollouts: Path, capsys: pytest.CaptureFixture[str]):
    Path("t.jsonl").write_bytes(b"")
    assert main(["data", "validate", "t.jsonl"]) == 2
    out, err = capsys.readouterr()
    assert [line.split()[-1] for line in out.splitlines() if line.startswith("prompt characters")] == ["none"]
    assert err == "velo: t.jsonl: no tasks in it\n"
