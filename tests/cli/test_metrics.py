"""`velo metrics`: without a flag as it always was; with one a table, JSON or CSV; mistakes are one line."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import orjson
import pytest

from velodrome.cli.main import main
from velodrome.records.rollout import encode
from velodrome.stats.metrics import read_metrics


def row(key: str, reward: float | None = 1.0, **fields: Any) -> dict[str, Any]:
    return {
        "responses_create_params": {"input": "?"},
        "output": [],
        "response": {"content": "It is 36."},
        "reward": reward,
        **fields,
        "meta": {"key": key, "agent": "solver"},
    }


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_bytes(b"".join(map(encode, rows)))
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rows = [row(f"t{task}/{n}", float(task < 3 or n == 0), level=task % 2) for task in range(6) for n in range(2)]
    return write(tmp_path / "r.jsonl", *rows)


def test_several_files_without_a_flag_are_one_run(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    other = write(tmp_path / "s.jsonl", row("t0/0", 0.0), row("new/0", 0.0))
    assert main(["metrics", str(file), str(other)]) == 0
    out, err = capsys.readouterr()
    result = orjson.loads(out)
    assert (result["rollouts/kept"], result["reward"]) == (13, 9 / 13)
    assert (err.count("\n"), f"{other}: 1 of its 2 rollouts" in err) == (1, True)
    assert main(["metrics", str(file), str(file), str(tmp_path / "none.jsonl")]) == 2
    assert [line.split(": ")[1] for line in capsys.readouterr().err.splitlines()] == [
        str(tmp_path / "none.jsonl"),
        str(file),
    ]


TABLE = """\
12 rollouts of 6 tasks, 0 failed; passed is a reward of 1 or more

field    n  mean  95% interval     std  min  median  max
reward  12  0.75             -  0.4523    0       1    1
level   12   0.5             -  0.5222    0       1    1

rate        tasks  value  95% interval
pass@1          6   0.75             -
pass@2          6      1             -
pass^2          6    0.5             -
majority@2      6   0.75             -

by level

level  rollouts  tasks  reward  95% interval     std  min  median  max  pass@1  pass@2
0             6      3  0.8333             -  0.4082    0       1    1  0.8333       1
1             6      3  0.6667             -  0.5164    0       1    1  0.6667       1
"""


def test_a_table_has_the_run_and_a_line_for_each_group(file: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["metrics", str(file), "--by", "level", "--fields", "level"]) == 0
    out, err = capsys.readouterr()
    assert (out.partition("\nlevel\n")[0], err) == (TABLE, "")


def test_json_has_everything(file: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["metrics", str(file), "--json", "--by", "agent", "--k", "2", "--pass-at", "0.5"]) == 0
    result = orjson.loads(capsys.readouterr().out)
    assert (result["files"], result["pass_at"], result["level"], result["by"]) == ([str(file)], 0.5, 0.95, "agent")
    assert list(result["run"]["rates"]) == ["pass@2", "pass^2", "majority@2"]
    assert result["metrics"] == read_metrics(file)[0]
    assert [group["group"] for group in result["groups"]] == ["solver"]
    assert result["groups"][0]["fields"] == result["run"]["fields"]


def test_csv_has_a_line_for_each_number_of_each_group(file: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["metrics", str(file), "--csv", "--by", "level", "--fields", "reward", "--ci", "0", "--k", "1"]) == 0
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(line["group"], line["metric"], line["n"], line["mean"], line["median"]) for line in lines] == [
        ("", "reward", "12", "0.75", "1.0"),
        ("", "pass@1", "6", "0.75", ""),
        ("0", "reward", "6", "0.8333333333333334", "1.0"),
        ("0", "pass@1", "3", "0.8333333333333334", ""),
        ("1", "reward", "6", "0.6666666666666666", "1.0"),
        ("1", "pass@1", "3", "0.6666666666666666", ""),
    ]


def test_names_from_a_file_do_nothing_to_a_spreadsheet_or_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    kinds = ["=1+1", "+1+1", "-1", "-x", "@x", " =x", "a\x1b[2J\r\nb", "\u202ex", "plain", "a,b"]
    path = write(tmp_path / "r.jsonl", *(row(f"t{at}/0", kind=kind, **{"=y": 1}) for at, kind in enumerate(kinds)))
    assert main(["metrics", str(path), "--csv", "--by", "kind", "--fields", "=y", "--ci", "0", "--k", "1"]) == 0
    out = capsys.readouterr().out
    lines = list(csv.DictReader(io.StringIO(out)))
    shown = ["-1", "' =x", "'+1+1", "'-x", "'=1+1", "'@x", r"a\x1b[2J\r\nb", "a,b", "plain", r"\u202ex"]
    assert list(dict.fromkeys(line["group"] for line in lines)) == ["", *shown]
    assert {line["metric"] for line in lines} == {"reward", "'=y", "pass@1"}
    assert out.replace("\n", "").isprintable()
    for words in ([], ["--by", "kind"]):
        assert main(["metrics", str(path), *words]) == 0
        assert capsys.readouterr().out.replace("\n", "").isprintable()
