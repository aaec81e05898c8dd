"""The short form of a command line: names of configs, files and options, alone and mixed with the long form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from velodrome.cli.plain import read_plain
from velodrome.collector.settings import CollectSettings
from velodrome.settings.overrides import Change

CALCULATOR = "resources_servers/calculator/configs/calculator.yaml"
MODEL = "policy_model: {responses_api_models: {scripted_model: {answers: [It is 36]}}}\n"
TASK = {"id": "a", "expected_answer": "36", "responses_create_params": {"input": "?"}}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("model.yaml").write_text(MODEL)
    Path("tasks.jsonl").write_bytes(orjson.dumps(TASK) + b"\n")
    return tmp_path


def settings(*words: str) -> dict[str, Any]:
    changes = read_plain(words, CollectSettings).words
    return {".".join(each.path): each.value for each in changes if isinstance(each, Change)}


def rows(path: str) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in Path(path).read_bytes().splitlines()]


def test_names_files_and_options_are_the_settings_of_the_long_form(velo: Any):
    short = velo("collect", "calculator", "model", "tasks.jsonl", "-n", "3", "-o", "short.jsonl", "--embedded")
    paths = f"+config_paths=[{CALCULATOR},model.yaml]"
    files = ("+input_jsonl_fpath=tasks.jsonl", "+output_jsonl_fpath=long.jsonl")
    long = velo("collect", paths, *files, "+num_repeats=3", "+embedded=true")
    assert (short.code, long.code) == (0, 0)
    made = [
        [(row["meta"]["key"], row["reward"], row["output"]) for row in rows(f"{name}.jsonl")]
        for name in ("short", "long")
    ]
    assert made[0] == made[1]
    assert len(made[0]) == 3


def test_both_forms_mix_and_the_last_one_counts(velo: Any):
    words = ["+config_paths=[model.yaml]", "calculator", "tasks.jsonl", "--output=r.jsonl", "+num_repeats=2", "-n1"]
    done = velo("collect", *words, "--embedded", "+responses_create_params.temperature=0.5")
    assert (done.code, len(rows("r.jsonl"))) == (0, 1), done.err
    assert rows("r.jsonl")[0]["responses_create_params"]["temperature"] == 0.5


def test_without_a_file_the_examples_of_the_environment_are_collected(velo: Any):
    done = velo("collect", "calculator", "model.yaml", "-o", "r.jsonl", "--limit", "2", "--embedded")
    assert (done.code, len(rows("r.jsonl"))) == (0, 2)
    assert "resources_servers/calculator/data/example.jsonl" in done.err


def test_an_option_has_the_value_that_the_setting_has_whatever_its_characters():
    assert settings("-o", "my, odd [file].jsonl", "--parallel", "auto", "--seed=7", "--drain-s", "1.5") == {
        "output_jsonl_fpath": "my, odd [file].jsonl",
        "num_samples_in_parallel": "auto",
        "seed": 7,
        "drain_s": 1.5,
    }
    assert settings("--agent", "36", "--num-repeats", "4", "--overwrite", "--defer=false", "shards/*.jsonl") == {
        "agent_name": "36",
        "num_repeats": 4,
        "overwrite": True,
        "defer_verification": False,
        "input_jsonl_fpath": "shards/*.jsonl",
    }


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["calculater"], 'calculater: no file and no config of this name; did you mean "calculator"?'),
        (["--paralel", "3"], 'unknown option --paralel; did you mean "--parallel"?'),
        (["--limit"], "--limit needs a value"),
        (["a.jsonl", "b.jsonl"], "a.jsonl, b.jsonl: one input"),
    ],
)
def test_what_is_neither_is_one_line_with_the_way_out(velo: Any, words: list[str], problem: str):
    done = velo("collect", *words)
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert done.err.startswith(f"velo: {problem}")


def test_a_file_of_this_folder_wins_over_a_packaged_config_and_two_of_a_name_are_refused(velo: Any, folder: Path):
    Path("local_model.yaml").write_text(MODEL)
    done = velo("config", "local_model")
    assert yaml.safe_load(done.out)["policy_model"]["responses_api_models"] == {
        "scripted_model": {"answers": ["It is 36"]}
    }
    assert "local_model.yaml is used, not the config responses_api_models/local_model" in done.err
    for kind in ("resources_servers", "responses_api_models"):
        own = folder / kind / "calculator" / "configs"
        own.mkdir(parents=True)
        (own / "calculator.yaml").write_text(MODEL.replace("policy_model", "mine"))
        done = velo("config", "calculator")
        if kind == "resources_servers":
            assert (done.code, list(yaml.safe_load(done.out))) == (0, ["mine"])
            assert "calculator.yaml of this folder is used" in done.err
    places = (
        "resources_servers/calculator/configs/calculator.yaml, responses_api_models/calculator/configs/calculator.yaml"
    )
    assert (done.code, places in done.err) == (2, True)


def test_verify_config_test_and_collate_take_names_too(velo: Any):
    collected = velo(
        "collect", "calculator", "model", "tasks.jsonl", "-o", "r.jsonl", "--embedded", "--defer-verification"
    )
    assert (collected.code, rows("r.jsonl")[0]["reward"]) == (0, None)
    assert velo("verify", "r.jsonl", "calculator", "--embedded", "-o", "v.jsonl").code == 0
    assert rows("v.jsonl")[0]["reward"] == 1.0
    assert yaml.safe_load(velo("config", "calculator", "model.yaml").out).keys() >= {"policy_model"}
    assert velo("test", "calculator", "model.yaml", "--only", "references").code == 0
    collated = velo("data", "collate", "calculator", "--to", "out", "--types", "example")
    assert (collated.code, len(rows("out/example.jsonl"))) == (0, 20)
