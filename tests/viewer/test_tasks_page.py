"""The list of tasks, with a filter: the tasks that have a matching rollout, and how many of theirs match."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from made_runs import failure, rows_of, write
from starlette.testclient import TestClient
from viewing import page_at, viewing


def test_a_filter_lists_the_tasks_with_a_matching_rollout(client: TestClient, baseline: Path):
    tasks: dict[str, int] = {}
    for row in rows_of(baseline):
        if row["reward"] < 1:
            task = row["meta"]["key"].rpartition("/")[0]
            tasks[task] = tasks.get(task, 0) + 1
    page = page_at(client, "/run/baseline/tasks?q=reward<1")
    assert f"{len(tasks)} tasks have a matching rollout" in page.words
    assert "Pass rate and mean reward are of all repeats of a task, matching or not" in page.words
    links = [link for link in page.links() if "task%3D" in link]
    assert len(links) == len(tasks)
    for link in links[:3]:
        listed = page_at(client, link)
        task = next(name for name in tasks if quote(name, safe="") in link)
        assert f"{tasks[task]} rollout" in listed.words


@pytest.mark.parametrize(
    ("q", "tasks"),
    [
        ("tool=calculator id=task-007", "1 task has a matching rollout"),
        ("calculator -state:failed", "30 tasks have a matching rollout · searched: prompts"),
        ("state:failed", "9 tasks have a matching rollout"),
        ("expected_answer:nowhere", "0 tasks have a matching rollout"),
        ("", "30 tasks"),
    ],
)
def test_every_kind_of_term_filters_tasks(client: TestClient, q: str, tasks: str):
    page = page_at(client, f"/run/baseline/tasks?q={quote(q)}")
    assert tasks in page.words
    assert ("No task has a rollout that matches" in page.words) == tasks.startswith("0 ")


def test_the_filter_stays_through_orders_and_pages_and_a_mistake_is_said(client: TestClient):
    page = page_at(client, "/run/baseline/tasks?q=tools>0&sort=-n")
    assert [link for link in page.links() if "/tasks?" in link] == [
        f"/run/baseline/tasks?q=tools%3E0&sort={sort}" for sort in ("pass_rate", "n", "mean_reward")
    ]
    wrong = page_at(client, "/run/baseline/tasks?q=expected_anser:3&sort=bad")
    assert 'filter, at 1: no field "expected_anser"; did you mean "expected_answer"?' in wrong.words
    assert 'sort: tasks have no "bad"' in wrong.words
    assert "All tasks are shown. " in wrong.words


def test_tasks_without_a_kept_rollout_are_counted_too(tmp_path: Path):
    path = write(tmp_path / "r.jsonl", [])
    write(tmp_path / "r.failures.jsonl", [failure(task, 1) for task in range(3)])
    with viewing(path) as client:
        assert "3 tasks" in page_at(client, "/run/r/tasks").words
        assert "1 failed" in page_at(client, "/run/r/tasks").words
        assert "1 task has a matching rollout" in page_at(client, "/run/r/tasks?q=task:task-001").words
