"""`velo import` and `velo data`: what they print, and how mistakes are told."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from velodrome.cli.main import main

Capture = pytest.CaptureFixture[str]


def test_an_import_says_what_came_of_it_and_bad_lines_are_left_out_only_on_request(tmp_path: Path, capsys: Capture):
    source, to = tmp_path / "log.jsonl", tmp_path / "out" / "tasks.jsonl"
    source.write_bytes(b'{"messages": [{"role": "user", "content": "Hi"}]}\n' * 2 + b"bad\n")
    words = ["import", "openai_chat", str(source), "--to", str(to), "--as", "tasks"]
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert (out, f"{source}:3: " in err, "--skip-bad" in err, to.exists()) == ("", True, True, False)
    assert main([*words, "--skip-bad"]) == 0
    out, err = capsys.readouterr()
    assert orjson.loads(out) == {"lines": 3, "tasks": 1, "repeated": 1, "bad": 1, "to": str(to)}
    assert f"{source}:3: " in err
    assert orjson.loads(to.read_bytes()) == {"responses_create_params": {"input": [{"role": "user", "content": "Hi"}]}}


def test_data_is_prepared_and_validated(tmp_path: Path, capsys: Capture):
    source, to = tmp_path / "rows.csv", tmp_path / "tasks.jsonl"
    source.write_text("question,answer\n1 + 1,2\n2 + 2,4\n")
    words = ["data", "prepare", str(source), "--to", str(to), "--prompt", "What is {question}?", "--answer", "answer"]
    assert main([*words, "--keep", "question,answer", "--agent", "mine"]) == 0
    assert orjson.loads(capsys.readouterr().out) == {"rows": 2, "tasks": 2, "bad": 0, "to": str(to)}
    assert main(["data", "validate", str(to)]) == 0
    out, err = capsys.readouterr()
    report = orjson.loads(out)
    assert (report["tasks"], report["prompt_characters"]["p99"], report["agents"], err) == (2, 14, {"mine": 2}, "")


def test_a_bad_task_is_named_and_a_hostile_field_does_nothing_to_a_terminal(tmp_path: Path, capsys: Capture):
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(orjson.dumps({"responses_create_params": {"input": "Hi"}, "\x1b[31mred": 1}) + b"\n{}\n")
    assert main(["data", "validate", str(path)]) == 2
    out, err = capsys.readouterr()
    assert ("red" in out, "\x1b" in out, f"{path}:2: " in err) == (True, False, True)
    report = orjson.loads(out)
    assert (report["tasks"], report["bad"]) == (1, 1)
