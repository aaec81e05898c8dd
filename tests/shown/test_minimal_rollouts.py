"""Rollouts of a request, a conversation and a reward, as seed 004 prints one: every reader takes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

import velodrome
from tests.support.viewing import page_at, viewing
from velodrome.cli.main import main
from velodrome.exchange.export.formats import FORMATS

Json = dict[str, Any]


def minimal(question: str, answer: str, reward: float) -> Json:
    call = {"name": "calculator", "arguments": '{"expr": "2+2"}'}
    return {
        "responses_create_params": {
            "input": [{"role": "user", "content": question}],
            "tools": [{"type": "function", "name": "calculator"}],
        },
        "output": [
            {"role": "assistant", "tool_calls": [call, call]},
            {"role": "tool", "name": "calculator", "content": "4"},
            {"role": "tool", "name": "calculator", "content": "four"},
            {"role": "assistant", "content": answer},
        ],
        "reward": reward,
    }


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two rollouts of one task, and one of another."""
    rows = [("2+2?", "It is 4.", 1.0), ("2+2?", "It is 5.", 0.0), ("3+3?", "It is 6.", 1.0)]
    path = tmp_path / "minimal.jsonl"
    path.write_bytes(b"".join(orjson.dumps(minimal(*row)) + b"\n" for row in rows))
    return path


@pytest.mark.parametrize("name", list(FORMATS))
def test_every_format_takes_them(file: Path, name: str):
    suffix = "jsonl" if FORMATS[name].schema is None else "parquet"
    result = velodrome.export(name, file, file.with_name(f"out.{suffix}"))
    assert (result.unfit, sum(result.records.values()) > 0) == (0, True)
    assert not [note for note in result.notes if "no usable" in note]


def test_metrics_checks_profile_and_transcript_take_them(file: Path, capsys: pytest.CaptureFixture[str]):
    numbers = velodrome.metrics(file)
    assert (numbers["reward"], numbers["avg_tool_calls"], numbers["pass@1"]) == (2 / 3, 2.0, 0.75)
    assert {finding.severity for finding in velodrome.check(file)} == {"info"}  # no tokens and no times
    assert main(["profile", str(file)]) == 0
    assert "none of 3 rollouts has times" in capsys.readouterr().out
    assert main(["show", str(file)]) == 0
    assert "It is 4." in capsys.readouterr().out
    assert main(["compare", str(file), str(file)]) == 0
    assert "2 tasks in both" in capsys.readouterr().out
    with viewing(file) as client:
        assert "It is 5." in page_at(client, "/run/minimal/rollouts").words
        assert "2+2?" in page_at(client, "/run/minimal/rollout/2").words


def test_an_import_makes_them_whole(file: Path):
    to = file.with_name("whole.jsonl")
    assert main(["import", "nemo_gym", str(file), "--to", str(to)]) == 0
    first, second, other = [orjson.loads(line) for line in to.read_bytes().splitlines()]
    assert (first["response"]["content"], first["reward"]) == ("It is 4.", 1.0)
    keys = [row["meta"]["key"].rpartition("/") for row in (first, second, other)]
    assert [repeat for _, _, repeat in keys] == ["0", "1", "0"]
    assert keys[0][0] == keys[1][0] != keys[2][0]
    assert velodrome.metrics(to)["pass@1"] == 0.75
