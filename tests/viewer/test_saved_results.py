"""What a collection left beside its rollouts is shown only if it is of these rollouts, whatever the times say."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
from made_runs import make_run, rollout, write
from viewing import viewing, wait_for

from velodrome.index import Index
from velodrome.profiling.profile_file import read_profile
from velodrome.stats.metrics import read_metrics
from velodrome.viewer.saved_results import saved_result

Json = dict[str, Any]


def save(run: Path, kind: str, value: Any) -> None:
    run.with_name(f"baseline.{kind}.json").write_bytes(value if isinstance(value, bytes) else orjson.dumps(value))


def left_profile(run: Path) -> Json:
    value = read_profile(run)
    value["tree"][0]["name"] = "Left Here"
    return value


def test_numbers_that_are_of_these_rollouts_are_used(run: Path):
    save(run, "metrics", read_metrics(run)[0] | {"left_here": 4242})
    save(run, "profile", left_profile(run))
    with viewing(run) as client:
        page = wait_for(client, "/run/baseline", "Left Here")
        assert "left_here 4,242" in wait_for(client, "/run/baseline", "tokens_per_s").words
        with run.open("ab") as stream:
            stream.write(orjson.dumps(rollout(77, 0, Random(5))) + b"\n")
    with viewing(run) as client:
        assert "left_here" not in wait_for(client, "/run/baseline", "tokens_per_s").words
    assert "Rollout Total" not in page.words


@pytest.mark.parametrize("change", ["fewer", "other rewards", "other times"])
def test_another_file_put_in_its_place_with_an_older_time_is_measured(run: Path, tmp_path: Path, change: str):
    save(run, "metrics", read_metrics(run)[0] | {"left_here": 4242})
    save(run, "profile", left_profile(run))
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


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    """The index of a run; what is saved beside it is overwritten by each test."""
    with closing(Index(make_run(tmp_path_factory.mktemp("saved") / "baseline.jsonl"))) as index:
        index.refresh()
        yield index


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("profile", {"tree": 5, "verdict": [], "series": 1}),
        ("profile", {"tree": [{"name": "x"}]}),
        ("profile", {"verdict": {"paragraph": 7}}),
        ("profile", {"slowest": [{"line": 2**63, "total_s": 1.0}]}),
        ("profile", {"rows": 1e308}),
        ("metrics", {"pass@2": 1e308}),
        ("metrics", {"tokens/total": "many"}),
        ("metrics", {"avg_tool_calls": None}),
        *((kind, text) for kind in ("metrics", "profile") for text in (b"", b"[]", b"{", b"\xff\xfe", b"null")),
    ],
    ids=str,
)
def test_what_has_another_shape_is_not_used(index: Index, kind: str, wrong: Json | bytes):
    run = index.rollouts
    right = read_profile(run) if kind == "profile" else read_metrics(run)[0]
    save(run, kind, right)
    assert saved_result(kind, run, index) is not None
    save(run, kind, wrong if isinstance(wrong, bytes) else right | wrong)
    assert saved_result(kind, run, index) is None
