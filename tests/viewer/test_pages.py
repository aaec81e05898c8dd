"""Every page of the viewer: complete, closed to the outside, and right about its file."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from urllib.parse import quote

import orjson
import pytest
from starlette.testclient import TestClient

from tests.support.made_runs import failure, rollout, rows_of, write
from tests.support.parsed_page import Page
from tests.support.viewing import TAGS, harmless, page_at, viewing, wait_for

PAGES = [
    "/run/baseline",
    "/run/baseline/rollouts",
    "/run/baseline/rollouts?q=reward%3C1&sort=-tokens",
    "/run/baseline/rollout/7?q=reward%3C1",
    "/run/baseline/rollout/f2",
    "/run/baseline/tasks",
    "/run/baseline/task?id=task-012",
    "/run/baseline/failures",
    "/compare?a=baseline&b=other",
    "/",
    "/nowhere",
]


@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_its_landmarks_and_lets_nothing_in(client: TestClient, path: str):
    answer = client.get(path)
    page = harmless(Page(answer.text))
    assert answer.status_code == (404 if path == "/nowhere" else 200)
    tags = [tag for tag, _ in page.tags]
    assert set(tags) <= TAGS
    assert (tags.count("main"), tags.count("h1"), tags.count("footer")) == (1, 1, 1)
    assert page.links()[0] == "#main"
    assert [attrs for tag, attrs in page.tags if tag == "th" and "scope" not in attrs] == []
    labelled = {attrs["for"] for tag, attrs in page.tags if tag == "label" and "for" in attrs}
    inside = ("hidden", "radio", "checkbox")  # which are inside their labels, or have none
    visible = [attrs for tag, attrs in page.tags if tag == "input" and attrs.get("type") not in inside]
    assert [attrs for attrs in visible if attrs.get("id") not in labelled] == []
    assert answer.headers["content-security-policy"].startswith(
        "default-src 'none'; style-src 'self'; script-src 'self';"
    )
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "same-origin"
    ways = [value for _, attrs in page.tags for name, value in attrs.items() if name in ("href", "src", "action")]
    assert [way for way in ways if not re.match(r"/(?!/)|#", way or "")] == []


def test_every_link_of_every_page_leads_somewhere(client: TestClient):
    seen: dict[str, int] = {}
    todo = ["/"]
    while todo:
        path = todo.pop()
        if path in seen or len(seen) > 60:
            continue
        answer = client.get(path, follow_redirects=True)
        seen[path] = answer.status_code
        if "text/html" in answer.headers["content-type"]:
            todo += [link.partition("#")[0] for link in Page(answer.text).links() if link.startswith("/")]
    assert {path: status for path, status in seen.items() if status != 200} == {}
    assert len(seen) > 60


def test_requested_is_kept_and_failed_and_not_run(run: Path):
    with viewing(run) as client:
        assert "Two runs are needed" in page_at(client, "/compare?a=baseline", 404).words
        assert "120 requested = 111 kept + 9 failed" in page_at(client, "/run/baseline").words
        beside = run.with_name("baseline.run.json")
        last = {"started_at": 1.0, "finished_at": 2.0, "requested": 130, "stopped": "max_wall_s"}
        for gone, words in (
            ("", "130 requested = 111 kept + 9 failed + 10 not run"),
            ("finished_at", "111 kept + 9 failed of 130 so far"),
            ("requested", "111 kept + 9 failed so far"),
        ):
            last.pop(gone, None)
            beside.write_bytes(orjson.dumps({"runs": [last]}))
            page = page_at(client, "/run/baseline").words
            assert (words in page, "stopped: max_wall_s" in page) == (True, not gone)
        beside.write_bytes(b"{torn")
        assert "120 requested = 111 kept + 9 failed" in page_at(client, "/run/baseline").words


def test_the_list_is_filtered_and_sorted_as_the_address_says(client: TestClient, baseline: Path):
    page = page_at(client, f"/run/baseline/rollouts?q={quote('reward<1 -state:failed')}&sort=-tokens")
    tokens = [row["usage"]["total_tokens"] for row in rows_of(baseline) if row["reward"] < 1]
    assert f"{len(tokens)} rollouts match" in page.words
    shown = [float(text) for text in re.findall(r" 2 1 (\d+) ", page.words)]
    assert shown == sorted(tokens, reverse=True)[: len(shown)]
    assert len(shown) == min(50, len(tokens))
    sorts = [attrs["aria-sort"] for tag, attrs in page.tags if tag == "th" and "aria-sort" in attrs]
    assert sorts == ["descending"]


def test_a_rollout_is_shown_in_full(client: TestClient, baseline: Path):
    row = rows_of(baseline)[6]
    page = page_at(client, "/run/baseline/rollout/7")
    raw = client.get("/run/baseline/rollout/7.json")
    there = client.get(f"/run/baseline/key/{quote(row['meta']['key'])}")
    asked = [message["content"] for message in row["responses_create_params"]["input"]]
    called = [row["output"][0]["reasoning_content"], "calculator Arguments expression", row["output"][1]["content"]]
    ends = [f"Final answer {row['response']['content']}", f"Expected answer {row['expected_answer']}"]
    for words in (
        *asked,
        *called,
        *ends,
        f"total {row['usage']['total_tokens']}",
        "extracted_answer",
        "Where its time",
    ):
        assert words in page.words, words
    assert (raw.json(), raw.headers["content-type"]) == (row, "application/json")
    assert (there.status_code, there.headers["location"]) == (307, "/run/baseline/rollout/7")


def test_failures_are_grouped_by_boundary_and_message(client: TestClient):
    page = page_at(client, "/run/baseline/failures")
    assert "9 failed, in 4 kinds" in page.words
    assert page.words.index("Model · 5") < page.words.index("Verify · 2")
    group = next(link for link in page.links() if "rollouts?" in link and "Unavailable" in link)
    assert "3 rollouts match" in page_at(client, group).words


def test_a_failed_attempt_shows_its_reason_how_far_it_came_and_what_was_asked(client: TestClient, tmp_path: Path):
    words = page_at(client, "/run/baseline/rollout/f2").words
    assert "Failed · model attempt 2 POST http://127.0.0.1:8155/v1/responses: timeout after 120 s" in words
    assert ("Let me see. First I" in words, "What is 6% of 107?" in words) == (True, True)  # of another repeat
    path = write(tmp_path / "r.jsonl", [rollout(1, 1, Random(5))])
    requests = {"input": [{"role": "user", "content": "How many plums are there?"}]}
    write(tmp_path / "r.failures.jsonl", [failure(2, 1) | {"responses_create_params": requests}])
    with viewing(path) as alone:
        for place in ("rollouts?q=state:failed", "task?id=task-002", "rollout/f1"):
            assert "How many plums are there?" in page_at(alone, f"/run/r/{place}").words


def test_repeats_stand_side_by_side_and_where_they_diverge_is_marked(tmp_path: Path):
    rows = [rollout(4, repeat, Random(1)) for repeat in range(3)]
    rows[2]["output"][2]["content"] = rows[2]["output"][2]["content"].replace("calculator gives", "calculator said")
    path = write(tmp_path / "r.jsonl", rows)
    with viewing(path) as client:
        text = client.get("/run/r/task?id=task-004").text
    assert "These 3 repeats begin with 2 equal messages and diverge in the next." in text
    assert text.count("diverges here") == 3


def test_every_flipped_task_is_reached_page_by_page_within_the_choice(tmp_path: Path):
    name, odd = 'a "b" \\ c:d=1 <e>', []
    rows = [rollout(task, 0, Random(task)) for task in range(301)]
    rows[300]["meta"]["key"] = f"{name}/0"  # a task of any name is found by its links
    files = []
    for run, worse in (("a", 1.0), ("b", 0.0)):  # every third flips for the worse
        for task, row in enumerate(rows):
            row["reward"] = worse if task % 3 == 0 else 1 - worse
        files.append(write(tmp_path / f"{run}.jsonl", rows))
    result: dict[str, list[str]] = {"": [], "better": [], "worse": []}
    with viewing(*files) as client:
        wait_for(client, "/compare?a=a&b=b", "301 tasks are in both runs")
        for only, tasks in result.items():
            path = f"/compare?a=a&b=b&only={only}"
            while path:
                page = page_at(client, path)
                tasks += [link for link in page.links() if link.startswith("/run/a/task?")]
                odd += [link for link in page.links() if "%3Ce" in link and not only]
                path = next((attrs["href"] or "" for _, attrs in page.tags if attrs.get("data-key") == "n"), "")
        for link in odd:
            there = client.get(link).headers["location"] if link.startswith("/pair?") else link
            assert name in page_at(client, there).words
    counts = {only: (len(each), len(set(each))) for only, each in result.items()}
    assert counts == {"": (301, 301), "better": (200, 200), "worse": (101, 101)}
    assert {f"/run/a/task?id=task-{task:03d}" for task in range(0, 300, 3)} < set(result["worse"])
    ways = [f"/{way}" for way in ("pair", "run/a/rollouts", "run/a/task", "run/b/rollouts", "run/b/task")]
    assert sorted(link.partition("?")[0] for link in odd) == ways
