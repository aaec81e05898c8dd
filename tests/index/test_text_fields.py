"""Every text and number at the top level of a row is a field and an order, and so are the model and the tools."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.index_rows import OpenIndex, failure, rollout
from velodrome.errors import InputError
from velodrome.index import FAILED, Index, Query, Sort
from velodrome.index.fields import LONGEST_TEXT
from velodrome.index.outside import OutsideField


def numbers(index: Index, where: str) -> list[int]:
    return [entry.number for entry in index.page(Query.parse(where, index.names()), Sort()).entries]


def called(*names: Any) -> list[dict[str, Any]]:
    """A conversation in which these tools are called."""
    calls = [{"id": str(at), "name": name, "arguments": "{}"} for at, name in enumerate(names)]
    chat = [{"id": "x", "type": "function", "function": {"name": "from_chat", "arguments": "{}"}}]
    return [{"role": "assistant", "tool_calls": calls}, {"role": "assistant", "tool_calls": chat if names else []}]


def test_texts_and_numbers_of_the_rows_filter(index_of: OpenIndex):
    rows = [
        rollout("a", kind="math", expected="104", difficulty=3, id="task-a"),
        rollout("b", kind="Math olympiad", expected=104, difficulty=5, id=77),
        rollout("c", kind="code", expected="1048", difficulty="hard"),
        rollout("d"),
    ]
    index = index_of(rows, [failure("f")])
    for where, expected in {
        "kind:math": [1, 2],
        "kind=math": [1],
        "-kind:math": [3, 4, FAILED + 1],
        "kind!=math": [2, 3, 4, FAILED + 1],
        "kind:*": [1, 2, 3],
        "-kind:*": [4, FAILED + 1],
        'kind=""': [4, FAILED + 1],
        'kind:"h o"': [2],
        "expected:104": [1, 2, 3],
        "expected=104": [1, 2],
        "expected!=104": [3, 4, FAILED + 1],
        "expected>100": [2],
        "difficulty:har": [3],
        "id=77": [2],
        "kind:math difficulty=3 reward=1": [1],
    }.items():
        assert numbers(index, where) == expected, where
    with pytest.raises(InputError, match='at 1: no field "knd"; did you mean "kind"'):
        numbers(index, "knd:math")
    with pytest.raises(InputError, match='"kind" is a text'):
        numbers(index, "kind>3")


def test_the_tools_that_were_called_and_the_model_are_fields(index_of: OpenIndex):
    rows = [
        rollout("a", output=called("search", "search", "browse")),
        rollout("b", output=called("search_more")),
        rollout("c", output=called(), response={"model": "tiny-2b"}),
        rollout("d", output=called(None, 5, "")),
    ]
    index = index_of(rows)
    for where, expected in {
        "tool:search": [1, 2],
        "tool=search": [1],
        "tool!=search": [2, 3, 4],
        "tool=search tool=browse": [1],
        "tool:searchbrowse": [],
        "tool:from_chat": [1, 2, 4],
        "-tool:*": [3],
        "model:TINY": [3],
        "model=m": [1, 2, 4],
    }.items():
        assert numbers(index, where) == expected, where


def test_names_that_are_taken_or_odd_can_be_typed(index_of: OpenIndex):
    odd = {"my field": "x", 'quo"te': "y", "a:b": "z", "-minus": "m", "3": "three", "ü\u202e": "w", "n": "text"}
    index = index_of([rollout("a", model="own", tool="hammer", reward="high", **odd), rollout("b")])
    terms = ('"my field":x', r'"quo\"te"=y', '"a:b":z', '"-minus":m', '"3":three', r"ü\u{202e}:w")
    for where in (*terms, "row.model:own", "row.tool=hammer", "row.reward:high", "row.n:text"):
        assert numbers(index, where) == [1], where
    assert numbers(index, "model:own") == []


def test_long_texts_are_found_by_their_start(index_of: OpenIndex):
    text = "begin " + "x" * 500 + " middle"
    index = index_of([rollout("a", passage=text, lines="one\ntwo\0\x1fthree"), rollout("b", passage="begin")])
    matches = [numbers(index, where) for where in ("passage:begin", f'passage="{text}"', "passage:middle")]
    assert matches == [[1, 2], [1], []]
    assert numbers(index, 'lines:"one\ntwo  three"') == [1]
    assert len(index.values([1], ["passage"])[1]["passage"]) == LONGEST_TEXT


TAGS = OutsideField("tag", "text", lambda: {"zebra": [1, 2], "apple": [2, 3]})
ROWS = [
    rollout("b", 1, kind="math", agent="y"),
    rollout("c", 0, agent="x"),
    rollout("b", 0, kind="code", agent="y"),
    rollout("a", 0, kind="math", agent="z"),
]
FAILURES = [failure("f", boundary="tool", error="b"), failure("e", boundary="model", error="a")]


def test_a_text_is_not_an_order(index_of: OpenIndex):
    index = index_of([rollout("a", kind="math")])
    with pytest.raises(InputError, match='sort: "kind" is a text'):
        index.page(Query(), Sort.parse("kind"))
