"""Rows that nobody should write: each is shown as far as it can be, with a note, and harms none of its neighbours."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.support.index_rows import OpenIndex, rollout, write
from velodrome.index import Entry, Index, Query, Sort

Json = dict[str, Any]


@pytest.fixture
def shown(opened: OpenIndex, tmp_path: Path) -> Callable[..., tuple[Index, Entry]]:
    """The index of a file with this one line between two good ones, and the entry of the line."""
    files = count()

    def show(line: Json | bytes) -> tuple[Index, Entry]:
        folder = tmp_path / str(next(files))
        folder.mkdir()
        index = opened(write(folder / "r.jsonl", [rollout("first"), line, rollout("last")]))
        index.refresh()
        assert [index.find("first/0"), index.find("last/0")] == [1, 3]
        return index, index.entry(2)

    return show


def test_what_has_the_wrong_type_is_left_out_with_a_note(shown: Any, index_of: OpenIndex):
    changes: list[tuple[Json, str]] = [
        ({"meta": {"key": 5}}, "meta.key"),
        ({"meta": {"key": "k" * 1001}}, "meta.key"),
        ({"meta": {"agent": ["a"]}}, "meta.agent"),
        ({"meta": {"timing": "long"}}, "meta.timing"),
        ({"usage": [1, 2]}, "usage"),
        ({"output": "text"}, "output"),
        ({"output": [1, {"role": "assistant", "tool_calls": 3}]}, "output, output.tool_calls"),
        ({"response": "text", "output": None}, "response"),
    ]
    for change, flaw in changes:
        index, entry = shown(rollout("odd", **change))
        assert index.state.notes == [f"r.jsonl:2: no usable {flaw}; shown without"]
        assert (index.state.rows, index.state.unreadable) == (3, 0)
        assert entry.key == ("line 2" if flaw == "meta.key" else "odd/0")
    index, entry = shown({"reward": 0.5, "output": [{"role": "assistant", "content": "  an\r\nanswer\u2028x"}]})
    assert (entry.key, entry.task, entry.repeat, entry.reward, entry.answer) == (
        "line 2", "line 2", None, 0.5, "an answer x"
    )  # fmt: skip
    deep = b'{"meta":{"key":"deep/0"},"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
    state = index_of([rollout("first"), deep, rollout("last")]).state
    assert (state.rows, state.unreadable, state.notes) == (2, 1, ["r.jsonl:2: not a rollout; it is not shown"])


def test_more_fields_than_columns_are_kept_all_the_same(index_of: OpenIndex):
    rows = [rollout("a", repeat, **{f"f{number}": number for number in range(repeat, 90)}) for repeat in range(2)]
    index = index_of(rows)
    extra = index.fields()[16:-4]
    assert extra == [f"f{number}" for number in range(90)]
    assert [index.entry(number).numbers["f89"] for number in (1, 2)] == [89, 89]
    assert "f0" not in index.entry(2).numbers
    assert [entry.number for entry in index.page(Query.parse("f63=63 f0:none"), Sort()).entries] == [2]
