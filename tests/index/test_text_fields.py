"""Every text and number at the top level of a row is a field, and so are the model and the tools that were called."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from index_rows import OpenIndex, failure, rollout, write

from velodrome.errors import InputError
from velodrome.index import FAILED, Index, Query, Sort
from velodrome.index.text_columns import LONGEST_TEXT, TextChunk, pack, stored_text, stored_texts, values_of


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
        "kind:none": [],
        "expected:104": [1, 2, 3],
        "expected=104": [1, 2],
        "expected!=104": [3, 4, FAILED + 1],
        "expected>100": [2],
        "expected:*": [1, 2, 3],
        "difficulty>3": [2],
        "difficulty:har": [3],
        "id:task": [1],
        "id=77": [2],
        "kind:math difficulty=3 reward=1": [1],
    }.items():
        assert numbers(index, where) == expected, where
    assert {"kind", "expected", "difficulty", "id"} <= {*index.names().texts}
    assert {"expected", "difficulty"} <= {*index.names().numbers}
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
    index = index_of([rollout("a", passage=text, lines="one\ntwo\x1e\x1fthree"), rollout("b", passage="begin")])
    assert [numbers(index, where) for where in ("passage:begin", f'passage="{text}"', "passage:middle")] == [
        [1, 2],
        [1],
        [],
    ]
    assert numbers(index, 'lines:"one\ntwo  three"') == [1]
    assert len(index.texts([1], ["passage"])[1]["passage"]) == LONGEST_TEXT


def test_texts_are_found_across_chunks_while_the_file_grows_and_beside_failures(index_of: OpenIndex, tmp_path: Any):
    chance = random.Random(3)
    kinds = [chance.choice(["", "red", "green", "blue"]) for _ in range(5000)]
    rows = [rollout(f"t{at}", **({"kind": kind} if kind else {}), answer="") for at, kind in enumerate(kinds)]
    index = index_of(rows[:10], [failure("f")])
    for start in (10, 2040, 2060):
        write(index.rollouts, rows[start : {10: 2040, 2040: 2060, 2060: 5000}[start]], "ab")
        index.refresh()
    for kind in ("red", "green", "blue"):
        assert index.count(Query.parse(f"kind={kind}")) == kinds.count(kind)
    assert index.count(Query.parse("-kind:*")) == kinds.count("") + 1
    write(tmp_path / "r.failures.jsonl", [failure("f"), failure("g")], "ab")
    index.refresh()
    assert index.count(Query.parse("-kind:*")) == kinds.count("") + 2
    asked = [4999, 3, FAILED + 2]
    expected = {
        number: {"kind": kinds[number - 1]} if number < FAILED and kinds[number - 1] else {} for number in asked
    }
    assert index.texts(asked, ["kind"]) == expected


def test_the_texts_of_entries_are_read_by_name(index_of: OpenIndex):
    rows = [rollout("a", kind="math", output=called("search", "browse")), rollout("b", agent="other")]
    index = index_of(rows, [failure("f", error="gone")])
    names = ["kind", "tool", "model", "agent", "status", "state", "key", "task", "outcome", "error", "nothing"]
    assert index.texts([FAILED + 1, 1, 99], names) == {
        FAILED + 1: {"agent": "solver", "state": "failed", "key": "f/0", "task": "f", "error": "model: gone"},
        1: {
            "kind": "math",
            "tool": "browse, from_chat, search",
            "model": "m",
            "agent": "solver",
            "status": "completed",
            "state": "kept",
            "key": "a/0",
            "task": "a",
            "outcome": "finished",
        },
    }


@given(st.lists(st.lists(st.text(max_size=4), max_size=2), max_size=12), st.text(max_size=3))
def test_a_chunk_finds_what_a_slow_search_finds(rows: list[list[str]], value: str):
    stored = [stored_texts(each for each in row if each) for row in rows]
    chunk = TextChunk(pack(stored))
    values = [[each.encode("utf-8", "replace").decode() for each in values_of(text)] for text in stored]
    assert chunk.unpacked() == [text.encode("utf-8", "replace").decode() for text in stored]
    wanted = stored_text(value).encode("utf-8", "replace").decode()
    if wanted:
        whole, part = chunk.having("=", value).tolist(), chunk.having(":", value).tolist()
        fold = lambda text: text.encode().lower()  # noqa: E731
        assert whole == [wanted in each for each in values]
        assert part == [any(fold(wanted) in fold(each) for each in row) for row in values]
    assert chunk.having("*", "").tolist() == [bool(text) for text in stored]
