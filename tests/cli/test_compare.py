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

settings: not compared, a run has no run file beside it

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
    assert out.splitlines()[-1].startswith("B is better: reward +0.75 [")
    assert main(["compare", str(a), str(b), "--by", "kind"]) == 0
    verdicts = [line.partition(" [")[0] for line in capsys.readouterr().out.splitlines() if "is better" in line]
    assert verdicts[:2] == ["kind 0: B is better: reward +0.8", "kind 1: B is better: reward +0.7"]


@pytest.mark.parametrize(
    "words", [["a.jsonl"], ["a.jsonl", "b.jsonl", "c.jsonl"], ["--a", "x"], ["x", "y", "--a", "z"]]
)
def test_anything_but_two_runs_is_a_mistake(words: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(["compare", *words]) == 2
    assert "--a and --b" in capsys.readouterr().err


def test_json_is_what_the_library_gives_and_sides_may_have_several_files(
    runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    more = write(tmp_path / "more.jsonl", row("t99/0", 1.0))
    assert main(["compare", "--a", str(runs[0]), str(more), "--b", str(runs[1]), "--json", "--ci", "0"]) == 0
    result = orjson.loads(capsys.readouterr().out)
    assert result["files"] == {"a": [str(runs[0]), str(more)], "b": [str(runs[1])]}
    assert result["tasks"] == {"both": 20, "only_a": 1, "only_b": 0}
    assert result["verdict"] == "reward +0.75, 20 tasks in both runs; whether that is chance was not asked (--ci 0)"


def run_file(path: Path, temperature: float, **settings: Any) -> None:
    recipe = {"instances": {"m": {"settings": settings}}, "responses_create_params": {"temperature": temperature}}
    record = {"recipe": recipe, "runs": [{"repeats": 1, "finished_at": temperature}], "versions": {"python": "3.12"}}
    path.with_suffix(".run.json").write_bytes(orjson.dumps(record))


def test_the_settings_that_differ_come_before_the_numbers(runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]):
    a, b = runs
    run_file(a, 0.1, model="small")
    run_file(b, 1.2, model="small", answers=["x"] * 100)
    assert main(["compare", str(a), str(b)]) == 0
    out = capsys.readouterr().out
    lines = [line.split() for line in out[: out.index("field ")].splitlines()[4:] if line]
    assert lines[:2] == [["setting", "A", "B"], ["responses_create_params.temperature", "0.1", "1.2"]]
    assert lines[2:] == [["m.settings.answers", "-", lines[2][2]]]
    assert main(["compare", str(a), str(b), "--json"]) == 0
    settings = orjson.loads(capsys.readouterr().out)["settings"]
    assert settings[0] == {"name": "responses_create_params.temperature", "a": 0.1, "b": 1.2}
    run_file(b, 0.1, model="small")
    assert main(["compare", str(a), str(b)]) == 0
    assert "settings: the run files say the same" in capsys.readouterr().out
    b.with_suffix(".run.json").write_text("[1")  # as good as none
    assert main(["compare", str(a), str(b)]) == 0
    assert "settings: not compared" in capsys.readouterr().out
