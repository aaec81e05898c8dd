"""What is reported of many rollouts: tasks, failures by kind, histograms, the course over time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from index_rows import OpenIndex, failure, rollout, write

from velodrome.index import FAILED, FieldHistogram, Point, Query, Sort, TaskSummary

Json = dict[str, Any]
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


def test_the_mean_of_a_task_does_not_depend_on_the_order_of_rows(index_of: OpenIndex):
    rewards = [(0.1, 0.2, 0.3), (0.3, 0.2, 0.1), (0.2, 0.3, 0.1)]
    index = index_of([rollout(f"t{task}", at, reward=own[at]) for task, own in enumerate(rewards) for at in range(3)])
    assert {task.mean_reward for task in index.tasks(Sort()).entries} == {0.2}


@pytest.mark.parametrize("sort", ["-pass_rate", "pass_rate", "-number", "mean_reward"])
def test_tasks_are_sorted_and_paged(index_of: OpenIndex, sort: str):
    order = Sort.parse(sort)
    index = index_of(
        [rollout(f"t{task}", repeat, reward=float(repeat < task % 4)) for task in range(20) for repeat in range(3)]
    )
    page = index.tasks(order, limit=7)
    forward = list(page.entries)
    while page.next:
        page = index.tasks(order, after=page.next, limit=7)
        forward += page.entries
    backward = list(page.entries)
    while page.previous:
        page = index.tasks(order, before=page.previous, limit=7)
        backward = [*page.entries, *backward]
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
        failure("g", 0, error="503 Service Unavailable after 9 s"),
    ]
    index = index_of([], lost)
    assert [(group.boundary, group.pattern, group.count) for group in index.failures()] == [
        ("model", "POST http://#:#/v1/responses: # (request #)", 3),
        ("?", "", 1),
        ("model", "429 Too Many Requests after # s", 1),
        ("model", "503 Service Unavailable after # s", 1),
        ("tool", "no answer within # s", 1),
    ]
    first = "model: POST http://127.0.0.1:8001/v1/responses: 401 (request req_1f3a9b)"
    assert index.failures()[0].example == first
    assert index.failures()[0].numbers == (FAILED + 1, FAILED + 2, FAILED + 4)
    assert [entry.error for entry in index.repeats("c").entries] == ["tool: no answer within 30.5 s"]


def test_a_key_that_was_tried_again_is_listed_once(tmp_path: Path, index_of: OpenIndex):
    lost = [failure("a", error="first"), failure("a", error="second"), failure("b", error="third")]
    index = index_of([rollout("c", 0)], lost)
    assert [(entry.key, entry.error) for entry in index.page(Query.parse("state:failed"), Sort()).entries] == [
        ("a/0", "model: second"),
        ("b/0", "model: third"),
    ]
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


def test_failures_whose_keys_failed_again_are_found_in_any_order(index_of: OpenIndex):
    index = index_of([], [failure("a"), failure("b"), failure("a", error="timeout")])
    assert [entry.number for entry in index.select(Query.parse("error:timeout"))] == [FAILED + 3]
    assert [entry.number for entry in index.select(Query.parse("key:b"))] == [FAILED + 2]


def test_a_histogram_counts_every_value_once(index_of: OpenIndex):
    rewards = [0.0, 0.1, 0.25, 0.5, 0.5, 0.99, 1.0, None]
    index = index_of([rollout("a", repeat, reward=reward) for repeat, reward in enumerate(rewards)], [failure("b")])
    histogram = index.histogram("reward")
    filled = [(low, count) for low, count in zip(histogram.edges, histogram.counts, strict=False) if count]
    assert filled == [(pytest.approx(low), count) for low, count in ((0, 1), (0.1, 1), (0.25, 1), (0.5, 2), (0.95, 2))]
    assert (histogram.edges[-1], len(histogram.counts), histogram.mean) == (1.0, 20, pytest.approx(3.34 / 7))
    assert index.histogram("tokens") == FieldHistogram((39, 39), (8,), 39.0)
    assert index.histogram("attempt") == FieldHistogram((1, 1), (1,), 1.0)


def test_a_histogram_of_nothing_is_empty(index_of: OpenIndex):
    assert index_of([], [failure("a")]).histogram("reward") == FieldHistogram()


def test_the_course_over_time_leaves_gaps_out_and_loses_nothing_when_it_is_coarser(index_of: OpenIndex):
    start = 1_790_000_000
    times = (0.2, 0.9, 1.5, *range(500_000, 502_500))
    index = index_of(
        [rollout("a", repeat, finished_at=start + at) for repeat, at in enumerate(times)],
        [failure("b", 0, finished_at=start + 1.9)],
    )
    assert index.series(5000)[:3] == [Point(start, 1, 2), Point(start + 1, 1, 2), Point(start + 500_000, 1, 1)]
    points = index.series(1000)
    assert (sum(point.finished for point in points), len(points) <= 1000) == (2504, True)


def test_the_fields_are_those_of_rollouts_and_tasks(index_of: OpenIndex):
    index = index_of([rollout("a", accuracy=0.5, correct=True, note="text", id=7)])
    assert index.fields()[-6:] == ["accuracy", "correct", "n", "scored", "pass_rate", "mean_reward"]
    assert index.entry(1).numbers == {
        "reward": 1.0,
        "tokens": 39,
        "input_tokens": 26,
        "output_tokens": 13,
        "tools": 0,
        "turns": 2,
        "length": 8,
        "total_s": 0.75,
        "model_s": 0.5,
        "tools_s": 0.0,
        "verify_s": 0.0,
        "queue_s": 0.0,
        "retries": 0,
        "repeat": 0,
        "task_index": 0,
        "finished_at": 1_790_000_000.0,
        "accuracy": 0.5,
        "correct": 1,
    }


def test_prompts_and_names_that_repeat_are_whole_in_each_entry(index_of: OpenIndex):
    rows = [rollout("a", repeat, prompt=f"How far is {repeat % 2}?", agent="ab"[repeat % 2]) for repeat in range(4)]
    index = index_of([*rows, rollout("b", prompt="", agent="completed")])
    assert [(entry.prompt, entry.agent) for entry in index.page(Query(), Sort()).entries] == [
        ("How far is 0?", "a"),
        ("How far is 1?", "b"),
        ("How far is 0?", "a"),
        ("How far is 1?", "b"),
        ("", "completed"),
    ]
    assert [entry.key for entry in index.page(Query.parse("agent=b"), Sort()).entries] == ["a/1", "a/3"]
    assert [entry.key for entry in index.page(Query.parse("status:complet agent:complet"), Sort()).entries] == ["b/0"]
