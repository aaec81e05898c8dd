"""The commands that NeMo Gym's users type open ours, with their arguments."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import orjson
import pytest

from velodrome.cli.nemo_gym import COMMANDS, opened

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("typed", "ours"),
    [
        ("ng_run +config_paths=[a.yaml]", "run +config_paths=[a.yaml]"),
        ("ng_collect_rollouts +limit=3 +num_repeats=2", "collect --json +limit=3 +num_repeats=2"),
        ("ng_viewer +jsonl_fpath=r.jsonl", "view +jsonl_fpath=r.jsonl"),
        ("ng_viewer +help=true", "view --help"),
    ],
)
def test_each_opens_ours_with_its_arguments(typed: str, ours: str):
    name, *words = typed.split()
    assert opened(name, words) == ours.split()


def test_another_name_is_refused_with_the_page_that_says_what_to_type(velo: Any):
    done = velo("ng_runn")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert 'did you mean "ng_run"' in done.err
    assert "docs/from-nemo-gym.md" in done.err


def test_all_are_installed():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert set(scripts) == {"velo", *COMMANDS}


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
    done = velo("data", "collate", config, "--to", "out/all", "--overwrite")
    assert (done.code, done.err) == (0, "train_a.jsonl: each task once; for repeats collect with +num_repeats=4\n")
    assert json.loads(done.out) == {"out/all/train.jsonl": 4, "out/all/validation.jsonl": 2}
    rows = [orjson.loads(line) for line in (tmp_path / "out/all/train.jsonl").read_bytes().splitlines()]
    assert [row["responses_create_params"]["input"] for row in rows] == ["train_a", "more", "train_b", "more"]
    assert {row["agent_ref"]["name"] for row in rows} == {"my_agent"}
    assert velo("data", "collate", config, "--to", "out/all", "--overwrite").code == 0
    refused = velo("data", "collate", config, "--to", "out/all")
    assert (refused.code, "--overwrite" in refused.err) == (2, True)


def test_a_missing_data_set_a_bad_line_and_a_type_that_is_not_there_are_named_and_nothing_is_written(
    velo: Any, tmp_path: Path
):
    entry = tasks(tmp_path / "train.jsonl", "one")
    with (tmp_path / "train.jsonl").open("a") as file:
        file.write('{"id": 3}\n')
    for jsonl_fpath, types, place in (
        ("gone.jsonl", "train", "my_agent.datasets[0]: gone.jsonl"),
        ("train.jsonl", "train", "train.jsonl:2"),
        ("train.jsonl", "exam", "there are: train"),
    ):
        config = listed(tmp_path, {**entry, "jsonl_fpath": jsonl_fpath})
        done = velo("data", "collate", config, "--to", "out", "--types", types)
        assert (done.code, place in done.err) == (2, True)
    assert not (tmp_path / "out").exists()
