"""Checks as a field: a filter lists exactly the rollouts that a finding is about, from Python and in exports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import velodrome
from tests.support.planted import PLANTS, Plant, Rows, clean, write
from velodrome.checks import read_checks
from velodrome.errors import InputError
from velodrome.index import FAILED, Index, Query
from velodrome.index.check_field import as_json, file_checks

ABOUT_NO_ROLLOUT = {"reward-length", "unreadable-lines", "no-rollouts"}
ABOUT_TASKS = {"never-passes", "always-passes", "same-answers", "duplicate-tasks"}


def indexed(path: Path) -> Callable[[str], list[int]]:
    """The numbers of the rollouts that match a filter."""
    index = Index(path, outside=[file_checks(path)])
    index.refresh()
    return lambda where: [entry.number for entry in index.select(Query.parse(where, index.names()))]


@pytest.mark.parametrize("plant", PLANTS, ids=[name for name, *_ in PLANTS])
def test_a_check_lists_the_rollouts_that_it_counts(
    tmp_path: Path, plant: tuple[str, str, Plant, int, list[int], set[str]]
):
    name, _, spoil, *_ = plant
    rows: Rows = clean()
    spoil(rows)
    path = write(tmp_path / "r.jsonl", rows)
    findings = read_checks(path, keeps_lines=True).findings()
    assert findings == read_checks(path).findings()  # but for the lines
    own = [each for each in findings if each.name == name]
    lines = {line for each in own for line in each.lines}
    listed = [each for each in as_json(findings) if each["where"]]
    matching = indexed(path)
    assert matching(f"check={name}") == sorted(lines)
    assert [each["rollouts"] for each in listed] == [len(matching(each["where"])) for each in listed]
    if name in ABOUT_NO_ROLLOUT:
        assert not lines
    else:
        assert {line for each in own for line in each.examples} <= lines
        assert name in ABOUT_TASKS | {"failing-tools"} or len(lines) == sum(each.count for each in own)


def test_failures_are_listed_by_the_last_attempt_of_each_key(tmp_path: Path):
    failures = [{"key": key, "boundary": "model", "error": "gone"} for key in ("x/0", "y/0", "x/0", "t0/0")]
    path = write(tmp_path / "r.jsonl", clean(20), failures)
    matching = indexed(path)
    assert matching("check:failures") == matching("state:failed") == [FAILED + 2, FAILED + 3]
    assert matching("-check:* state:kept") == [*range(1, 21)]


def test_a_check_that_does_not_exist_is_named_with_the_nearest_and_a_changed_file_is_checked_again(tmp_path: Path):
    rows: Rows = clean(20)
    path = write(tmp_path / "r.jsonl", rows)
    index = Index(path, outside=[file_checks(path)])
    index.refresh()
    with pytest.raises(InputError, match='at 1: no check "repetiton"; did you mean "repet'):
        index.count(Query.parse("check:repetiton"))
    assert index.count(Query.parse("check:duplicate-keys")) == 0
    write(path, [*rows, rows[3]])
    index.refresh()
    assert index.count(Query.parse("check:duplicate-keys")) == 1


def test_exports_and_rows_of_python_are_filtered_by_checks(tmp_path: Path):
    rows: Rows = clean(40)
    path = write(tmp_path / "r.jsonl", [*rows, *rows[:6]])
    kept = velodrome.read(path).where("-check:duplicate-keys")
    assert [rollout.key for rollout in kept] == [row["meta"]["key"] for row in rows]
    result = velodrome.export("nemo_gym", path, tmp_path / "out.jsonl", where="-check:duplicate-keys")
    assert (result.rollouts, result.chosen) == (46, 40)
    with pytest.raises(InputError, match="no check"):
        velodrome.export("nemo_gym", path, tmp_path / "other.jsonl", where="-check:duplicates-of-keys")
