"""Comparing any runs below a folder: two as ever, more as a table; the same numbers as `velo compare`."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_runs import make_run
from viewing import TAGS, page_at, viewing, wait_for

from velodrome.stats.compare import compare
from velodrome.stats.several import compare_several
from velodrome.viewer.parts.render import number


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four runs of the same thirty tasks, from bad to good, and one of other tasks."""
    folder = tmp_path_factory.mktemp("runs")
    for name, skill in (("a", 0.2), ("b", 0.5), ("c", 0.9), ("d", 0.88)):
        make_run(folder / f"{name}.jsonl", skill=skill, seed=ord(name), failed=0)
    make_run(folder / "few.jsonl", tasks=5, failed=0)
    return folder


def test_two_runs_below_a_folder_are_compared_without_a_restart(folder: Path):
    expected = compare([folder / "a.jsonl"], [folder / "c.jsonl"])
    reward = next(field for field in expected["fields"] if field["name"] == "reward")
    with viewing(folder) as client:
        page = wait_for(client, "/compare?run=a&run=c", "30 tasks are in both runs")
        assert f"reward {number(reward['a'])} {number(reward['b'])} ▲ +{number(reward['difference'])}" in page.words
        assert "/?run=a&run=c" in page.links()  # to pick more


def test_tasks_count_alike_and_the_mean_over_rollouts_is_said_where_it_differs(tmp_path: Path):
    for name, failed in (("a", 9), ("b", 0)):  # nine tasks of A have one rollout less
        make_run(tmp_path / f"{name}.jsonl", skill=0.5, seed=ord(name), failed=failed)
    expected = compare([tmp_path / "a.jsonl"], [tmp_path / "b.jsonl"])
    reward = next(field for field in expected["fields"] if field["name"] == "reward")
    overall = expected["a"]["reward"]
    assert number(overall) != number(reward["a"])
    with viewing(tmp_path) as client:
        page = wait_for(client, "/compare?run=a&run=b", "in both runs")
        assert f"reward {number(reward['a'])} over all rollouts {number(overall)}" in page.words


def test_a_mean_over_rollouts_that_reads_the_same_is_not_repeated(tmp_path: Path):
    for name, failed in (("a", 1), ("b", 0)):
        make_run(tmp_path / f"{name}.jsonl", tasks=300, skill=0.5, seed=ord(name), failed=failed)
    expected = compare([tmp_path / "a.jsonl"], [tmp_path / "b.jsonl"])
    reward = next(field for field in expected["fields"] if field["name"] == "reward")
    assert reward["a"] != expected["a"]["reward"]
    assert number(reward["a"]) == number(expected["a"]["reward"])
    with viewing(tmp_path) as client:
        page = wait_for(client, "/compare?run=a&run=b", "in both runs")
        assert f"reward {number(reward['a'])} {number(reward['b'])}" in page.words


def test_three_runs_are_a_table_with_the_numbers_of_a_comparison(folder: Path):
    expected = compare_several([folder / f"{name}.jsonl" for name in "abcd"])
    by_two = compare([folder / "a.jsonl"], [folder / "c.jsonl"])
    for name in ("reward", "pass@1", "pass@4"):
        two = next(field for field in by_two["fields"] if field["name"] == name)
        more = next(field for field in expected["fields"] if field["name"] == name)
        assert (more["runs"][0]["mean"], more["runs"][2]["mean"]) == pytest.approx((two["a"], two["b"]))
        assert more["best"] in (2, 3)
        alike = [each["alike"] for each in more["runs"]]
        assert (alike[0], alike[5 - more["best"]]) == (False, True)  # the two good ones cannot be told apart
    with viewing(folder) as client:
        page = wait_for(client, "/compare?run=a&run=b&run=c&run=d", "30 tasks are in all runs")
        assert {tag for tag, _ in page.tags} <= TAGS
        assert "★" in page.words
        assert "≈" in page.words
        assert "/compare?run=a&run=b&run=c" in page.links()  # without d
        widest = expected["tasks"][0]
        best, worst = widest["rates"].index(max(widest["rates"])), widest["rates"].index(min(widest["rates"]))
        way = f"/pair?a={'abcd'[worst]}&b={'abcd'[best]}&task={widest['task']}"
        assert next(link for link in page.links() if link.startswith("/pair?")) == way
        assert page_at(client, client.get(way).headers["location"])


def test_runs_that_share_few_tasks_count_their_own_and_say_so(tmp_path: Path):
    make_run(tmp_path / "a.jsonl", tasks=20, failed=0)
    for name in "bc":
        run = make_run(tmp_path / f"{name}.jsonl", tasks=20, failed=0, seed=2)
        run.write_bytes(run.read_bytes().replace(b"task-", b"other-"))
    result = compare_several([tmp_path / f"{name}.jsonl" for name in "abc"])
    assert (result["paired"], result["shared"], result["differ"]) == (False, 0, 0)
    assert "each run counts all of its own tasks" in result["notes"][0]


@pytest.mark.parametrize(
    ("query", "words"),
    [("run=a&run=nowhere", "There is no run"), ("&".join(f"run={n}" for n in ("a", "b")) + "&run=none", "no run")],
)
def test_a_comparison_that_cannot_be_made_is_one_line(folder: Path, query: str, words: str):
    with viewing(folder) as client:
        assert words in page_at(client, f"/compare?{query}", status=404).words


def test_a_run_leads_to_the_list_to_choose_what_it_is_compared_with(folder: Path):
    with viewing(folder) as client:
        assert "/compare?run=b" in page_at(client, "/run/b/tasks").links()
        assert client.get("/compare?run=b").headers["location"] == "/?run=b"
