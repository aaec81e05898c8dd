"""`velo data generate`: seed and index decide a task, with any number of processes; equal ones are in one part."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from velodrome.cli.main import main
from velodrome.errors import InputError
from velodrome.exchange.data.generating import GenerateOptions, generate_tasks

Json = dict[str, Any]
PROCEDURAL = """
import os
from velodrome import Environment


class Numbers(Environment):
    def generate(self, seed, index, *, limit: int = 5, fail: int = -1, end: int = -1):
        if index == fail:
            raise KeyError("numbers")
        if index == end:
            os._exit(3)
        text = ",".join({"one", "two", "three", "four"})  # in the order of a set of texts
        return {"id": f"n{seed}-{index}", "responses_create_params": {"input": f"{index % limit} {text}"}}

    def verify(self, task, response):
        return 0.0
"""


@pytest.fixture
def numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "resources_servers" / "numbers"
    folder.mkdir(parents=True)
    (folder / "app.py").write_text(PROCEDURAL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def prompts_in(path: Path) -> list[str]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [str(row["responses_create_params"]["input"]) for row in rows]


def generate(name: str, options: Json | None = None, **order: Any) -> Json:
    made = GenerateOptions.read({name: str(value) if name == "output" else value for name, value in order.items()})
    return asyncio.run(generate_tasks(name, made, options or {})).as_json()


@pytest.mark.slow
def test_the_file_is_the_same_with_any_number_of_processes(numbers: Path) -> None:
    """Also where the text is in the order of a set, which differs from one process to the next."""
    made = {}
    for name, seed, workers in (("one", 3, 1), ("three", 3, 3), ("other", 4, 1)):
        generate("numbers", {"limit": 600}, n=600, seed=seed, output=numbers / f"{name}.jsonl", num_workers=workers)
        made[name] = (numbers / f"{name}.jsonl").read_bytes()
    assert made["one"] == made["three"] != made["other"]
    assert [json.loads(line)["id"] for line in made["one"].splitlines()] == [f"n3-{at}" for at in range(600)]
    assert len({text.split()[1] for text in prompts_in(numbers / "one.jsonl")}) == 1


def test_equal_tasks_are_written_once_and_are_never_in_two_parts(tmp_path: Path) -> None:
    split = ("train:0.8", "validation:0.1", "test:0.1")
    small = {"numbers": 2, "largest": 20}
    result = generate("calculator", small, n=3000, output=tmp_path / "t.jsonl", split=split)
    files = {each: tmp_path / f"t.{each}.jsonl" for each in ("train", "validation", "test")}
    prompts = {each: prompts_in(path) for each, path in files.items()}
    everything = [text for texts in prompts.values() for text in texts]
    assert len(set(everything)) == len(everything) == 3000 - result["duplicates"]
    assert result["tasks"] == {str(files[each]): len(prompts[each]) for each in files}
    assert len(prompts["train"]) > 5 * len(prompts["test"]) > 0
    again = generate("calculator", small, n=2000, seed=9, output=tmp_path / "u.jsonl", split=split)
    others = set(prompts_in(tmp_path / "u.test.jsonl"))
    assert again["duplicates"] > 0
    assert not others & set(prompts["train"])  # not even with another seed


@pytest.mark.slow
def test_what_fails_leaves_nothing(numbers: Path) -> None:
    for options, said in (
        ({"fail": 150}, "task 150: KeyError: 'numbers' (.*app.py:9 in Numbers.generate); nothing is written"),
        ({"end": 150}, "ended with exit code 3; nothing is written"),
    ):
        with pytest.raises(InputError, match=said.replace("(.*", r"\(.*").replace("generate)", r"generate\)")):
            generate("numbers", {"limit": 999, **options}, n=300, output=numbers / "a.jsonl", num_workers=2)
        assert not list(numbers.glob("*.jsonl")) + list(numbers.glob(".*.part"))


def test_mistakes_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    calculator = ["calculator", "+n=1", "+output=a.jsonl"]
    for arguments, said in (
        ([], "takes the name of one environment"),
        (["mcqa", "+n=1", "+output=a.jsonl"], "mcqa: not a procedural environment"),
        (["calculator", "+n=1"], '"output" is required'),
        ([*calculator, "+nubmers=2"], 'did you mean "numbers"?'),
        ([*calculator, "+numbers=x"], "+numbers: Input should be a valid integer"),
        ([*calculator, "+numbers=99"], "task 0: numbers is from 2 to 20"),
        ([*calculator, "+split=[a:0.5,b:0.4]"], "shares add up to 0.9, not to 1"),
        ([*calculator, "+split=[a]"], "'a' is not a name with its share"),
    ):
        assert main(["data", "generate", *arguments]) == 2
        error = capsys.readouterr().err
        assert (said in error, error.count("\n")) == (True, 1), error
        assert not list(tmp_path.iterdir())


def test_an_existing_file_stays_unless_it_may_be_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Settings of other verbs in env.yaml are no options."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "env.yaml").write_text("policy_base_url: http://127.0.0.1:9/v1\nhead_server: {port: 9}\n")
    command = ["data", "generate", "calculator", "+n=5", f"+output={tmp_path}/a.jsonl"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out) == {"generated": 5, "duplicates": 0, "tasks": {f"{tmp_path}/a.jsonl": 5}}
    assert main(command) == 2
    assert main([*command, "+overwrite=true"]) == 0
