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


def test_without_a_flag_the_numbers_are_those_the_collection_printed(file: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["metrics", str(file)]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == (orjson.dumps(read_metrics(file)[0], option=orjson.OPT_INDENT_2).decode() + "\n", "")


def test_several_files_without_a_flag_are_one_run(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    other = write(tmp_path / "s.jsonl", row("t0/0", 0.0), row("new/0", 0.0))
    assert main(["metrics", str(file), str(other)]) == 0
    out, err = capsys.readouterr()
    result = orjson.loads(out)
    assert (result["rollouts/kept"], result["reward"]) == (13, 9 / 13)
    assert err == (
        f"{other}: 1 of its 2 rollouts have keys that an earlier file has; each key is counted once, from the file "
        "named first (velo compare sets two runs side by side)\n"
    )


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
    assert out.endswith(
        "\n\n-: too few tasks for an interval; it takes 10 tasks for shares and rates, "
        "20 for other numbers with 10 off the most usual one\n"
    )


def test_json_has_everything(file: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["metrics", str(file), "--json", "--by", "agent", "--k", "2", "--pass-at", "0.5"]) == 0
    result = orjson.loads(capsys.readouterr().out)
    assert {name: result[name] for name in ("files", "pass_at", "level", "by", "notes")} == {
        "files": [str(file)],
        "pass_at": 0.5,
        "level": 0.95,
        "by": "agent",
        "notes": [],
    }
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


def test_names_from_a_file_can_do_nothing_to_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = write(tmp_path / "r.jsonl", row("a/0", kind="\x1b[31mred\nline"), row("b/0", kind="x" * 500))
    assert main(["metrics", str(path), "--by", "kind"]) == 0
    out = capsys.readouterr().out
    assert "\\x1b[31mred\\nline" in out
    assert max(map(len, out.splitlines())) < 200


def test_every_file_that_cannot_be_read_is_named(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    failures = write(tmp_path / "r.failures.jsonl")
    words = [str(file), str(file), str(tmp_path / "none.jsonl"), str(tmp_path), str(failures)]
    assert main(["metrics", *words]) == 2
    assert capsys.readouterr().err == (
        f"velo: {tmp_path / 'none.jsonl'}: no such file\n"
        f"velo: {tmp_path}: not a regular file\n"
        f"velo: {failures}: a failures file; give the rollouts file beside it\n"
        f"velo: {file}: named twice\n"
    )


def test_a_field_that_no_row_has_is_a_mistake(file: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["metrics", str(file), "--by", "dificulty"]) == 2
    assert capsys.readouterr().err == (
        "velo: by=dificulty: no rollout has it; give agent, task, status, or a field of the rows as in info.level\n"
    )


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


def test_a_huge_number_is_short_in_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = write(tmp_path / "r.jsonl", row("a/0", 1e308))
    assert main(["metrics", str(path), "--table", "--fields", "reward", "--ci", "0"]) == 0
    assert capsys.readouterr().out == (
        "1 rollout of 1 task, 0 failed; passed is a reward of 1 or more\n\n"
        "field   n    mean  interval  std     min  median     max\n"
        "reward  1  1e+308         -    -  1e+308  1e+308  1e+308\n\n"
        "rate    tasks  value  interval\n"
        "pass@1      1      1         -\n"
    )


def test_what_is_left_out_of_several_files_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    one, two = write(tmp_path / "a.jsonl", row("a/0", "high")), write(tmp_path / "b.jsonl", row("b/0"))
    assert main(["metrics", str(one), str(two)]) == 0
    out, err = capsys.readouterr()
    assert (orjson.loads(out)["rollouts/kept"], orjson.loads(out)["reward"]) == (2, 1.0)
    assert err == "reward: 1 of 2 rollouts have it in a wrong type; they are counted without it\n"


def test_a_name_that_would_turn_the_line_around_is_an_escape_on_the_terminal_and_itself_to_a_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    name = "re\u202eward\u200b\U000e0041\x7f"
    main(["metrics", str(write(tmp_path / "r.jsonl", row("a/0") | {name: 0.5}))])
    out = capsys.readouterr().out
    assert "\\u202eward\\u200b\\udb40\\udc41\\u007f" in out
    assert out.isascii()
    assert orjson.loads(out)[name] == 0.5
