"""Budgets of `make bench`: a miss is shown, one that load does not explain is an exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.summary import Check, concluded


@pytest.mark.parametrize(
    ("value", "least", "outcome", "code", "code_checked"),
    [
        (10.0, False, "ok", 0, 0),
        (19.0, False, "MISSED", 0, 1),
        (21.0, False, "MISSED BY FAR", 1, 1),
        (6.0, True, "MISSED", 0, 1),
        (4.0, True, "MISSED BY FAR", 1, 1),
    ],
)
def test_a_budget_missed_by_far_is_an_exit_code_and_any_miss_is_one_with_check(
    tmp_path: Path, value: float, least: bool, outcome: str, code: int, code_checked: int
):
    checks = [Check("fine", 1.0, 2.0), Check("this", value, 10.0, "s", least=least)]
    assert checks[1].cells()[-1] == outcome
    assert concluded({}, checks, json=tmp_path / "out.json", check=False) == code
    assert concluded({}, checks, json=None, check=True) == code_checked
    assert [each["far"] for each in json.loads((tmp_path / "out.json").read_text())["checks"]] == [False, code == 1]
