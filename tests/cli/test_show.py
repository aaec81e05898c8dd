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
    assert err == f"{file}:4: not a rollout: the line is not a JSON object\n"


OF_A_WRONG_TYPE = "of a wrong type (docs/rollouts.md names every field)"


@pytest.mark.parametrize(
    ("line", "flaw"),
    [
        (b"[1]", "the line is not a JSON object"),
        (b"{", "the line is not JSON"),
        (b'{"output":["x"]}', f"output {OF_A_WRONG_TYPE}"),
        (b'{"output":"xy","meta":[1]}', f"output, meta {OF_A_WRONG_TYPE}"),
        (b'{"output":[{"role":"assistant","tool_calls":[1]}]}', f"output.tool_calls {OF_A_WRONG_TYPE}"),
        (b'{"output":[{"role":"assistant","refusal":[1]}]}', f"output.refusal {OF_A_WRONG_TYPE}"),
        (b'{"meta":{"timing":{"total_s":"long"}}}', f"meta.timing.total_s {OF_A_WRONG_TYPE}"),
        (b'{"meta":{"scored":5}}', f"meta.scored {OF_A_WRONG_TYPE}"),
        (b'{"responses_create_params":[1]}', f"responses_create_params {OF_A_WRONG_TYPE}"),
        (
            b'{"responses_create_params":{"instructions":[1]}}',
            f"responses_create_params.instructions {OF_A_WRONG_TYPE}",
        ),
    ],
)
def test_a_line_that_is_no_rollout_is_a_mistake_of_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: bytes, flaw: str
):
    path = tmp_path / "r.jsonl"
    path.write_bytes(line + b"\n")
    assert main(["show", str(path)]) == 2
    assert capsys.readouterr() == ("", f"velo: {path}:1: not a rollout: {flaw}\n")


def test_a_rollout_with_nan_in_it_is_found_by_its_key_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "r.jsonl"
    path.write_bytes(b'{"meta":{"key":"a/0","scored":["speed"]},"reward":NaN,"speed":Infinity}\n')
    assert main(["show", str(path), "a/0"]) == 0
    assert capsys.readouterr().out == "─── a/0\n[score]\n  reward: NaN\n  speed: Infinity\n"


def test_every_repeat_of_a_task_is_shown_by_its_id(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "r.jsonl"
    keys = ["a/0", "b/0", "a/x/0", "a/1", "7/0", "7/1"]
    path.write_bytes(b"".join(orjson.dumps(row(key)) + b"\n" for key in keys))
    assert main(["show", str(path), "a"]) == 0
    assert capsys.readouterr().out == shown("a/0") + shown("a/1")
    assert main(["show", str(path), "7"]) == 0
    assert capsys.readouterr().out == shown("7/0") + shown("7/1")
    assert main(["show", str(path), "a/x"]) == 0
    assert capsys.readouterr().out == shown("a/x/0")


def test_the_failures_of_a_task_are_shown_with_what_was_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "r.failures.jsonl"
    failure = {"key": "a/0", "boundary": "model", "error": "503", "responses_create_params": {"input": "What is 1?"}}
    path.write_bytes(orjson.dumps(failure) + b"\n" + orjson.dumps({**failure, "key": "a/1"}) + b"\n")
    assert main(["show", str(path), "a"]) == 0
    assert capsys.readouterr().out == "".join(
        f"─── {key}\n[user]\n  What is 1?\n[failed · model]\n  503\n" for key in ("a/0", "a/1")
    )


def test_a_rollout_that_is_not_there_is_a_mistake(file: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["show", str(file), "zz/0"]) == 2
    assert capsys.readouterr().err == (
        f"velo: {file}: no rollout 'zz/0'; a line number from 1 to 4, a key, or the id of a task\n"
    )


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
    assert capsys.readouterr() == (shown("a/0"), f"{path}:2: not whole; it is not shown\n")
    assert main(["metrics", str(path)]) == 0
    out, err = capsys.readouterr()
    assert orjson.loads(out)["rollouts/kept"] == 1
    assert err == f"{path}:2: not whole: it is being written, or was torn; it is not counted\n"


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
    assert "failures file" in capsys.readouterr().err
