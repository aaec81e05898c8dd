"""What the checks find does not depend on the order of rows; only the examples do, which are the first lines."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import velodrome.checks.thresholds as at
from tests.support.planted import Row, Rows, clean, names, write
from velodrome.checks import run_checks

ORDERS = 2


def findings(path: Path, rows: Rows, failures: Rows = ()) -> list[str]:
    """The names of what is found, after it was found to be the same in every order."""
    chance = random.Random(1)
    rows, failures = list(rows), list(failures)
    first: Any = None
    for _ in range(ORDERS):
        results = run_checks(write(path, rows, failures))
        reports = [{**each.as_json(), "examples": len(each.examples), "files": []} for each in results]
        first = first or (reports, names(results))
        assert reports == first[0]
        chance.shuffle(rows)
        chance.shuffle(failures)
    result: list[str] = first[1]
    return result


def test_most_repeats_are_compared_whichever_comes_first(tmp_path: Path):
    rows = clean(400)
    for index, row in enumerate(rows):
        if index % 4:  # three of four say the same, the first another thing
            row["output"] = rows[index - index % 4 + 1]["output"]
    assert findings(tmp_path / "r.jsonl", rows) == ["same-answers"]


def test_a_task_with_several_contents_counts_by_its_lowest_repeat(tmp_path: Path):
    rows = clean(400)
    for row in rows[::3]:
        row["responses_create_params"], row["expected_answer"] = rows[0]["responses_create_params"], "0"
    assert "duplicate-tasks" in findings(tmp_path / "r.jsonl", rows)


def test_sums_of_rewards_and_times_are_the_same_in_any_order(tmp_path: Path):
    rows, chance = clean(400), random.Random(3)
    for row in rows:
        length = sum(len(message.get("content") or "") for message in row["output"])
        row["reward"] = length * 10.0 ** chance.choice((-3, -3, -20))
        row["meta"]["timing"] |= {"verify_s": chance.uniform(1, 9), "model_s": chance.choice((1e-9, 4.9, 1e6 / 3))}
    rows[7]["reward"] = rows[8]["reward"] = -0.0
    findings(tmp_path / "r.jsonl", rows)
    for row in rows:
        row["reward"], row["meta"]["timing"]["model_s"] = chance.choice((0.0, -0.0)), 1e-9 * chance.random()
    assert {"all-zero", "slow-verification"} <= {*findings(tmp_path / "r.jsonl", rows)}


def test_of_too_many_names_and_tasks_the_same_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name, most in (("MOST_TASKS", 60), ("MOST_TOOLS", 5), ("MOST_NAMES", 5), ("MOST_FAILED", 40)):
        monkeypatch.setattr(at, name, most)
    rows: list[Row] = clean(800)
    for number, row in enumerate(rows):
        row["output"][0]["tool_calls"][0]["name"] = f"made_up_{number * 7 % 30}"
        row["output"][1] |= {"name": f"tool_{number % 12}", "content": "error: the index is not there"}
        row["score"] = 1.0
        row["reward"] = float(number % 400 < 100)
    odd: Rows = []
    for number, row in enumerate(rows[:100]):
        line = write(tmp_path / "one.jsonl", [row]).read_bytes()
        odd.append(line.replace(b'"score":1.0', f'"score_{number * 7 % 30}":NaN'.encode()))
    failures = [
        {"key": f"f{number % 300}/0", "boundary": "model", "error": f"{'ab'[number % 2]}: status {number % 500}"}
        for number in range(600)
    ]
    kinds = findings(tmp_path / "r.jsonl", [*odd, *rows[100:], b"{\n", b"[1]\n", b"5\n"], failures)
    assert {"failing-tools", "unknown-tools", "not-finite", "never-passes", "failures", "unreadable-lines"} <= {*kinds}
