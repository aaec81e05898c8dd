"""The list of rollouts: one line each, the columns that the address names, sorted by any of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from made_runs import failure, rollout, write
from starlette.testclient import TestClient
from viewing import page_at, viewing

Json = dict[str, Any]

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


def table(client: TestClient, address: str) -> list[dict[str, str]]:
    """The cells of each row, by their labels, as text."""
    text = client.get(f"/run/r/rollouts?{address}").text
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
    rows = table(listed, "cols=kind,reward,odd+name,pass_rate,expected_answer,state,check,tag,rating")
    assert list(rows[0]) == [
        "kind", "reward", "odd name", "pass_rate", "expected_answer", "state", "check", "tag", "rating"
    ]  # fmt: skip
    assert [(row["kind"], row["odd name"], row["pass_rate"]) for row in rows[:3]] == [
        ("a", "&lt;0&gt;", "0"),
        ("b", "&lt;1&gt;", "0"),
        ("a", "&lt;2&gt;", "1"),
    ]
    assert (rows[6]["kind"], rows[6]["state"]) == ("–", "failed")


def test_the_choice_stays_on_every_way_from_the_list_and_back(listed: TestClient):
    page = page_at(listed, "/run/r/rollouts?cols=reward,kind&q=reward%3C1&sort=kind")
    ways = [link for link in page.links() if re.match(r"/run/r/rollouts?[/?]", link) or link == "/run/r/rollouts"]
    without = [link for link in ways if parse_qs(urlsplit(link).query).get("cols") != ["reward,kind"]]
    assert without == ["/run/r/rollouts?q=reward%3C1&sort=kind"]  # the usual ones
    hidden = {attrs["name"]: attrs["value"] for tag, attrs in page.tags if attrs.get("type") == "hidden"}
    assert hidden == {"q": "reward<1", "sort": "kind", "cols": "reward,kind"}
    rollout_page = next(link for link in ways if "/rollout/" in link)
    back = [link for link in page_at(listed, rollout_page).links() if link.startswith("/run/r/rollouts?")]
    assert back
    assert "cols=reward%2Ckind" in back[0]


def test_the_chooser_is_a_form_that_sends_what_is_chosen(listed: TestClient):
    page = page_at(listed, "/run/r/rollouts?cols=reward,kind")
    boxes = [attrs for tag, attrs in page.tags if attrs.get("type") == "checkbox"]
    assert {box["value"] for box in boxes if "checked" in box} == {"reward", "kind"}
    assert {"prompt", "answer", "expected", "odd name", "check", "tag", "rating", "pass_rate", "tokens"} <= {
        box["value"] for box in boxes
    }
    rows = table(listed, "cols=reward&cols=odd+name&cols=tokens")
    assert list(rows[0]) == ["reward", "odd name", "tokens"]
    assert page_at(listed, "/run/r/rollouts?cols=reward&cols=odd+name").words  # as a form sends it


@pytest.mark.parametrize(
    "column", ["reward", "kind", "odd name", "expected_answer", "key", "state", "pass_rate", "tokens"]
)
def test_a_list_is_sorted_by_any_column_up_and_down(listed: TestClient, column: str):
    address = f"cols={quote(column)},key"
    up = [row["key"] for row in table(listed, f"{address}&sort={quote(column)}")]
    down = [row["key"] for row in table(listed, f"{address}&sort=-{quote(column)}")]
    values = {row["key"]: row[column] for row in table(listed, address)}
    known = [key for key in up if values[key] not in ("–", "failed") or column == "state"]
    assert [key for key in down if key in known] == known[::-1]
    assert len(up) == len(down) == 7
    page = page_at(listed, f"/run/r/rollouts?{address}&sort={quote(column)}")
    sorts = [attrs["aria-sort"] for tag, attrs in page.tags if tag == "th" and "aria-sort" in attrs]
    assert sorts == ["ascending"]


def test_the_field_that_a_list_is_sorted_by_is_shown(listed: TestClient):
    assert list(table(listed, "cols=reward&sort=-length")[0]) == ["reward", "length"]


def test_a_column_that_is_not_there_is_explained_and_left_out(listed: TestClient):
    page = page_at(listed, "/run/r/rollouts?cols=reward,knd")
    assert 'cols: no field "knd"; did you mean "kind"' in page.words
    assert list(table(listed, "cols=reward,knd")[0]) == ["reward"]
    assert list(table(listed, "cols=knd")[0])[:2] == ["reward", "prompt"]


def test_every_row_is_a_link_whatever_its_columns(listed: TestClient):
    for cols in ("reward", "kind,tokens", "key", ""):
        text = listed.get(f"/run/r/rollouts?cols={cols}").text
        assert text.count('<a class="link"') == text.count("<tr data-row>") == 7


def test_an_expected_answer_is_found_under_any_of_its_names(tmp_path: Path):
    row = rollout(1, 0, Random(1))
    del row["expected_answer"]
    for name, value, shown in (("ground_truth", "12", "12"), ("target", 104, "104"), ("answer", "x", "x")):
        folder = tmp_path / name
        folder.mkdir()
        with viewing(write(folder / "r.jsonl", [row | {name: value}])) as client:
            assert table(client, "")[0]["expected"] == shown
    folder = tmp_path / "none"
    folder.mkdir()
    with viewing(write(folder / "r.jsonl", [row])) as client:
        assert "expected" not in table(client, "")[0]
