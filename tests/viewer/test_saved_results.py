"""What a collection left beside its rollouts is shown only if it is of these rollouts, whatever the times say."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest
from made_runs import make_run, write
from viewing import viewing, wait_for

from velodrome.profiling.profile_file import read_profile
from velodrome.stats.metrics import read_metrics

Json = dict[str, Any]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "baseline.jsonl")


def leave(run: Path, kind: str, told: Any) -> None:
    run.with_name(f"baseline.{kind}.json").write_bytes(told if isinstance(told, bytes) else orjson.dumps(told))


def left_profile(run: Path) -> Json:
    told = read_profile(run)
    told["tree"][0]["name"] = "Left Here"
    return told


def test_numbers_that_are_of_these_rollouts_are_used(run: Path):
    leave(run, "metrics", read_metrics(run)[0] | {"left_here": 4242})
    leave(run, "profile", left_profile(run))
    with viewing(run) as client:
        page = wait_for(client, "/run/baseline", "Left Here")
        assert "left_here 4,242" in wait_for(client, "/run/baseline", "pass@4").words
    assert "Rollout Total" not in page.words


@pytest.mark.parametrize("change", ["fewer", "other rewards", "other times"])
def test_another_file_put_in_its_place_with_an_older_time_is_measured(run: Path, tmp_path: Path, change: str):
    leave(run, "metrics", read_metrics(run)[0] | {"left_here": 4242})
    leave(run, "profile", left_profile(run))
    rows = [orjson.loads(line) for line in run.read_bytes().splitlines()]
    if change == "fewer":
        rows = rows[:-1]
    for row in rows:
        if change == "other rewards":
            row["reward"] = 0.25
        row["meta"]["timing"]["total_s"] += 0.5
    other = write(tmp_path / "other.jsonl", rows)
    os.utime(other, (1.0, 1.0))
    shutil.copy2(other, run)
    with viewing(run) as client:
        words = wait_for(client, "/run/baseline", "Rollout Total").words
        metrics = wait_for(client, "/run/baseline", "tokens_per_s" if change == "fewer" else "kept").words
    assert "Left Here" not in words
    if change != "other times":
        assert "left_here" not in metrics


WRONG_PROFILES: list[Json] = [
    {"tree": 5, "verdict": [], "series": 1},
    {"tree": [], "verdict": "x"},
    {"tree": [5]},
    {"tree": [{"name": "x"}]},
    {"verdict": {"paragraph": 7}},
    {"slowest": [{"line": "1", "total_s": {}}]},
    {"slowest": [{"line": 2**63, "total_s": 1.0}]},
    {"rollouts": "many"},
    {"rows": 1e308},
]


@pytest.mark.parametrize("wrong", WRONG_PROFILES, ids=str)
def test_a_profile_of_another_shape_is_measured_instead(run: Path, wrong: Json):
    leave(run, "profile", left_profile(run) | wrong)
    with viewing(run) as client:
        assert "Left Here" not in wait_for(client, "/run/baseline", "Rollout Total").words


@pytest.mark.parametrize(
    "wrong",
    [{"pass@2": 1e308}, {"pass@2": -1}, {"tokens/total": "many"}, {"reward": [1]}, {"avg_tool_calls": None}],
    ids=str,
)
def test_metrics_of_another_shape_are_measured_instead(run: Path, wrong: Json):
    leave(run, "metrics", read_metrics(run)[0] | {"left_here": 4242} | wrong)
    with viewing(run) as client:
        words = wait_for(client, "/run/baseline", "pass@4").words
    assert "left_here" not in words
    assert "inf" not in words.split("Metrics")[1]


@pytest.mark.parametrize("told", [b"", b"[]", b"5", b"{", b"\xff\xfe", b"null"])
def test_what_is_no_json_object_is_measured_instead(run: Path, told: bytes):
    leave(run, "metrics", told)
    leave(run, "profile", told)
    with viewing(run) as client:
        wait_for(client, "/run/baseline", "pass@4")
        wait_for(client, "/run/baseline", "Rollout Total")
