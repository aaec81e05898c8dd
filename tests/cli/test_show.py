"""`velo show` and `velo metrics` on files good and bad."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.screens import Screen
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


@pytest.mark.parametrize(("which", "key"), [([], "a/0"), (["1"], "a/0"), (["2"], "2/0"), (["c/1"], "c/1")])
def test_a_rollout_is_found_by_its_place_or_its_key(
    file: Path, capsys: pytest.CaptureFixture[str], which: list[str], key: str
):
    assert main(["show", str(file), *which]) == 0
    assert capsys.readouterr().out == shown(key)


def test_all_of_them_are_shown_and_what_is_no_rollout_is_named(file: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["show", str(file), "--all"]) == 0
    out, err = capsys.readouterr()
    assert (out, f"{file}:4: " in err) == (shown("a/0") + shown("2/0") + shown("c/1"), True)
    assert main(["show", str(file), "zz/0"]) == 2
    assert f"{file}: no rollout 'zz/0'" in capsys.readouterr().err


def test_a_filter_chooses_and_a_list_has_one_line_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"".join(orjson.dumps({**row(f"a/{at}"), "reward": float(at)}) + b"\n" for at in range(3)))
    path.with_name("r.failures.jsonl").write_bytes(orjson.dumps({"key": "b/0", "boundary": "model", "error": "503"}))
    assert main(["show", str(path), "--where", "reward>1"]) == 0
    assert capsys.readouterr().out.startswith("─── a/2\n")
    assert main(["show", str(path), "--where", "-reward=1", "--list"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["a/0", "0", "It", "is", "36."],
        ["a/2", "2", "It", "is", "36."],
        ["b/0", "failed", "model:", "503"],
    ]
    assert main(["show", str(path), "--where", "rewrad>1"]) == 2
    assert 'did you mean "reward"?' in capsys.readouterr().err


@pytest.mark.slow
def test_on_a_terminal_several_rollouts_open_in_the_pager(file: Path, tmp_path: Path):
    command = [sys.executable, "-m", "velodrome.cli.main", "show", str(file), "--all"]
    with Screen(command, cwd=tmp_path, columns=100, env={"PAGER": "sed s/^/paged:/"}) as screen:
        screen.wait_for("paged:─── c/1")
        assert screen.end() == 0


@pytest.mark.parametrize(
    ("line", "place"),
    [
        (b"[1]", "object"),
        (b"{", "JSON"),
        (b'{"output":"xy","meta":[1]}', "output, meta "),
        (b'{"output":[{"role":"assistant","tool_calls":[1]}]}', "output.tool_calls "),
        (b'{"meta":{"timing":{"total_s":"long"}}}', "meta.timing.total_s "),
        (b'{"responses_create_params":{"instructions":[1]}}', "responses_create_params.instructions "),
    ],
)
def test_a_line_that_is_no_rollout_is_a_mistake_of_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: bytes, place: str
):
    path = tmp_path / "r.jsonl"
    path.write_bytes(line + b"\n")
    assert main(["show", str(path)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), f"velo: {path}:1: not a rollout: " in err, place in err) == ("", 1, True, True)


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


def test_a_failure_is_shown_with_what_was_asked_its_reason_and_how_far_it_came(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    failure = {
        "key": "plum/0",
        "agent": "a",
        "boundary": "verify",
        "error": "verify: KeyError: 'answer'",
        "attempt": 2,
        "timing": {"total_s": 1.5, "model_s": 1.0},
        "responses_create_params": {"input": "What is 1?"},
        "partial": [{"role": "assistant", "content": "as far as this"}],
    }
    path = tmp_path / "r.failures.jsonl"
    path.write_bytes(
        orjson.dumps(failure) + b"\n" + orjson.dumps({"key": "plum/1", "boundary": "model", "error": "503"})
    )
    assert main(["show", str(path), "plum"]) == 0
    assert capsys.readouterr().out == (
        "─── plum/0 · a · 1.50 s (1.00 s model)\n"
        "[user]\n  What is 1?\n[assistant]\n  as far as this\n"
        "[failed · verify, attempt 2]\n  verify: KeyError: 'answer'\n"
        "─── plum/1\n[failed · model]\n  503\n"
    )
    assert main(["metrics", str(path)]) == 2
    assert "failures file" in capsys.readouterr().err
