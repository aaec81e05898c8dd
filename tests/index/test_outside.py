"""Fields that are not in the file, such as what people judged: filtered, sorted and listed like any other."""

from __future__ import annotations

from typing import Any

import pytest
from index_rows import OpenIndex, failure, rollout, write

from velodrome.errors import InputError
from velodrome.index import FAILED, Index, Query, Sort
from velodrome.index.outside import NotYet, OutsideField


class Judged:
    """Tags and ratings that change while they are asked for."""

    def __init__(self) -> None:
        self.tags = {"Good": ["a/0", "b/0"], "so so": ["b/0"]}
        self.ratings = {"a/0": 5.0, "c/0": 2.0, "gone/0": 1.0}
        self.version = self.computed = 0

    def tag_values(self, numbers_of: Any) -> dict[str, list[int]]:
        self.computed += 1
        return {tag: list(numbers_of(keys).values()) for tag, keys in self.tags.items()}

    def rating_values(self, numbers_of: Any) -> dict[int, float]:
        return {number: self.ratings[key] for key, number in numbers_of(self.ratings).items()} | {77: 3.0}

    @property
    def fields(self) -> list[OutsideField]:
        return [
            OutsideField("tag", "text", self.tag_values, lambda: self.version),
            OutsideField("rating", "number", self.rating_values, lambda: self.version),
        ]


def keys(index: Index, where: str, sort: str = "") -> list[str]:
    return [entry.key for entry in index.page(Query.parse(where), Sort.parse(sort)).entries]


def test_texts_and_numbers_from_outside_are_fields(index_of: OpenIndex):
    judged = Judged()
    judged.tags["Good"].append("f/0")
    index = index_of([rollout(task) for task in "abcd"], [failure("f")], outside=judged.fields)
    assert index.numbers_of(["c/0", "f/0", "none/0"]) == {"c/0": 3, "f/0": FAILED + 1}
    for where, expected in {
        "tag:goo": ["a/0", "b/0", "f/0"],
        "tag=good": [],
        "tag=Good": ["a/0", "b/0", "f/0"],
        "tag!=Good": ["c/0", "d/0"],
        "-tag:*": ["c/0", "d/0"],
        'tag:Good tag:"so so"': ["b/0"],
        "rating>3": ["a/0"],
        "rating:none": ["b/0", "d/0", "f/0"],
        "rating:2": ["c/0"],
        "tag:Good rating:*": ["a/0"],
    }.items():
        assert keys(index, where) == expected, where
    assert keys(index, "", "-rating")[:2] == ["a/0", "c/0"]
    assert "rating" in index.fields()
    assert {"tag", "kind"} & {*index.names().texts} == {"tag"}
    with pytest.raises(InputError, match='no field "ratin"; did you mean "rating"'):
        index.count(Query.parse("ratin>3"))


def test_changed_values_and_new_rollouts_are_seen_at_the_next_query(index_of: OpenIndex):
    judged = Judged()
    index = index_of([rollout("a")], outside=judged.fields)
    assert (keys(index, "tag:good"), keys(index, "tag:good"), judged.computed) == (["a/0"], ["a/0"], 1)
    judged.tags["Good"].remove("a/0")
    assert keys(index, "tag:good") == ["a/0"]
    judged.version += 1
    assert keys(index, "tag:good") == []
    write(index.rollouts, [rollout("b")], "ab")
    index.refresh()
    assert keys(index, "tag:good") == ["b/0"]


def test_a_number_of_the_rows_whose_name_is_taken_outside_is_called_after_the_row(index_of: OpenIndex):
    index = index_of([rollout("a", rating=1), rollout("b", rating=4)], outside=Judged().fields)
    assert [keys(index, where) for where in ("rating=5", "row.rating=4", "row.rating>0")] == [
        ["a/0"],
        ["b/0"],
        ["a/0", "b/0"],
    ]
    assert {"rating", "row.rating"} <= {*index.fields()}


def test_a_list_says_that_values_are_still_computed(index_of: OpenIndex):
    def not_yet(numbers_of: Any) -> dict[str, list[int]]:
        raise NotYet("the checks are being computed")

    index = index_of([rollout("a")], outside=[OutsideField("check", "text", not_yet)])
    page = index.page(Query.parse("check:*"), Sort())
    assert (page.entries, page.note) == ((), "the checks are being computed")
    assert keys(index, "reward=1") == ["a/0"]
