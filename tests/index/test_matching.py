"""The filter from Python: lines of a file, by number."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from index_rows import failure, rollout, write

from velodrome.errors import InputError
from velodrome.index import matching_lines


def test_lines_that_match_come_in_order_without_failures(tmp_path: Path):
    rows = [rollout("a", repeat, reward=float(repeat % 2), tools=repeat) for repeat in range(6)]
    path = write(tmp_path / "r.jsonl", rows)
    write(tmp_path / "r.failures.jsonl", [failure("b")])
    matches = list(matching_lines(path, "reward<1 tools>=2", sort="-tools"))
    assert [(number, orjson.loads(line)) for number, line in matches] == [(5, rows[4]), (3, rows[2])]
    assert [number for number, _ in matching_lines(path, "")] == [1, 2, 3, 4, 5, 6]
    with pytest.raises(InputError, match=r'"rewrd".*"reward"'):
        next(matching_lines(path, "rewrd<1"))


def test_rollouts_are_found_by_why_they_were_stopped_early(tmp_path: Path):
    stopped = {"status": "incomplete", "metadata": {"stop": "max_steps"}}
    cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    rows = [rollout("a"), rollout("b", response=stopped), rollout("c", response=cut)]
    path = write(tmp_path / "r.jsonl", rows)
    for filter_, lines in {
        "stop:max_steps": [2],
        "stop:max": [2, 3],
        "-stop:max": [1],
        "stop!=max_steps": [1, 3],
        "outcome:steps": [2],
        "outcome=finished": [1],
        "outcome!=finished": [2, 3],
    }.items():
        assert [number for number, _ in matching_lines(path, filter_)] == lines
