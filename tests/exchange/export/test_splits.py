"""A task is in one split only, and the shares are as exact as whole tasks allow."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from velodrome.errors import InputError
from velodrome.exchange.export.format import ExportOptions
from velodrome.exchange.export.split_files import Splits, parse_shares


def test_shares_are_parts_of_their_sum_and_a_sum_other_than_1_is_noted():
    assert parse_shares("train=0.9,test=0.1") == ({"train": 0.9, "test": 0.1}, None)
    assert parse_shares("a=0.7,b=0.2,c=0.1") == ({"a": 0.7, "b": 0.2, "c": 0.1}, None)
    scaled, note = parse_shares("a=3, b=1")
    assert scaled == {"a": 0.75, "b": 0.25}
    assert "a 0.75, b 0.25" in str(note)
    assert ExportOptions.read({"to": "x", "split": {"a": 0.9, "b": 0.1}}) == ExportOptions.read(
        {"to": "x", "split": "a=0.9,b=0.1"}
    )
    assert Splits(parse_shares(None)[0], [1, 2], 0).of(1) == "train"


def test_what_is_no_share_is_refused():
    for text in ("", "train", "train=x", "train=0", "train=-1", "a/b=1", "a=1,a=1", "a=nan", "a=inf"):
        with pytest.raises(InputError, match=r"is not a name with its share, as in train=0.9,test=0.1"):
            parse_shares(text)


@settings(deadline=None)
@given(tasks=st.sets(st.integers(0, 2**64 - 1), min_size=1, max_size=200), seed=st.integers(-(2**70), 2**70))
def test_the_splits_have_their_share_of_the_tasks(tasks: set[int], seed: int):
    splits = Splits({"train": 0.7, "dev": 0.2, "test": 0.1}, tasks, seed)
    result = Counter(splits.of(task) for task in tasks)
    assert result["train"] == round(0.7 * len(tasks))
    assert result["train"] + result["dev"] == round((0.7 + 0.2) * len(tasks))
    assert sum(result.values()) == len(tasks)
