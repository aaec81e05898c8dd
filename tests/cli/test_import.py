"""`velo import` and `velo data`: what they print, and how mistakes are told."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from velodrome.cli.main import main

Capture = pytest.CaptureFixture[str]


def test_an_import_says_what_came_of_it(tmp_path: Path, capsys: Capture):
    source, to = tmp_path / "log.jsonl", tmp_path / "out" / "tasks.jsonl"
    source.write_bytes(b'{"messages": [{"role": "user", "content": "Hi"}]}\n' * 2 + b"bad\n")
    words = ["import", "openai_chat", str(source), "--to", str(to), "--as", "tasks"]
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0].startswith(f"velo: {source}:3: not JSON: ")
    assert err.splitlines()[1:] == ["velo: nothing is written; --skip-bad leaves such lines out"]
    assert main([*words, "--skip-bad"]) == 0
    out, err = capsys.readouterr()
    assert orjson.loads(out) == {"lines": 3, "tasks": 1, "repeated": 1, "bad": 1, "to": str(to)}
    assert err.startswith(f"{source}:3: not JSON: ")
    assert err.endswith("; left out\n")
    assert orjson.loads(to.read_bytes()) == {"responses_create_params": {"input": [{"role": "user", "content": "Hi"}]}}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nemo_gym", "nowhere.jsonl", "--to", "x.jsonl"], "velo: nowhere.jsonl: no such file\n"),
        (
            ["odd", "nowhere", "--to", "x.jsonl"],
            "velo: no format 'odd' to import; there are nemo_gym, openai_chat, players\n",
        ),
    ],
)
def test_a_mistake_in_an_import_is_one_line_and_exit_code_2(words: list[str], told: str, capsys: Capture):
    assert main(["import", *words]) == 2
    assert capsys.readouterr() == ("", told)


def test_data_is_prepared_and_validated(tmp_path: Path, capsys: Capture):
    source, to = tmp_path / "rows.csv", tmp_path / "tasks.jsonl"
    source.write_text("question,answer\n1 + 1,2\n2 + 2,4\n")
    words = ["data", "prepare", str(source), "--to", str(to), "--prompt", "What is {question}?", "--answer", "answer"]
    assert main([*words, "--keep", "question,answer", "--agent", "mine"]) == 0
    assert orjson.loads(capsys.readouterr().out) == {"rows": 2, "tasks": 2, "bad": 0, "to": str(to)}
    assert main(["data", "validate", str(to)]) == 0
    assert capsys.readouterr() == (
        "tasks                          2\n"
        "bad lines                      0\n"
        "duplicates                     0\n"
        "without expected_answer        0\n"
        "prompt characters              p50 14, p99 14, max 14\n"
        "tools                          none\n"
        "agents                         mine 2\n"
        "field responses_create_params  object 2\n"
        "field expected_answer          text 2\n"
        "field question                 text 2\n"
        "field answer                   text 2\n"
        "field agent_ref                object 2\n",
        "",
    )


def test_a_file_with_bad_tasks_is_told_beside_its_statistics(tmp_path: Path, capsys: Capture):
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(b'{"responses_create_params": {"input": "Hi"}}\n{}\n')
    assert main(["data", "validate", str(path), "--json"]) == 2
    out, err = capsys.readouterr()
    assert (orjson.loads(out)["tasks"], orjson.loads(out)["bad"]) == (1, 1)
    assert err == f'velo: {path}:2: no "responses_create_params" (see docs/rollouts.md#task)\n'


def test_a_file_without_tasks_is_told(tmp_path: Path, capsys: Capture):
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(b"\n")
    assert main(["data", "validate", str(path)]) == 2
    assert capsys.readouterr().err == f"velo: {path}: no tasks in it\n"


def test_names_in_a_file_of_tasks_can_do_nothing_to_a_terminal(tmp_path: Path, capsys: Capture):
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(orjson.dumps({"responses_create_params": {"input": "Hi"}, "\x1b[31mred": 1}) + b"\n")
    assert main(["data", "validate", str(path)]) == 0
    assert "\x1b" not in capsys.readouterr().out
