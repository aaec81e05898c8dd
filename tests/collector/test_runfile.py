"""The run file: what two runs differ in, and a file that is whole or as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from velodrome.collector.runfile import RunFile, differences, instance_recipes, make_recipe
from velodrome.errors import InputError, StorageError
from velodrome.records.outfile import write_whole
from velodrome.settings import Instance


def instances(**settings: Any) -> dict[str, Instance]:
    return {"m": Instance("m", "responses_api_models", "openai_model", settings, "a.yaml")}


def test_a_recipe_has_what_decides_a_rollout_and_no_secrets():
    block = instances(openai_model="gpt", timeout_s=5, openai_base_url="http://h", judge_api_key="sk-1", max_steps=3)
    result = make_recipe(instance_recipes(block, {}), {"temperature": 0.5}, deferred=True)
    assert result == {
        "instances": {
            "m": {
                "kind": "responses_api_models",
                "implementation": "openai_model",
                "settings": {"openai_model": "gpt", "judge_api_key": "***", "max_steps": 3},
            }
        },
        "responses_create_params": {"temperature": 0.5},
        "defer_verification": True,
    }


def test_every_difference_is_named_by_its_path():
    before = {"a": {"b": 1, "c": [1]}, "gone": True, "same": {"x": None}}
    now = {"a": {"b": 2, "c": [1]}, "new": "x", "same": {"x": None}}
    assert differences(before, now) == ["a.b: was 1, now 2", "gone: was true, now null", 'new: was null, now "x"']


def test_other_code_is_named_and_a_missing_digest_is_not_compared_nor_forgotten(tmp_path: Path):
    def made(source: str | None) -> dict[str, Any]:
        recipes = instance_recipes(instances(a=1), {"m": source} if source else {})
        return make_recipe(recipes, {}, deferred=False)

    path = tmp_path / "r.jsonl"
    RunFile(path).begin(made(None), {}, {})
    assert RunFile(path).problems(made("0f")) == []  # of an earlier version
    RunFile(path).begin(made("0f"), {}, {})
    RunFile(path).begin(made(None), {}, {})  # a server that does not say
    assert RunFile(path).problems(made("0f")) == []
    assert RunFile(path).problems(made("1e")) == ["m: its code changed: source was 0f, now 1e"]


def test_a_run_is_recorded_beside_its_rollouts_and_another_recipe_is_noticed(tmp_path: Path):
    path = tmp_path / "r.jsonl.zst"
    file = RunFile(path)
    assert file.problems({"x": 1}) == []
    entry = file.begin({"x": 1}, {"input": "t.jsonl"}, {"config": "masked"})
    entry["kept"] = 5
    file.save()
    again = RunFile(path)
    assert again.problems({"x": 1}) == []
    assert again.problems({"x": 2}) == ["x: was 1, now 2"]
    again.begin({"x": 2}, {"input": "u.jsonl"}, {})
    data = orjson.loads((tmp_path / "r.run.json").read_bytes())
    assert (data["recipe"], data["config"], sorted(data["versions"])) == ({"x": 2}, {}, ["python", "velodrome"])
    assert [{k: v for k, v in run.items() if k != "started_at"} for run in data["runs"]] == [
        {"input": "t.jsonl", "kept": 5},
        {"input": "u.jsonl"},
    ]


@pytest.mark.parametrize("data", [b"{", b'{"runs": 5}'])
def test_a_file_that_is_no_run_file_is_one_clear_line(tmp_path: Path, data: bytes):
    path = tmp_path / "r.run.json"
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"r\.run\.json: .*; move it away"):
        RunFile(tmp_path / "r.jsonl")
    assert path.read_bytes() == data


def test_a_file_is_replaced_whole_or_stays_and_nothing_is_left_beside_it(tmp_path: Path):
    path = tmp_path / "r.run.json"
    write_whole(path, b"1")
    write_whole(path, b"2")
    assert path.read_bytes() == b"2"
    blocked = tmp_path / "folder"
    blocked.mkdir()
    with pytest.raises(StorageError, match=r"folder: cannot be written: "):
        write_whole(blocked, b"3")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["folder", "r.run.json"]
