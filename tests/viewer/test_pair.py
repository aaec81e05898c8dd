"""Two transcripts of a task side by side: aligned, what differs marked, and on to the next pair."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from made_runs import HOSTILE, failure, rollout, write
from viewing import TAGS, page_at, viewing, wait_for

from velodrome.viewer.parts.dialogue import ShownMessage
from velodrome.viewer.parts.pairing import paired

Json = dict[str, Any]


def said(role: str, text: str) -> ShownMessage:
    return ShownMessage(role, text)


def marks(side: Any) -> list[str]:
    return [each.text.strip() for each in side.stretches if each.kind == "changed"]


def test_equal_messages_are_one_line_and_of_others_the_words_that_differ_are_marked():
    a = [said("user", "Add."), said("assistant", "I get 17 in all."), said("tool", "ok"), said("assistant", "17")]
    b = [said("user", "Add."), said("assistant", "I get 19 in all."), said("assistant", "19")]
    lines = paired(a, b)
    assert [(line.same, line.a and line.a.place, line.b and line.b.place) for line in lines] == [
        (True, 0, 0),
        (False, 1, 1),
        (False, 2, None),
        (False, 3, 2),
    ]
    assert (marks(lines[1].a), marks(lines[1].b)) == (["17"], ["19"])
    assert "".join(each.text for each in lines[1].a.stretches) == "I get 17 in all."


def test_every_word_that_differs_is_marked_and_long_equal_stretches_are_cut():
    same = "so it is " * 200
    a, b = f"first one {same} second three", f"first two {same} second four"
    (line,) = paired([said("assistant", a)], [said("assistant", b)])
    assert (marks(line.a), marks(line.b)) == (["one", "three"], ["two", "four"])
    (cut,) = [each.text for each in line.a.stretches if each.kind == "cut"]
    assert cut.startswith("1,")


@pytest.mark.parametrize("words", ["a ", "a b ", "x" * 40 + " "])
def test_texts_made_to_be_slow_to_compare_are_compared_in_bounded_work(words: str):
    a = [said("assistant", f"{at} {words * 900}{at}") for at in range(300)]
    b = [said("assistant", f"{at} {words * 901}c{at}") for at in range(300)]
    began = time.process_time()
    lines = paired(a, b)
    assert len(lines) == 300
    print(f"{time.process_time() - began:.2f} s")  # a figure for the reader, never asserted


def make_pair(folder: Path) -> tuple[Path, Path]:
    """Two runs of three tasks: 0 and 2 flip, 1 passes in both; B also failed once at task 0."""
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
    return runs[0], runs[1]


def test_a_flipped_task_leads_to_a_pair_and_the_pair_to_the_next(tmp_path: Path):
    with viewing(*make_pair(tmp_path)) as client:
        compared = wait_for(client, "/compare?a=a&b=b", "Tasks that flipped · 2")
        first = next(link for link in compared.links() if link.startswith("/pair?"))
        assert first == "/pair?a=a&b=b&task=task-000"
        assert client.get(first).headers["location"] == "/pair?a=a%3A1&b=b%3A1"
        page = page_at(client, "/pair?a=a:1&b=b:1")
        assert {tag for tag, _ in page.tags} <= TAGS
        assert "Run a says wrong." in page.words
        assert "Run b says right." in page.words
        assert [attrs for tag, attrs in page.tags if tag == "mark"] != []
        keys = {attrs["data-key"]: attrs["href"] for _, attrs in page.tags if "data-key" in attrs}
        assert keys["n"] == "/pair?a=a&b=b&task=task-002"
        assert keys["u"] == "/compare?a=a&b=b"
        assert page_at(client, client.get(keys["n"] or "").headers["location"]).words.count("task-002") >= 2


def test_of_a_task_that_did_not_flip_the_next_pair_is_the_next_rollout_of_both(tmp_path: Path):
    with viewing(*make_pair(tmp_path)) as client:
        page = page_at(client, "/pair?a=a:2&b=b:2")
        keys = {attrs["data-key"]: attrs["href"] for _, attrs in page.tags if "data-key" in attrs}
        assert (keys["p"], keys["n"]) == ("/pair?a=a%3A1&b=b%3A1", "/pair?a=a%3A3&b=b%3A3")


def test_two_repeats_of_a_task_are_chosen_on_its_page_and_a_failed_one_says_why(tmp_path: Path):
    with viewing(*make_pair(tmp_path)) as client:
        task = page_at(client, "/run/b/task?id=task-000")
        assert [attrs["value"] for tag, attrs in task.tags if tag == "option"] == 2 * ["b:1", "b:4", "b:f1"]
        pair = page_at(client, "/pair?a=b:f1&b=b:4")
        assert "Why it failed model: POST http://127.0.0.1:8155" in pair.words
        assert "/pair?a=b%3Af1&b=b%3A1" in pair.links()


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("a=a:1&b=b:99", "99"),
        ("a=a:1&b=nowhere:1", "There is no run"),
        ("a=a:x&b=b:1", "is not a run and the number of a rollout"),
        ("a=a&b=b&task=none", "no task"),
        ("", "There is no run"),
    ],
)
def test_a_pair_that_is_not_there_is_one_line(tmp_path: Path, query: str, words: str):
    with viewing(*make_pair(tmp_path)) as client:
        assert words in page_at(client, f"/pair?{query}", status=404).words


def test_hostile_transcripts_are_text(tmp_path: Path):
    rows = [rollout(0, repeat, Random(0)) for repeat in range(2)]
    for at, row in enumerate(rows):
        row["output"][-1]["content"] = f"{at} {HOSTILE}"
    with viewing(write(tmp_path / "r.jsonl", rows)) as client:
        page = page_at(client, "/pair?a=r:1&b=r:2")
        assert {tag for tag, _ in page.tags} <= TAGS
        assert [name for _, attrs in page.tags for name in attrs if name.startswith("on") or name == "style"] == []
