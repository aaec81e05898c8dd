"""Transcripts of a task side by side: aligned, what differs marked, where repeats diverge, and on to the next pair."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.support.made_runs import failure, rollout, write
from tests.support.viewing import TAGS, page_at, viewing, wait_for
from velodrome.viewer.parts.comparing import pair_messages, shared_messages
from velodrome.viewer.parts.dialogue import ShownMessage


def said(role: str, text: str) -> ShownMessage:
    return ShownMessage(role, text)


def marks(side: Any) -> list[str]:
    return [each.text.strip() for each in side.stretches if each.kind == "changed"]


def test_equal_messages_are_one_line_and_of_others_the_words_that_differ_are_marked():
    a = [said("user", "Add."), said("assistant", "I get 17 in all."), said("tool", "ok"), said("assistant", "17")]
    b = [said("user", "Add."), said("assistant", "I get 19 in all."), said("assistant", "19")]
    lines = pair_messages(a, b)
    sides = [(line.same, line.a is not None, line.b is not None) for line in lines]
    assert sides == [(True, True, True), (False, True, True), (False, True, False), (False, True, True)]
    assert (marks(lines[1].a), marks(lines[1].b)) == (["17"], ["19"])
    assert "".join(each.text for each in lines[1].a.stretches) == "I get 17 in all."


def test_every_word_that_differs_is_marked_and_long_equal_stretches_are_cut():
    same = "so it is " * 200
    a, b = f"first one {same} second three", f"first two {same} second four"
    (line,) = pair_messages([said("assistant", a)], [said("assistant", b)])
    assert (marks(line.a), marks(line.b)) == (["one", "three"], ["two", "four"])
    (cut,) = [each.text for each in line.a.stretches if each.kind == "cut"]
    assert cut.startswith("1,")


def test_texts_made_to_be_slow_to_compare_are_compared_in_bounded_work():
    a = [said("assistant", f"{at} {'a b ' * 900}{at}") for at in range(100)]
    b = [said("assistant", f"{at} {'a b ' * 901}c{at}") for at in range(100)]
    assert len(pair_messages(a, b)) == 100


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Two runs of three tasks: 0 and 2 flip, 1 passes in both; B also failed once at task 0."""
    folder = tmp_path_factory.mktemp("pair")
    runs = []
    for name, passes in (("a", (0, 1, 1)), ("b", (1, 1, 0))):
        rows = []
        for repeat in range(2):
            for task, passed in enumerate(passes):
                row = rollout(task, repeat, Random(task))
                row["reward"] = float(passed)
                row["output"][-1]["content"] = f"Run {name} says {'right' if passed else 'wrong'}."
                rows.append(row)
        runs.append(write(folder / f"{name}.jsonl", rows))
    write(folder / "b.failures.jsonl", [failure(0, 1) | {"key": "task-000/2", "rollout_index": 2}])
    with viewing(*runs) as client:
        yield client


def test_a_flipped_task_leads_to_a_pair_and_the_pair_to_the_next(client: TestClient):
    compared = wait_for(client, "/compare?a=a&b=b", "Tasks that flipped · 2")
    first = next(link for link in compared.links() if link.startswith("/pair?"))
    assert first == "/pair?a=a&b=b&task=task-000"
    assert client.get(first).headers["location"] == "/pair?a=a%3A1&b=b%3A1"
    page = page_at(client, "/pair?a=a:1&b=b:1")
    assert {tag for tag, _ in page.tags} <= TAGS
    assert ("Run a says wrong." in page.words, "Run b says right." in page.words) == (True, True)
    assert [attrs for tag, attrs in page.tags if tag == "mark"] != []
    keys = {attrs["data-key"]: attrs["href"] for _, attrs in page.tags if "data-key" in attrs}
    assert (keys["n"], keys["u"]) == ("/pair?a=a&b=b&task=task-002", "/compare?a=a&b=b")


def test_two_repeats_of_a_task_are_chosen_on_its_page_and_a_failed_one_says_why(client: TestClient):
    task = page_at(client, "/run/b/task?id=task-000")
    assert [attrs["value"] for tag, attrs in task.tags if tag == "option"] == 2 * ["b:1", "b:4", "b:f1"]
    pair = page_at(client, "/pair?a=b:f1&b=b:4")
    assert "Why it failed model: POST http://127.0.0.1:8155" in pair.words


def test_a_pair_that_is_not_there_is_one_line(client: TestClient):
    for query, words in {
        "a=a:1&b=b:99": "99",
        "a=a:1&b=nowhere:1": "There is no run",
        "a=a:x&b=b:1": "is not a run and the number of a rollout",
        "a=a&b=b&task=none": "no task",
        "": "There is no run",
    }.items():
        assert words in page_at(client, f"/pair?{query}", status=404).words


def test_repeats_agree_up_to_the_first_message_that_differs_or_is_missing():
    def spoken(*texts: str) -> list[ShownMessage]:
        return [said("assistant", text) for text in texts]

    assert shared_messages([spoken("Hm.", "It is 36.", "Bye"), spoken("Hm.", "It is 38."), spoken("Hm.", "No.")]) == 1
    assert [shared_messages(each) for each in ([spoken("a", "b"), spoken("a")], [spoken("a")] * 2, [spoken()])] == [
        1, 1, 0,
    ]  # fmt: skip
