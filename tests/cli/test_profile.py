"""`velo profile` as a user types it: on good files, on bad ones, and on files it must not touch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from velodrome.cli.main import main
from velodrome.profiling.profile import read_profile
from velodrome.profiling.profile_text import profile_report
from velodrome.viewer.pages.profile_page import profile_page

START = 1_763_000_000.0


def row(number: int) -> dict[str, Any]:
    """A rollout of 100 ms and a little, 16 at a time."""
    total_s = 0.1 + number / 10_000
    tree = [
        ["model", 0, 90_000, {"tokens": 9}, []],
        ["tools", 90_000, 2_000, {}, [["tool:calculator", 90_100, 1_800, {"cpu_us": 900}, []]]],
        ["verify", 92_500, 5_000, {}, []],
    ]
    timing = {"queue_s": 0.0, "session_s": 0.0, "model_s": 0.09, "tools_s": 0.002, "verify_s": 0.005}
    timing |= {"other_s": total_s - 0.097, "total_s": total_s, "model_calls": 1, "in_flight": 16, "limit": 16}
    timing |= {"cpu": 0.2, "lag_s": 0.001, "write_s": 0.0001, "tree": tree}
    finished = START + 0.1 * (number // 16 + 1)
    meta = {"key": f"task-{number}/0", "finished_at": finished, "timing": timing}
    return {"output": [], "reward": 1.0, "meta": meta}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rollouts.jsonl"
    path.write_bytes(b"".join(orjson.dumps(row(number)) + b"\n" for number in range(160)))
    return path


def test_the_report_of_a_file_is_printed(file: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["profile", str(file)]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == (profile_report(read_profile(file)) + "\n", "")
    assert out.startswith("Rollout Timing Profile (rollouts=160)\n  Rollout Total ")
    assert "<-- BOTTLENECK" in out
    assert "\n  160   task-159/0  " in out
    assert "\nVerdict\n" in out


def test_with_json_the_profile_is_printed_and_nothing_else(file: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["profile", str(file), "--json"]) == 0
    out, err = capsys.readouterr()
    assert (orjson.loads(out), err) == (orjson.loads(orjson.dumps(read_profile(file))), "")


def test_mistakes_are_a_line_each_and_nothing_is_started(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert main(["profile", str(file), "gone.jsonl", "rollouts.failures.jsonl", "+limit=3"]) == 2
    places = [line.split(": ")[1] for line in capsys.readouterr().err.splitlines()]
    assert places == ["gone.jsonl", "rollouts.failures.jsonl", "+limit=3"]


def test_what_is_no_page_of_ours_is_left_alone(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    other = tmp_path / "index.html"
    other.write_text("<!doctype html>\nsomebody else's")
    for path in (other, file.rename(tmp_path / "rollouts.rows")):
        before = path.read_bytes()
        assert main(["profile", str(tmp_path / "rollouts.rows"), f"--html={path}"]) == 2
        assert f"velo: {path}: " in capsys.readouterr().err
        assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "no rollouts in it"),
        (b'{"meta":{"timing":{"total_s":"long"}}}\n{}\n', "none of 2 rollouts has times"),
    ],
)
def test_a_file_without_a_rollout_that_has_times_is_a_mistake(
    file: Path, content: bytes, why: str, capsys: pytest.CaptureFixture[str]
):
    file.write_bytes(content)
    assert main(["profile", str(file), "--html"]) == 2
    out, err = capsys.readouterr()
    assert (out, f"velo: {file}: {why}" in err) == ("", True)
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_the_page_goes_beside_the_file_or_where_it_is_told(file: Path, capsys: pytest.CaptureFixture[str]):
    page = file.with_name("rollouts.profile.html")
    for words in ([str(file), "--html"], ["--html", str(file)], [str(file), f"--html={page}"]):
        assert main(["profile", *words]) == 0  # its own page is written anew
        assert capsys.readouterr().err == f"page: {page}\n"
        assert page.read_text() == profile_page(read_profile(file), title="rollouts.jsonl")
    assert sorted(path.name for path in file.parent.iterdir()) == ["rollouts.jsonl", "rollouts.profile.html"]
