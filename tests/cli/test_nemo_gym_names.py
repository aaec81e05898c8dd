"""The commands that NeMo Gym's users type open ours, with their arguments."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import orjson
import pytest

from velodrome.cli.main import VERBS, main
from velodrome.cli.nemo_gym import COMMANDS, opened
from velodrome.errors import InputError

ROOT = Path(__file__).parents[2]
CALCULATOR = "+config_paths=[resources_servers/calculator/configs/calculator.yaml]"


@pytest.mark.parametrize(
    ("typed", "ours"),
    [
        ("ng_run +config_paths=[a.yaml]", "run +config_paths=[a.yaml]"),
        ("ng_collect_rollouts +limit=3 +num_repeats=2", "collect +limit=3 +num_repeats=2"),
        ("ng_viewer +jsonl_fpath=r.jsonl", "view +jsonl_fpath=r.jsonl"),
        ("ng_init_resources_server +entrypoint=resources_servers/mine", "init mine"),
        ("ng_test +entrypoint=resources_servers/mine", "test mine"),
        ("ng_test +entrypoint=resources_servers/mine/ +should_validate_data=true", "test mine"),
        ("ng_status", "status"),
        ("ng_status +json=true +head_server.port=11001", "status --json +head_server.port=11001"),
        ("ng_dump_config +config_paths=[a.yaml] +x=1", "config +config_paths=[a.yaml] +x=1"),
        ("ng_reward_profile +rollouts_jsonl_fpath=r.jsonl", "metrics r.jsonl --by task"),
        (
            "ng_prepare_data +config_paths=[a.yaml] +output_dirpath=data/a +mode=example_validation",
            "data collate --to data/a --types example --overwrite +config_paths=[a.yaml]",
        ),
        (
            "ng_prepare_data +mode=train_preparation +output_dirpath=d ++config_paths=[a.yaml]",
            "data collate --to d --types train,validation,benchmark --overwrite ++config_paths=[a.yaml]",
        ),
    ],
)
def test_each_opens_ours_with_its_arguments(typed: str, ours: str, capsys: pytest.CaptureFixture[str]):
    name, *words = typed.split()
    assert opened(name, words) == ours.split()
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("typed", "place"),
    [
        ("ng_test", "+entrypoint is required"),
        ("ng_test +entrypont=resources_servers/x", 'did you mean "entrypoint"'),
        ("ng_test +entrypoint=responses_api_agents/x", "pytest"),
        ("ng_test +entrypoint=/a/resources_servers/x", "two parts"),
        ("ng_test +entrypoint=resources_servers/..", "two parts"),
        ("ng_test +entrypoint=x/y", "resources_servers/"),
        ("ng_test resources_servers/x", "+name=value"),
        ("ng_test +entrypoint=resources_servers/x +should_validate_data=maybe", "true or false"),
        ("ng_init_resources_server +entrypoint=resources_servers/x +template=y", "+template"),
        ("ng_prepare_data +mode=example_validation", "+output_dirpath is required"),
        ("ng_prepare_data +output_dirpath=d +mode=all", "train_preparation or example_validation"),
        ("ng_reward_profile +rollouts_fpath=r.jsonl", 'did you mean "rollouts_jsonl_fpath"'),
        ("ng_status +config_paths=[a.yaml]", "+config_paths"),
        ("ng_tets", 'did you mean "ng_test"'),
    ],
)
def test_what_cannot_be_honoured_is_one_line(velo: Any, typed: str, place: str):
    done = velo(*typed.split())
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith("velo: ")
    assert place in done.err


@pytest.mark.parametrize(
    "typed",
    [
        "ng_test +entrypoint=resources_servers/x +should_validate_data=false",
        "ng_prepare_data +output_dirpath=d +mode=train_preparation +should_download=true +data_source=gitlab",
        "ng_prepare_data +output_dirpath=d +mode=train_preparation +overwrite_metrics_conflicts=true",
        "ng_reward_profile +rollouts_jsonl_fpath=r.jsonl +materialized_inputs_jsonl_fpath=i.jsonl",
        "ng_reward_profile +rollouts_jsonl_fpath=r.jsonl +allow_partial_rollouts=false",
    ],
)
def test_what_has_no_effect_is_said(typed: str, capsys: pytest.CaptureFixture[str]):
    name, *words = typed.split()
    opened(name, words)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert words[-1].partition("=")[0].lstrip("+") in said


def test_all_are_installed_and_listed_with_what_they_open(velo: Any):
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert set(scripts) == {"velo", *COMMANDS}
    done = velo("ng_help")
    assert (done.code, done.err) == (0, "")
    assert [
        name for name, each in COMMANDS.items() if f"velo {each.opens} " not in done.out or name not in done.out
    ] == []


def test_help_is_that_of_the_verb(velo: Any):
    done = velo("ng_status", "+help=true")
    assert done.code == 0
    assert "ng_status opens velo status" in done.out
    assert "usage: velo status" in done.out


def test_a_script_is_known_by_its_name(tmp_path: Path):
    """As an installed one is: a file of that name that calls the function of pyproject.toml."""
    script = tmp_path / "ng_dump_config"
    script.write_text(
        f"#!{sys.executable}\nfrom velodrome.cli.main import other_command\nraise SystemExit(other_command())\n"
    )
    script.chmod(0o755)
    (tmp_path / "a.yaml").write_text("shade: blue\n")
    done = subprocess.run(
        [script, "+config_paths=[a.yaml]"], cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "shade: blue\n", "")


def listed(folder: Path, *entries: dict[str, Any]) -> str:
    """A config whose agent lists these data sets."""
    environment = {"type": "resources_servers", "name": "calculator"}
    model = {"type": "responses_api_models", "name": "policy_model"}
    agent = {"entrypoint": "app.py", "resources_server": environment, "model_server": model, "datasets": entries}
    blocks = {
        "calculator": {"resources_servers": {"calculator": {"entrypoint": "app.py"}}},
        "my_agent": {"responses_api_agents": {"simple_agent": agent}},
    }
    (folder / "mine.yaml").write_text(json.dumps(blocks))
    return "+config_paths=[mine.yaml]"


def tasks(path: Path, *texts: str) -> dict[str, Any]:
    path.write_bytes(b"".join(orjson.dumps({"responses_create_params": {"input": text}}) + b"\n" for text in texts))
    return {"name": path.stem, "type": path.stem.partition("_")[0], "jsonl_fpath": path.name}


def test_data_sets_of_a_config_become_one_file_per_type_and_each_task_has_its_agent(velo: Any, tmp_path: Path):
    entries = [
        tasks(tmp_path / f"{name}.jsonl", name, "more") for name in ("train_a", "train_b", "validation", "example")
    ]
    entries[0]["num_repeats"] = 4
    config = listed(tmp_path, *entries)
    done = velo("ng_prepare_data", config, "+output_dirpath=out/all", "+mode=train_preparation")
    assert (done.code, done.err) == (0, "train_a.jsonl: each task once; for repeats collect with +num_repeats=4\n")
    assert json.loads(done.out) == {"out/all/train.jsonl": 4, "out/all/validation.jsonl": 2}
    rows = [orjson.loads(line) for line in (tmp_path / "out/all/train.jsonl").read_bytes().splitlines()]
    assert [row["responses_create_params"]["input"] for row in rows] == ["train_a", "more", "train_b", "more"]
    assert {row["agent_ref"]["name"] for row in rows} == {"my_agent"}
    assert velo("ng_prepare_data", config, "+output_dirpath=out/all", "+mode=train_preparation").code == 0
    refused = velo("data", "collate", config, "--to", "out/all")
    assert (refused.code, "--overwrite" in refused.err) == (2, True)


def test_a_missing_data_set_a_bad_line_and_a_type_that_is_not_there_are_named_and_nothing_is_written(
    velo: Any, tmp_path: Path
):
    entry = tasks(tmp_path / "train.jsonl", "one")
    absent = velo("data", "collate", listed(tmp_path, {**entry, "jsonl_fpath": "gone.jsonl"}), "--to", "out")
    assert (absent.code, "my_agent.datasets[0]: gone.jsonl: no such file" in absent.err) == (2, True)
    config = listed(tmp_path, entry)
    with (tmp_path / "train.jsonl").open("a") as file:
        file.write('{"id": 3}\n')
    bad = velo("data", "collate", config, "--to", "out")
    assert (bad.code, "train.jsonl:2" in bad.err) == (2, True)
    other = velo("data", "collate", config, "--to", "out", "--types", "exam")
    assert (other.code, "there are: train" in other.err) == (2, True)
    assert not (tmp_path / "out").exists()


def test_a_new_folder_is_made_and_passes(velo: Any):
    assert velo("ng_init_resources_server", "+entrypoint=resources_servers/mine").code == 0
    done = velo("ng_test", "+entrypoint=resources_servers/mine")
    assert (done.code, "mine: passed" in done.out) == (0, True)


def test_the_rewards_of_each_task(velo: Any, collect: Any):
    assert collect(["36", "7"], "+num_repeats=2").code == 0
    done = velo("ng_reward_profile", "+rollouts_jsonl_fpath=r.jsonl")
    assert done.code == 0
    by_task = done.out.partition("by task\n")[2].splitlines()
    assert [line.split()[:4] for line in by_task if line[:1].isdigit()] == [["0", "2", "1", "1"], ["1", "2", "1", "0"]]


def test_names_of_verbs_that_they_open_exist():
    assert {each.opens.split()[0] for each in COMMANDS.values()} - set(VERBS) == {"--help"}


def test_an_unknown_name_is_an_input_error():
    with pytest.raises(InputError):
        opened("ng_nothing", [])


@pytest.mark.parametrize(("name", "verb"), [("ng_test", "test"), ("ng_init_resources_server", "init")])
def test_a_name_where_an_entrypoint_goes_is_answered_with_what_to_type(
    capsys: pytest.CaptureFixture[str], name: str, verb: str
):
    assert main([name, "calculator"]) == 2
    error = capsys.readouterr().err
    assert f"{name} +entrypoint=resources_servers/calculator, or velo {verb} calculator" in error
