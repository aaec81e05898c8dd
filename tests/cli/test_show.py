"""`velo show` and `velo metrics` on files good and bad."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from velodrome.cli.main import main
from velodrome.records.zst import pack


def row(key: str, text: str = "It is 36.") -> dict[str, Any]:
    return {
        "responses_create_params": {"input": "?"},
        "output": [{"role": "assistant", "content": text}],
        "reward": 1.0,
        "meta": {"key": key},
    }


def shown(key: str) -> str:
    return f"─── {key}\n[user]\n  ?\n[assistant]\n  It is 36.\n[score]\n  reward: 1.0\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "r.jsonl"
    lines = [orjson.dumps(row("a/0")), b"", orjson.dumps(row("2/0")), b"[1]", orjson.dumps(row("c/1"))]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


@pytest.mark.parametrize(
    ("which", "key"), [([], "a/0"), (["1"], "a/0"), (["2"], "2/0"), (["c/1"], "c/1"), (["4"], "c/1")]
)
def test_a_rollout_is_found_by_its_place_or_its_key(
    file: Path, capsys: pytest.CaptureFixture[str], which: list[str], key: str
):
    assert main(["show", str(file), *which]) == 0
    assert capsys.readouterr().out == shown(key)


def test_all_of_them_are_shown_and_what_is_no_rollout_is_named(file: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["show", str(file), "--all"]) == 0
    out, err = capsys.readouterr()
    assert out == shown("a/0") + shown("2/0") + shown("c/1")
    assert err.startswith(f"{file}:4: not a rollout (")


@pytest.mark.parametrize(
    "line",
    [b"[1]", b"{", b'{"output":["x"]}', b'{"meta":{"timing":{"total_s":"long"}}}', b'{"responses_create_params":[1]}'],
)
def test_a_line_that_is_no_rollout_is_a_mistake_of_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: bytes
):
    path = tmp_path / "r.jsonl"
    path.write_bytes(line + b"\n")
    assert main(["show", str(path)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), err.startswith(f"velo: {path}:1: not a rollout (")) == ("", 1, True)


def test_a_rollout_that_is_not_there_is_a_mistake(file: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["show", str(file), "zz/0"]) == 2
    assert capsys.readouterr().err == (f"velo: {file}: no rollout 'zz/0'; a line number from 1 to 4, or a key\n")


@pytest.mark.parametrize("verb", ["show", "metrics"])
def test_a_file_that_is_not_there_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str):
    path = tmp_path / "none.jsonl"
    assert main([verb, str(path)]) == 2
    assert capsys.readouterr().err == f"velo: {path}: no such file\n"


def test_a_compressed_file_that_is_still_being_written_can_be_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "r.jsonl.zst"
    path.write_bytes(pack(orjson.dumps(row("a/0")) + b"\n") + pack(orjson.dumps(row("b/0")) + b"\n")[:20])
    assert main(["show", str(path), "--all"]) == 0
    assert capsys.readouterr().out == shown("a/0")
    assert main(["metrics", str(path)]) == 0
    assert orjson.loads(capsys.readouterr().out)["rollouts/kept"] == 1


def test_metrics_are_json_on_stdout_and_notes_are_on_stderr(file: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["metrics", str(file)]) == 0
    out, err = capsys.readouterr()
    assert (orjson.loads(out)["reward"], orjson.loads(out)["rollouts/kept"]) == (1.0, 3)
    assert err == f"{file}:4: not a rollout; it is not counted\n"


def test_a_failure_is_shown_with_its_reason_and_how_far_it_came(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    failure = {
        "key": "plum/0",
        "agent": "a",
        "boundary": "verify",
        "error": "verify: KeyError: 'answer'",
        "attempt": 2,
        "timing": {"total_s": 1.5, "model_s": 1.0},
        "partial": [{"role": "assistant", "content": "as far as this"}],
    }
    path = tmp_path / "r.failures.jsonl"
    path.write_bytes(orjson.dumps(failure) + b"\n")
    assert main(["show", str(path), "plum/0"]) == 0
    assert capsys.readouterr().out == (
        "─── plum/0 · a · 1.50 s (1.00 s model)\n"
        "[assistant]\n  as far as this\n"
        "[failed · verify, attempt 2]\n  verify: KeyError: 'answer'\n"
    )
    assert main(["metrics", str(path)]) == 2
    assert "a failures file has no metrics" in capsys.readouterr().err
