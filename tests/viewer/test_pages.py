"""Every page of the viewer: complete, closed to the outside, and right about its file."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import orjson
import pytest
from made_runs import failure, rollout, rows_of, write
from parsed_page import Page
from starlette.testclient import TestClient
from viewing import TAGS, page_at, viewing, wait_for

Json = dict[str, Any]


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
    page = Page(answer.text)
    assert (page.crossed, page.unclosed) == ([], [])
    assert answer.status_code == (404 if path == "/nowhere" else 200)
    tags = [tag for tag, _ in page.tags]
    assert set(tags) <= TAGS
    assert (tags.count("main"), tags.count("h1"), tags.count("footer")) == (1, 1, 1)
    assert page.links()[0] == "#main"
    names = [name for _, attrs in page.tags for name in attrs]
    assert [name for name in names if name.startswith("on") or name == "style"] == []
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
        data = orjson.loads(beside.read_bytes())
        data["runs"][0] |= {"requested": 130, "stopped": "max_wall_s"}
        beside.write_bytes(orjson.dumps(data))
        page = page_at(client, "/run/baseline")
        assert "130 requested = 111 kept + 9 failed + 10 not run" in page.words
        assert "stopped: max_wall_s" in page.words
        del data["runs"][0]["finished_at"]
        beside.write_bytes(orjson.dumps(data))
        assert "111 kept + 9 failed of 130 so far" in page_at(client, "/run/baseline").words
        del data["runs"][0]["requested"]
        beside.write_bytes(orjson.dumps(data))
        assert "111 kept + 9 failed so far" in page_at(client, "/run/baseline").words
        beside.write_bytes(b"{torn")
        assert "120 requested = 111 kept + 9 failed" in page_at(client, "/run/baseline").words


def test_the_page_of_a_run_tells_its_metrics_times_and_findings(client: TestClient, baseline: Path):
    page = wait_for(client, "/run/baseline", "pass@4")
    page = wait_for(client, "/run/baseline", "Rollout Total")
    page = wait_for(client, "/run/baseline", "9 of 120 rollouts (7.5%) failed")
    tries = Counter(row["meta"]["key"].split("/")[0] for row in rows_of(baseline))
    whole = sum(count >= 4 for count in tries.values())
    assert 0 < whole < len(tries)
    assert f"pass@4 over {whole} of {len(tries)} tasks" in page.words
    charts = [attrs["class"] for tag, attrs in page.tags if tag == "svg" and "aria-label" in attrs]
    assert charts == [
        f"picture {kind}" for kind in ("bars", "curve", "curve", "bubbles", "curve", "curve", "curve", "bars")
    ]


def test_the_list_is_filtered_and_sorted_as_the_address_says(client: TestClient, baseline: Path):
    page = page_at(client, f"/run/baseline/rollouts?q={quote('reward<1 -state:failed')}&sort=-tokens")
    tokens = [row["usage"]["total_tokens"] for row in rows_of(baseline) if row["reward"] < 1]
    assert f"{len(tokens)} rollouts match" in page.words
    shown = [float(text) for text in re.findall(r" 2 1 (\d+) ", page.words)]
    assert shown == sorted(tokens, reverse=True)[: len(shown)]
    assert len(shown) == min(50, len(tokens))
    sorts = [attrs["aria-sort"] for tag, attrs in page.tags if tag == "th" and "aria-sort" in attrs]
    assert sorts == ["descending"]


@pytest.mark.parametrize(
    ("address", "words", "q"),
    [
        ("q=reward%3C", 'nothing after "<"', "reward<"),
        ("q=reward%3C%3Cscript%3E", "is not allowed here", "reward<<script>"),
        (f"q={'x' * 3000}", "longer than 2000 characters", "x" * 3000),
        ("sort=nothing", 'no field "nothing"', ""),
        ("after=%00", "not a cursor of this list", ""),
        ("sort=-reward&after=WyJ4Il0", "not a cursor of this list", ""),
        ("q=state:failed&after=x", "not a cursor of this list", "state:failed"),
    ],
)
def test_a_bad_filter_order_or_cursor_is_explained_above_the_list(client: TestClient, address: str, words: str, q: str):
    page = page_at(client, f"/run/baseline/rollouts?{address}")
    assert words in page.words
    field = next(attrs for tag, attrs in page.tags if tag == "input" and attrs.get("id") == "q")
    assert (field["value"], field["aria-invalid"]) == (q, "true")
    instead = "Shown from the start, as in the file." if q == "state:failed" else "All rollouts are shown."
    assert instead in page.words
    assert len([1 for link in page.links() if "/rollout/" in link]) == (9 if q == "state:failed" else 50)


def test_a_rollout_is_shown_in_full(client: TestClient, baseline: Path):
    row = rows_of(baseline)[6]
    page = page_at(client, "/run/baseline/rollout/7")
    raw = client.get("/run/baseline/rollout/7.json")
    there = client.get(f"/run/baseline/key/{quote(row['meta']['key'])}")
    for words in (
        "You are a careful assistant.",
        row["responses_create_params"]["input"][1]["content"],
        row["output"][0]["reasoning_content"],
        "calculator Arguments expression",
        f"Result {row['output'][1]['content']}",
        f"Final answer {row['response']['content']}",
        f"Expected answer {row['expected_answer']}",
        f"total {row['usage']['total_tokens']}",
        "extracted_answer",
        "Where its time went",
    ):
        assert words in page.words, words
    assert (raw.json(), raw.headers["content-type"]) == (row, "application/json")
    assert (there.status_code, there.headers["location"]) == (307, "/run/baseline/rollout/7")


def test_a_failed_attempt_shows_its_reason_how_far_it_came_and_what_was_asked(client: TestClient):
    page = page_at(client, "/run/baseline/rollout/f2")
    assert "Failed · model attempt 2 POST http://127.0.0.1:8155/v1/responses: timeout after 120 s" in page.words
    assert "Let me see. First I" in page.words
    assert "What is 6% of 107?" in page.words


def test_failures_are_grouped_by_boundary_and_message(client: TestClient):
    page = page_at(client, "/run/baseline/failures")
    assert "9 failed, in 4 kinds" in page.words
    assert page.words.index("Model · 5") < page.words.index("Verify · 2")
    group = next(link for link in page.links() if "rollouts?" in link and "Unavailable" in link)
    assert "3 rollouts match" in page_at(client, group).words


def test_a_failed_attempt_is_shown_with_what_it_was_asked(tmp_path: Path):
    path = write(tmp_path / "r.jsonl", [rollout(1, 1, Random(5))])
    requests = {"input": [{"role": "user", "content": "How many plums are there?"}]}
    write(tmp_path / "r.failures.jsonl", [failure(2, 1) | {"responses_create_params": requests}])
    with viewing(path) as client:
        assert "How many plums are there?" in page_at(client, "/run/r/rollouts?q=state:failed").words
        assert "How many plums are there?" in page_at(client, "/run/r/task?id=task-002").words
        assert "How many plums are there?" in page_at(client, "/run/r/rollout/f1").words


def test_repeats_stand_side_by_side_and_where_they_diverge_is_marked(tmp_path: Path):
    rows = [rollout(4, repeat, Random(1)) for repeat in range(3)]
    rows[2]["output"][2]["content"] = rows[2]["output"][2]["content"].replace("calculator gives", "calculator said")
    path = write(tmp_path / "r.jsonl", rows)
    with viewing(path) as client:
        text = client.get("/run/r/task?id=task-004").text
    assert "These 3 repeats begin with 2 equal messages and diverge in the next, after its first 2 words." in text
    assert re.findall(r"<mark>([^<]*)</mark>", text) == [" gives", " gives", " said"]


def flipping(tasks: int) -> tuple[list[Json], list[Json]]:
    """Rollouts of two runs in which every task flips, every third for the worse."""
    rows = [rollout(task, 0, Random(task)) for task in range(tasks)]
    better = [float(task % 3 > 0) for task in range(tasks)]
    return [{**row, "reward": 1 - each} for row, each in zip(rows, better, strict=True)], [
        {**row, "reward": each} for row, each in zip(rows, better, strict=True)
    ]


def test_every_flipped_task_is_reached_page_by_page_within_the_choice(tmp_path: Path):
    before, after = flipping(450)
    files = write(tmp_path / "a.jsonl", before), write(tmp_path / "b.jsonl", after)
    result: dict[str, list[str]] = {"": [], "better": [], "worse": []}
    with viewing(*files) as client:
        wait_for(client, "/compare?a=a&b=b", "450 tasks are in both runs")
        for only, tasks in result.items():
            path = f"/compare?a=a&b=b&only={only}"
            while path:
                page = page_at(client, path)
                tasks += [link for link in page.links() if link.startswith("/run/a/task?")]
                path = next((attrs["href"] or "" for _, attrs in page.tags if attrs.get("data-key") == "n"), "")
        assert "201 to 400 of 450" in page_at(client, "/compare?a=a&b=b&since=200").words
        assert "1 to 200 of 450" in page_at(client, "/compare?a=a&b=b&since=999999").words
        lists = [link for link in page_at(client, "/compare?a=a&b=b&only=worse").links() if "/rollouts?" in link][:2]
        assert [link.partition("?")[0] for link in lists] == ["/run/a/rollouts", "/run/b/rollouts"]
        assert ["1 rollout matches" in page_at(client, link).words for link in lists] == [True, True]
    worse = {f"/run/a/task?id=task-{task:03d}" for task in range(0, 450, 3)}
    assert {only: (len(each), len(set(each))) for only, each in result.items()} == {
        "": (450, 450),
        "better": (300, 300),
        "worse": (150, 150),
    }
    assert set(result["worse"]) == worse


def test_a_task_of_any_name_is_found_by_its_link(tmp_path: Path):
    before, after = flipping(1)
    name = 'a "b" \\ c:d=1 <e>'
    for row in (*before, *after):
        row["meta"]["key"] = f"{name}/0"
    files = write(tmp_path / "a.jsonl", before), write(tmp_path / "b.jsonl", after)
    with viewing(*files) as client:
        page = wait_for(client, "/compare?a=a&b=b", "1 task is in both runs")
        links = [link for link in page.links() if "/rollouts?" in link or "/task?" in link]
        assert len(links) == 4
        (pair,) = [client.get(link).headers["location"] for link in page.links() if link.startswith("/pair?")]
        for link in (*links, pair):
            assert name in page_at(client, link).words
        assert "1 rollout matches" in page_at(client, links[-1]).words


def test_a_number_is_a_filter_as_it_is_an_order(client: TestClient):
    page = page_at(client, f"/run/baseline/rollouts?q={quote('number<=3')}&sort=-number")
    assert "3 rollouts match" in page.words
    assert [link.partition("?")[0] for link in page.links() if "/rollout/" in link] == [
        f"/run/baseline/rollout/{number}" for number in (3, 2, 1)
    ]


def test_one_of_something_is_not_many(tmp_path: Path):
    row = rollout(1, 0, Random(1))
    path = write(tmp_path / "r.jsonl", [{**row, "usage": {"total_tokens": 1}}])
    write(tmp_path / "r.failures.jsonl", [{"key": "b/0", "boundary": "model", "error": "gone"}])
    with viewing(path) as client:
        assert "1 rollout matches" in page_at(client, "/run/r/rollouts?q=reward%3E%3D0").words
        assert "1 failed, in 1 kind " in page_at(client, "/run/r/failures").words
        assert " 1 token " in page_at(client, "/run/r/rollout/1").words
        charts = [attrs.get("aria-label") for tag, attrs in page_at(client, "/run/r").tags if tag == "svg"]
    assert f"Reward: 1 rollout, mean {row['reward']:.0f}" in charts


def test_two_files_of_one_name_have_addresses_of_their_own(tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = write(tmp_path / "a" / "r.jsonl", [rollout(1, 0, Random(5))])
    second = write(tmp_path / "b" / "r.jsonl", [rollout(2, 0, Random(5))])
    with viewing(first, second) as client:
        assert "task-001/0" in page_at(client, "/run/r/rollouts").words
        assert "task-002/0" in page_at(client, "/run/r-2/rollouts").words
        assert "/run/r-2" in page_at(client, "/").links()
