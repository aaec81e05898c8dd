"""`velo profile` as a user types it: on good files, on bad ones, and on files it must not touch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from patience import DEADLINE_S

from velodrome.cli import streams
from velodrome.cli.main import main
from velodrome.cli.streams import reassured
from velodrome.profiling.profile_file import read_profile
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


def test_several_files_are_profiled_as_one(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    other = tmp_path / "other.jsonl"
    other.write_bytes(orjson.dumps(row(0)) + b"\n")
    assert main(["profile", str(file), str(other), "--json"]) == 0
    assert orjson.loads(capsys.readouterr().out)["rollouts"] == 161


@pytest.mark.parametrize("words", [["{file}", "--html"], ["--html", "{file}"], ["{file}", "--html={page}"]])
def test_the_page_goes_beside_the_file_or_where_it_is_told(
    file: Path, words: list[str], capsys: pytest.CaptureFixture[str]
):
    page = file.with_name("rollouts.profile.html")
    argv = [word.format(file=file, page=page) for word in words]
    assert main(["profile", *argv]) == 0
    assert capsys.readouterr().err == f"page: {page}\n"
    assert page.read_text() == profile_page(read_profile(file), title="rollouts.jsonl")
    assert main(["profile", *argv]) == 0  # its own page is written anew
    assert sorted(path.name for path in file.parent.iterdir()) == ["rollouts.jsonl", "rollouts.profile.html"]


def test_what_is_no_page_of_ours_is_left_alone(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    other = tmp_path / "index.html"
    other.write_text("<!doctype html>\nsomebody else's")
    for path in (other, file.rename(tmp_path / "rollouts.json")):
        before = path.read_bytes()
        assert main(["profile", str(tmp_path / "rollouts.json"), f"--html={path}"]) == 2
        out, err = capsys.readouterr()
        assert (out, err) == (
            "",
            f"velo: {path}: not a page of velo profile, so it is left alone; give --html another name\n",
        )
        assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("target", "said"),
    [("", "not a regular file; give --html a file"), ("no/page.html", "no such folder {folder}/no")],
)
def test_a_page_that_cannot_be_written_is_one_line(
    file: Path, target: str, said: str, capsys: pytest.CaptureFixture[str]
):
    path = file.parent / target
    assert main(["profile", str(file), f"--html={path}"]) == 2
    assert capsys.readouterr() == ("", f"velo: {path}: {said.format(folder=file.parent)}\n")


def test_mistakes_are_a_line_each(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    failures = tmp_path / "rollouts.failures.jsonl"
    failures.touch()
    argv = [str(file), str(tmp_path), str(tmp_path / "gone.jsonl"), str(failures), "+limit=3"]
    assert main(["profile", *argv]) == 2
    assert capsys.readouterr() == (
        "",
        f"velo: {tmp_path}: not a regular file\n"
        f"velo: {tmp_path}/gone.jsonl: no such file\n"
        f"velo: {failures}: give the rollouts file; the failures beside it are counted with it\n"
        "velo: +limit=3: settings go with --load-test; a profile of a file takes none\n",
    )


def test_without_a_file_it_says_what_to_give(capsys: pytest.CaptureFixture[str]):
    assert main(["profile"]) == 2
    assert capsys.readouterr().err == (
        "velo: no rollouts: give a file, as in velo profile rollouts.jsonl (see velo profile --help)\n"
    )


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "no rollouts in it"),
        (b"{\n[1]\nnull\n", "no rollouts in it"),
        (b'{"meta":{"timing":{"total_s":"long"}}}\n{}\n', "none of 2 rollouts has times"),
        (b"\xff\x00", "no rollouts in it"),
    ],
)
def test_a_file_without_a_rollout_that_has_times_is_a_mistake(
    file: Path, content: bytes, why: str, capsys: pytest.CaptureFixture[str]
):
    file.write_bytes(content)
    for flag in ("--html", "--json"):
        assert main(["profile", str(file), flag]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.endswith(f"velo: {file}: {why}; velo profile reads what velo collect wrote\n")
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_settings_after_html_are_settings(capsys: pytest.CaptureFixture[str]):
    assert main(["profile", "--load-test", "--html", "+config_paths=[gone.yaml]"]) == 2
    assert 'no file "gone.yaml"' in capsys.readouterr().err


def test_rollouts_of_before_there_were_trees_have_a_report(file: Path, capsys: pytest.CaptureFixture[str]):
    rows = [row(number) for number in range(40)]
    for each in rows:
        timing = each["meta"]["timing"]
        each["meta"]["timing"] = {
            name: timing[name] for name in ("queue_s", "model_s", "tools_s", "verify_s", "total_s", "model_calls")
        }
    file.write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in rows))
    assert main(["profile", str(file), "--html"]) == 0
    assert "(rollouts=40)" in capsys.readouterr().out


def test_a_terminal_without_unicode_gets_ascii(file: Path):
    command = [sys.executable, "-m", "velodrome.cli.main", "profile", str(file)]
    done = subprocess.run(
        command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}, timeout=DEADLINE_S
    )
    assert (done.returncode, b"velo:" in done.stderr) == (0, False)
    report = profile_report(read_profile(file))
    assert [len(line) for line in done.stdout.decode("ascii").splitlines()] == [
        len(line) for line in report.splitlines()
    ]


def test_someone_who_waits_sees_what_goes_on_and_someone_who_does_not_sees_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    with reassured("reading r.jsonl"):
        pass
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(streams, "PATIENCE_S", 0.0)
    monkeypatch.setattr(streams, "EVERY_S", 0.01)
    until, seen = time.monotonic() + DEADLINE_S, ""
    with reassured("reading r.jsonl") as tell:
        tell("line 2 of 5")
        while "line" not in seen and time.monotonic() < until:
            seen += capsys.readouterr().err
            time.sleep(0.01)
    assert re.search(r"^reading r.jsonl: line 2 of 5, \d+ s so far\n", seen, re.MULTILINE)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "velo: there is no server to start: give +config_paths=[…] (see velo profile --help)\n"),
        (["+limt=2"], 'velo: command line: unknown key "limt"; did you mean "limit"?\n'),
        (["+config_paths=[gone.yaml]"], 'velo: command line: config_paths: no file "gone.yaml" in '),
    ],
)
def test_a_load_test_with_a_mistake_starts_nothing(
    argv: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert main(["profile", "--load-test", *argv]) == 2
    out, err = capsys.readouterr()
    assert (out, err.startswith(said), err.count("\n"), list(tmp_path.iterdir())) == ("", True, 1, [])
