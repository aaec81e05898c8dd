"""`velo compare`: what is printed for two runs, and what is a mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from velodrome.cli.main import main
from velodrome.records.rollout import encode


def row(key: str, reward: float, **fields: Any) -> dict[str, Any]:
    request = f"Question {key.partition('/')[0]}"
    return {
        "responses_create_params": {"input": request},
        "output": [],
        "reward": reward,
        **fields,
        "meta": {"key": key},
    }


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_bytes(b"".join(map(encode, rows)))
    return path


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    a = write(tmp_path / "a.jsonl", *(row(f"t{n:02}/0", float(n < 4), kind=n % 2) for n in range(20)))
    b = write(tmp_path / "b.jsonl", *(row(f"t{n:02}/0", float(n != 3), kind=n % 2) for n in range(20)))
    return a, b


REPORT = """\
A  {a}: 20 rollouts, 0 failed
B  {b}: 20 rollouts, 0 failed
20 tasks in both, 0 only in A, 0 only in B

field     A     B  B - A  95% interval  tasks
reward  0.2  0.95  +0.75   [0.4925, 1]     20  *
pass@1  0.2  0.95  +0.75   [0.4925, 1]     20  *
* the interval does not reach zero

flipped: 16 tasks from fail to pass, 1 from pass to fail
task  prompt                A          B
t03   Question t03  1.00 of 1  0.00 of 1
t04   Question t04  0.00 of 1  1.00 of 1
"""


def test_the_report_has_both_runs_the_differences_the_flips_and_the_verdict_last(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
):
    a, b = runs
    assert main(["compare", str(a), str(b), "--fields", "reward"]) == 0
    out, err = capsys.readouterr()
    wanted = REPORT.format(a=a, b=b)
    assert (out[: len(wanted)], err) == (wanted, "")
    assert out.splitlines()[-3:] == [
        "and 7 more; --flips lists them",
        "",
        "B is better: reward +0.75 [0.493, 1] (95%, 20 tasks in both runs)",
    ]


def test_every_flip_is_listed_if_asked_for(runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]):
    assert main(["compare", *map(str, runs), "--flips"]) == 0
    out = capsys.readouterr().out
    assert out.count("Question t") == 17
    assert "more" not in out


def test_groups_are_told_each_with_its_verdict(runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]):
    assert main(["compare", *map(str, runs), "--by", "kind"]) == 0
    out = capsys.readouterr().out
    assert "\nkind 0: B is better: reward +0.8 [" in out
    assert "\nkind 1: B is better: reward +0.7 [" in out


def test_json_is_what_the_library_gives_and_sides_may_have_several_files(
    runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    more = write(tmp_path / "more.jsonl", row("t99/0", 1.0))
    assert main(["compare", "--a", str(runs[0]), str(more), "--b", str(runs[1]), "--json", "--ci", "0"]) == 0
    result = orjson.loads(capsys.readouterr().out)
    assert result["files"] == {"a": [str(runs[0]), str(more)], "b": [str(runs[1])]}
    assert result["tasks"] == {"both": 20, "only_a": 1, "only_b": 0}
    assert result["verdict"] == "reward +0.75, 20 tasks in both runs; whether that is chance was not asked (--ci 0)"


@pytest.mark.parametrize(
    "words", [[], ["a.jsonl"], ["a.jsonl", "b.jsonl", "c.jsonl"], ["--a", "x"], ["x", "y", "--a", "z"]]
)
def test_anything_but_two_runs_is_a_mistake(words: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(["compare", *words]) == 2
    assert capsys.readouterr() == (
        "",
        "velo: give two files, or --a and --b with the files of each run (see velo compare --help)\n",
    )


def test_files_that_are_not_there_are_all_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    names = [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]
    assert main(["compare", *names]) == 2
    assert capsys.readouterr().err == "".join(f"velo: {name}: no such file\n" for name in names)


def test_a_single_task_is_no_group_to_compare(runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]):
    assert main(["compare", *map(str, runs), "--by", "task"]) == 2
    assert "by: " in capsys.readouterr().err
