"""The lists of rollouts and of tasks: the columns, the order and the filter that the address names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.testclient import TestClient

from tests.support.made_runs import failure, rollout, rows_of, write
from tests.support.viewing import page_at, viewing

CELL = re.compile(r'<td[^>]* data-label="([^"]*)"[^>]*>(.*?)</td>', re.S)
TAG = re.compile(r"<[^>]*>")


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Six rollouts with texts of their own, and a failure."""
    rows = [
        rollout(task, 0, Random(task)) | {"kind": "ab"[task % 2], "odd name": f"<{task}>", "reward": task % 3 / 2}
        for task in range(6)
    ]
    rows[3]["response"]["content"] = rows[3]["output"][2]["content"] = "Let me see. " * 60 + "It is **7**."
    path = write(tmp_path_factory.mktemp("list") / "r.jsonl", rows)
    write(path.with_name("r.failures.jsonl"), [failure(9, 1)])
    with viewing(path) as client:
        yield client


def table(client: TestClient, address: str, run: str = "r") -> list[dict[str, str]]:
    """The cells of each row, by their labels, as text."""
    text = client.get(f"/run/{run}/rollouts?{address}").text
    rows = re.findall(r"<tr data-row>(.*?)</tr>", text, re.S)
    return [{label: " ".join(TAG.sub("", cell).split()) for label, cell in CELL.findall(row)} for row in rows]


def test_the_usual_columns_are_one_line_with_the_expected_answer_and_the_key(listed: TestClient):
    rows = table(listed, "")
    assert list(rows[0]) == [
        "reward", "prompt", "answer", "expected", "turns", "tools", "tokens", "time", "outcome", "key"
    ]  # fmt: skip
    assert (rows[1]["expected"], rows[1]["key"], rows[1]["outcome"]) == ("6.42", "task-001/0", "finished")
    assert rows[3]["answer"].endswith("It is **7**.")
    assert rows[6]["reward"] == "failed"
    assert rows[6]["answer"].startswith("model: POST http://127.0.0.1:8155")
    assert "<br>" not in listed.get("/run/r/rollouts").text.partition("<tbody>")[2]


def test_the_address_names_the_columns_in_their_order(listed: TestClient):
    columns = ["kind", "reward", "odd name", "pass_rate", "expected_answer", "state", "check", "tag", "rating"]
    rows = table(listed, "cols=kind,reward,odd+name,pass_rate,expected_answer,state,check,tag,rating")
    assert list(rows[0]) == columns
    assert [(row["kind"], row["odd name"], row["pass_rate"]) for row in rows[:3]] == [
        ("a", "&lt;0&gt;", "0"),
        ("b", "&lt;1&gt;", "0"),
        ("a", "&lt;2&gt;", "1"),
    ]
    assert (rows[6]["kind"], rows[6]["state"]) == ("–", "failed")
    assert list(table(listed, "cols=reward&sort=-length")[0]) == ["reward", "length"]  # what it is sorted by is shown
    assert list(table(listed, "cols=reward&cols=odd+name")[0]) == ["reward", "odd name"]  # as a form sends it
    page = page_at(listed, "/run/r/rollouts?cols=kind,knd")
    assert 'cols: no field "knd"; did you mean "kind"' in page.words
    boxes = [attrs for tag, attrs in page.tags if attrs.get("type") == "checkbox"]
    assert [box["value"] for box in boxes if "checked" in box] == ["kind"]
    assert {*columns} <= {box["value"] for box in boxes}
    assert list(table(listed, "cols=knd")[0])[:2] == ["reward", "prompt"]
    text = listed.get("/run/r/rollouts?cols=kind,tokens").text
    assert text.count('<a class="link"') == text.count("<tr data-row>") == 7


def test_the_choice_stays_on_every_way_from_the_list_and_back(listed: TestClient):
    page = page_at(listed, "/run/r/rollouts?cols=reward,kind&q=reward%3C1&sort=-reward")
    ways = [link for link in page.links() if re.match(r"/run/r/rollouts?[/?]", link) or link == "/run/r/rollouts"]
    without = [link for link in ways if parse_qs(urlsplit(link).query).get("cols") != ["reward,kind"]]
    assert without == ["/run/r/rollouts?q=reward%3C1&sort=-reward"]  # the usual ones
    hidden = {attrs["name"]: attrs["value"] for tag, attrs in page.tags if attrs.get("type") == "hidden"}
    assert hidden == {"q": "reward<1", "sort": "-reward", "cols": "reward,kind"}
    rollout_page = next(link for link in ways if "/rollout/" in link)
    back = [link for link in page_at(listed, rollout_page).links() if link.startswith("/run/r/rollouts?")]
    assert back
    assert "cols=reward%2Ckind" in back[0]


def test_a_filter_lists_the_tasks_with_a_matching_rollout(client: TestClient, baseline: Path):
    tasks = Counter(row["id"] for row in rows_of(baseline) if row["reward"] < 1)
    page = page_at(client, "/run/baseline/tasks?q=reward<1")
    assert f"{len(tasks)} tasks have a matching rollout" in page.words
    links = [link for link in page.links() if "task%3D" in link]
    assert len(links) == len(tasks)
    task = next(name for name in tasks if name in links[0])
    assert f"{tasks[task]} rollout" in page_at(client, links[0]).words


def test_the_filter_stays_through_orders_and_pages_and_a_mistake_is_said(client: TestClient):
    page = page_at(client, "/run/baseline/tasks?q=tools>0&sort=-n")
    assert [link for link in page.links() if "/tasks?" in link] == [
        f"/run/baseline/tasks?q=tools%3E0&sort={sort}" for sort in ("pass_rate", "n", "mean_reward")
    ]
    wrong = page_at(client, "/run/baseline/tasks?q=expected_anser:3&sort=bad")
    assert 'filter, at 1: no field "expected_anser"; did you mean "expected_answer"?' in wrong.words
    assert 'sort: tasks have no "bad"' in wrong.words
