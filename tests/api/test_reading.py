"""`velo.read`: rollouts one by one, filtered, and as tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import velodrome as velo

Write = Callable[..., Path]


def test_a_rollout_has_its_parts_by_name(rollouts: Write):
    [first, *_] = velo.read(rollouts())
    assert (first.key, first.reward, first.text) == ("t0/0", 1.0, "sunny")
    assert [message["role"] for message in first.messages] == ["assistant", "tool", "assistant"]
    assert first.usage["total_tokens"] == 15
    assert first.timing["model_s"] == 0.5
    assert (first.task.input, first.task["expected_answer"]) == ("The weather?", "sunny")
    assert [(call.name, call.arguments, call.output) for call in first.tool_calls] == [
        ("get_weather", {"city": "Bern"}, "sunny")
    ]
    assert first["score"] == first.row["score"] == 0
    assert first.get("nothing") is None


def test_rows_have_a_length_and_places(rollouts: Write):
    rows = velo.read(str(rollouts()))
    assert len(rows) == 4
    assert bool(rows)
    assert rows[1].key == rows[-3].key == "t0/1"
    assert [row.key for row in rows[1:3]] == ["t0/1", "t1/0"]
    with pytest.raises(IndexError):
        _ = rows[4]


def test_a_filter_is_the_viewers_and_filters_add_up(rollouts: Write):
    path = rollouts()
    with pytest.raises(velo.errors.InputError):
        velo.read(path, "reward<")
    assert [row.key for row in velo.read(path, "reward<1")] == ["t0/1"]
    assert [row.key for row in velo.read(path).where("reward>=1").where("score>1")] == ["t1/0", "t1/1"]


def test_lines_that_are_not_rollouts_are_skipped_and_counted_and_failures_are_those_beside_the_file(rollouts: Write):
    path = rollouts()
    assert velo.read(path).failures() == []
    path.write_bytes(path.read_bytes() + b"not JSON\n")
    path.with_name("rollouts.failures.jsonl").write_text('{"key": "t9/0", "error": "boom"}\n')
    rows = velo.read(path)
    assert (len(rows), [failure["key"] for failure in rows.failures()]) == (4, ["t9/0"])
    [note] = rows.notes
    assert f"{path}:5" in note


def test_several_files_are_one_run_and_every_mistake_in_them_is_reported(rollouts: Write, tmp_path: Path):
    first, second = rollouts(name="a.jsonl"), rollouts([0.0] * 6, name="b.jsonl")
    assert [row.reward for row in velo.read([first, second])] == [1.0, 0.0, 1.0, 1.0, 0.0, 0.0]  # a key counts once
    with pytest.raises(velo.errors.InputError) as caught:
        velo.read([tmp_path / "none.jsonl", tmp_path, first, first])
    assert len(caught.value.problems) == 3


def test_a_table_has_a_row_per_rollout_in_each_library(rollouts: Write):
    pytest.importorskip("pyarrow")
    rows = velo.read(rollouts())
    arrow = rows.to_arrow()
    assert arrow.column("reward").to_pylist() == [1.0, 0.0, 1.0, 1.0]
    assert arrow.column("score").to_pylist() == [0.0, 1.0, 2.0, 3.0]
    assert rows.where("reward<1").to_pandas()["key"].tolist() == ["t0/1"]
    assert rows.to_polars()["total_tokens"].sum() == 60


def test_a_task_is_a_dict_that_is_made_by_keyword():
    task = velo.Task("Hi", params={"temperature": 0}, expected_answer="x")
    assert task == {"responses_create_params": {"input": "Hi", "temperature": 0}, "expected_answer": "x"}
    assert (task.input, task.params["temperature"]) == ("Hi", 0)
