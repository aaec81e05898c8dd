"""What is reported of many rollouts: tasks, failures by kind, histograms."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.support.index_rows import OpenIndex, both_ways, failure, rollout, write
from velodrome.index import FAILED, Query, Sort, TaskSummary

PROMPT = "What is 15% of 240?"  # of every row that is made here


def test_a_task_counts_its_rollouts_and_those_that_passed(index_of: OpenIndex):
    rows = [rollout("a", repeat, reward=reward) for repeat, reward in enumerate((0.0, 0.5, 1.0, 2.0))]
    rows += [rollout("b", 0, reward=None, meta={"verification": "deferred"}), rollout("c", 0, reward=0.0)]
    index = index_of(rows, [failure("a", 4), failure("d", 0), failure("d", 1)])
    assert index.tasks(Sort()).entries == (
        TaskSummary("a", 4, 1, 4, 2, 0.5, 0.875, PROMPT),
        TaskSummary("b", 1, 0, 0, 0, None, None, PROMPT),
        TaskSummary("c", 1, 0, 1, 0, 0.0, 0.0, PROMPT),
        TaskSummary("d", 0, 2, 0, 0, None, None),
    )
    assert (index.state.deferred, index.state.failed, index.state.entries) == (1, 3, 9)
    assert [entry.state for entry in index.repeats("a").entries] == ["kept", "kept", "kept", "kept", "failed"]


def test_tasks_are_sorted_and_paged(index_of: OpenIndex):
    index = index_of(
        [rollout(f"t{task}", repeat, reward=float(repeat < task % 4)) for task in range(20) for repeat in range(3)]
    )
    for sort in ("-pass_rate", "-number", "mean_reward"):
        order = Sort.parse(sort)
        forward, backward = both_ways(partial(index.tasks, order, limit=7))
        assert forward == backward == list(index.tasks(order, limit=1000).entries)
        values = [int(task.task[1:]) if order.field == "number" else getattr(task, order.field) for task in forward]
        assert (len(values), values) == (20, sorted(values, reverse=order.descending))


def test_failures_alike_but_for_numbers_and_ids_are_one_kind(index_of: OpenIndex):
    url = "POST http://127.0.0.1:{port}/v1/responses"
    lost = [
        failure("a", 0, error=url.format(port=8001) + ": 401 (request req_1f3a9b)"),
        failure("b", 0, error=url.format(port=8155) + ": 401 (request req_77ffee)"),
        failure("c", 0, error="no answer within 30.5 s", boundary="tool"),
        failure("d", 0, error=url.format(port=1) + ": 401 (request 0xdeadbeef)", boundary="model"),
        failure("e", 0, error=None, boundary=None),
        failure("f", 0, error="429 Too Many Requests after 450 s"),
    ]
    index = index_of([], lost)
    assert [(group.boundary, group.pattern, group.count) for group in index.failures()] == [
        ("model", "POST http://#:#/v1/responses: # (request #)", 3),
        ("?", "", 1),
        ("model", "429 Too Many Requests after # s", 1),
        ("tool", "no answer within # s", 1),
    ]
    assert index.failures()[0].example == "model: POST http://127.0.0.1:8001/v1/responses: 401 (request req_1f3a9b)"
    assert index.failures()[0].numbers == (FAILED + 1, FAILED + 2, FAILED + 4)
    assert [entry.error for entry in index.repeats("c").entries] == ["tool: no answer within 30.5 s"]


def test_a_key_that_was_tried_again_is_listed_once(tmp_path: Path, index_of: OpenIndex):
    lost = [failure("a", error="first"), failure("a", error="second"), failure("b", error="third")]
    index = index_of([rollout("c", 0)], lost)
    failed = [(entry.key, entry.error) for entry in index.page(Query.parse("state:failed"), Sort()).entries]
    assert failed == [("a/0", "model: second"), ("b/0", "model: third")]
    write(index.rollouts, [rollout("a", 0, reward=1.0)], "ab")
    state = index.refresh()
    assert (state.rows, state.failed) == (2, 1)
    assert [(group.pattern, group.count) for group in index.failures()] == [("third", 1)]
    assert index.page(Query.parse("second"), Sort()).entries == ()
    assert index.count(Query.parse("-second")) == index.count(Query()) == 3
    assert index.repeats("a").task == TaskSummary("a", 1, 0, 1, 1, 1.0, 1.0, PROMPT)
    write(tmp_path / "r.failures.jsonl", [failure("a", 0, error="late"), failure("b", 0, error="again")], "ab")
    state = index.refresh()
    assert (state.rows, state.failed, [group.pattern for group in index.failures()]) == (2, 1, ["again"])
    assert index.find("b/0") == FAILED + 5
    assert [entry.number for entry in index.select(Query.parse("error:again"))] == [FAILED + 5]


def test_the_numbers_of_a_field_have_a_least_a_greatest_and_a_mean(index_of: OpenIndex):
    rewards = [0.0, 0.1, 0.25, 0.5, 0.5, 0.99, 1.0, None]
    index = index_of([rollout("a", repeat, reward=reward) for repeat, reward in enumerate(rewards)], [failure("b")])
    assert index.spread("reward") == (0.0, 1.0, pytest.approx(3.34 / 7))
    assert (index.spread("tokens"), index.spread("attempt")) == ((39, 39, 39.0), (1, 1, 1.0))
    assert index_of([], [failure("a")]).spread("reward") is None
