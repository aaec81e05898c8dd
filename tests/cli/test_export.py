"""`velo export`: its words, what it prints, and how mistakes are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from velodrome.cli.main import main
from velodrome.records.rollout import encode

Capture = pytest.CaptureFixture[str]


def row(key: str, reward: float) -> dict[str, Any]:
    return {
        "responses_create_params": {"input": "Hi"},
        "output": [{"role": "assistant", "content": f"Hello from {key}"}],
        "response": {"content": f"Hello from {key}"},
        "usage": {},
        "reward": reward,
        "meta": {"key": key},
    }


@pytest.fixture
def rollouts(tmp_path: Path) -> str:
    path = tmp_path / "rollouts.jsonl"
    rows = [row("a/0", 1.0), row("a/1", 0.0), row("b/0", 1.0)]
    path.write_bytes(b"".join(map(encode, rows)) + b"garbage\n")
    return str(path)


def test_what_came_of_it_is_json_and_the_settings_of_the_format_reach_it(
    rollouts: str, tmp_path: Path, capsys: Capture
):
    to = tmp_path / "dpo.jsonl"
    assert main(["export", "dpo", rollouts, "--to", str(to), "--pairs", "3", "--margin", "0.5"]) == 0
    out, err = capsys.readouterr()
    result = orjson.loads(out)
    assert {name: result[name] for name in ("format", "rollouts", "records")} == {
        "format": "dpo",
        "rollouts": 3,
        "records": {str(to): 1},
    }
    assert "rollouts.jsonl:4" in err
    [pair] = [orjson.loads(line) for line in to.read_bytes().splitlines()]
    assert (pair["chosen"][0]["content"], pair["rejected"][0]["content"]) == ("Hello from a/0", "Hello from a/1")


def test_what_belongs_to_the_rollouts_is_not_overwritten_even_if_asked(tmp_path: Path) -> None:
    rollouts = tmp_path / "b.jsonl"
    rollouts.write_bytes(b"")
    failures = tmp_path / "b.failures.jsonl"
    failures.write_bytes(b'{"key": "a/0"}\n')
    assert main(["export", "sft", str(rollouts), "--to", str(failures), "--overwrite"]) == 2
    assert failures.read_bytes() == b'{"key": "a/0"}\n'
