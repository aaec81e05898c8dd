"""`velo check` as a user types it: the table, the JSON, the exit code, and mistakes of one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.planted import clean, findings_of, truncated, twice, uncounted, write
from velodrome.checks import run_checks
from velodrome.cli.main import main

TABLE = """\
{path}: 206 rollouts, 1 failed: 1 error, 1 warning, 2 notes

error    duplicate-keys   6 of 206 rollouts (2.9%) have a key that was there before
                          lines 201, 202, 203, 204, 205, …
                          two collections or a copy were joined; keep one line of each key, or metrics count these twice

warning  truncated        15 of 206 answers (7.3%) are cut off by the token limit
                          lines 11, 12, 13, 14, 15, …
                          raise max_output_tokens, or ask for shorter answers; a cut answer is scored as a wrong one

info     failures         1 of 207 rollouts (0.5%) failed, most often (1): model: 500
                          velo show reads the failures file; the same velo collect command tries them again

info     no-token-counts  4 of 206 rollouts (1.9%) have no token counts
                          lines 1, 2, 3, 4
                          the model server returns no usage; token metrics and max_total_tokens miss these rollouts
"""


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    rows = clean()
    twice(rows)
    del rows[-1]
    truncated(rows)
    for row in rows[200:]:
        row["usage"] = {"total_tokens": 9}
    copies = [dict(row) for row in rows]
    uncounted(copies)
    return write(tmp_path / "r.jsonl", copies, [{"key": "z/0", "boundary": "model", "error": "500"}])


def check(capsys: pytest.CaptureFixture[str], *words: Any) -> tuple[int, str, str]:
    code = main(["check", *map(str, words)])
    return code, *capsys.readouterr()


def test_the_findings_are_a_table_with_the_worst_first(
    broken: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "200")
    assert check(capsys, broken) == (3, TABLE.format(path=broken), "")


def test_json_has_everything_and_nothing_else(broken: Path, capsys: pytest.CaptureFixture[str]):
    code, out, err = check(capsys, broken, "--json")
    assert (code, err) == (3, "")
    assert orjson.loads(out) == {
        "files": [str(broken)],
        "rollouts": 206,
        "failed": 1,
        "worst": "error",
        "findings": [finding.as_json() for finding in run_checks(broken)],
    }


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], 3),
        (["--fail-on", "never"], 0),
        (["--skip", "duplicate-keys"], 0),
        (["--skip", "duplicate-keys,truncated", "--fail-on", "warning"], 0),
        (["--skip", "duplicate-keys", "--skip", "truncated", "--fail-on=info"], 3),
        (["--only", "no-token-counts", "--fail-on", "warning"], 0),
        (["--only", "all-zero, all-one", "--fail-on", "info"], 0),
    ],
)
def test_the_exit_code_is_by_severity(broken: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int):
    assert check(capsys, broken, *words)[0] == code


def test_what_a_model_made_up_can_do_nothing_to_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    rows = clean(40)
    for row in rows[:3]:
        row["output"][0]["tool_calls"][0]["name"] = "a\x1b[2Jb\u202ec"
    code, out, _ = check(capsys, write(tmp_path / "r.jsonl", rows))
    assert (code, "\x1b" in out, "\u202e" in out) == (0, False, False)
    assert names_in(out) == [finding.name for finding in findings_of(rows)] == ["unknown-tools"]


def names_in(out: str) -> list[str]:
    return [line.split()[1] for line in out.splitlines() if line.startswith(("error ", "warning ", "info "))]
