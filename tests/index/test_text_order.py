"""A list sorted by a text: as the texts sort, whatever kind of field they are; rollouts without one come last."""

from __future__ import annotations

import pytest
from index_rows import OpenIndex, failure, rollout

from velodrome.errors import InputError
from velodrome.index import Index, Query, Sort
from velodrome.index.outside import OutsideField
from velodrome.index.paging import text_ranks

TAGS = OutsideField("tag", "text", lambda _: {"zebra": [1, 2], "apple": [2, 3]})
ROWS = [
    rollout("b", 1, kind="math", agent="y"),
    rollout("c", 0, agent="x"),
    rollout("b", 0, kind="code", agent="y"),
    rollout("a", 0, kind="math", agent="z"),
]
FAILURES = [failure("f", boundary="tool", error="b"), failure("e", boundary="model", error="a")]


def keys(index: Index, sort: str, **page: str) -> list[str]:
    return [entry.key for entry in index.page(Query(), Sort.parse(sort), **page).entries]


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("kind", ["b/0", "b/1", "a/0"]),
        ("-kind", ["a/0", "b/1", "b/0"]),
        ("key", ["a/0", "b/0", "b/1", "c/0", "e/0", "f/0"]),
        ("-task", ["f/0", "e/0", "c/0", "b/0", "b/1", "a/0"]),
        ("boundary", ["e/0", "f/0"]),
        ("error", ["e/0", "f/0"]),
        ("state", ["b/1", "c/0", "b/0", "a/0", "f/0", "e/0"]),
        ("tag", ["c/0", "b/0", "b/1"]),
    ],
)
def test_a_text_is_an_order(index_of: OpenIndex, sort: str, expected: list[str]):
    index = index_of(ROWS, FAILURES, outside=[TAGS])
    assert keys(index, sort)[: len(expected)] == expected
    first = index.page(Query(), Sort.parse(sort), limit=1)
    assert first.next
    assert keys(index, sort, after=first.next)[: len(expected) - 1] == expected[1:]


def test_too_many_different_texts_are_no_order(index_of: OpenIndex):
    with pytest.raises(InputError, match='sort: "kind" has more than 1 different values'):
        index_of(ROWS).picture(lambda columns: text_ranks(columns, "kind", most=1))
