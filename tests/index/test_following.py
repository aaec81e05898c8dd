"""A file that grows, is cut, replaced or damaged while it is looked at."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from tests.support.index_rows import OpenIndex, rollout, write
from velodrome.errors import InputError
from velodrome.index import Index, Query, Sort, State
from velodrome.index.lines import CHANGED, GONE


class Clock:
    """A clock that stands where it is put."""

    def __init__(self) -> None:
        self.now = 2_000_000_000.0

    def __call__(self) -> float:
        return self.now


def keys(index: Index, text: str = "") -> list[str]:
    return [entry.key for entry in index.page(Query.parse(text), Sort(), limit=1000).entries]


def counts(state: State) -> tuple[int, int, int]:
    return state.rows, state.failed, state.unreadable


def test_rows_that_are_appended_are_read_on_from_where_it_was(tmp_path: Path, opened: OpenIndex):
    path = write(tmp_path / "r.jsonl", [rollout("a", repeat) for repeat in range(3)])
    index = opened(path)
    assert counts(index.refresh()) == (3, 0, 0)
    write(path, [rollout("b", 0, answer="quite another thing")], "ab")
    state = index.refresh()
    assert counts(state) == (4, 0, 0)
    size = path.stat().st_size
    assert (state.bytes, state.size, state.complete, state.rebuilt, state.notes) == (size, size, True, None, [])
    assert keys(index) == ["a/0", "a/1", "a/2", "b/0"]
    assert keys(index, '"another thing"') == ["b/0"]


def test_the_numbers_of_entries_are_the_lines_of_the_file(tmp_path: Path, opened: OpenIndex):
    rows = [b"\xef\xbb\xbf", rollout("a"), b"\n", b"not json\r\n", rollout("b"), b'"a text"\n', rollout("c")]
    path = write(tmp_path / "r.jsonl", [*rows, *[b"garbage\n"] * 500])
    index = opened(path)
    state = index.refresh()
    assert counts(state) == (3, 0, 502)
    assert [note.partition(": ")[0] for note in state.notes[:2]] == ["r.jsonl:3", "r.jsonl:5"]
    assert (len(state.notes), state.notes[-1]) == (21, "r.jsonl: and 482 more lines like these")
    lines = {"a/0": 1, "b/0": 4, "c/0": 6}
    assert {key: index.find(key) for key in lines} == lines
    assert [index.row(line)["meta"]["key"] for line in lines.values()] == [*lines]
    for missing, problem in ((tmp_path / "none.jsonl", "there is no such file"), (tmp_path, "Is a directory")):
        with pytest.raises(InputError, match=problem):
            Index(missing)


def test_a_torn_last_line_waits_until_it_is_whole_and_one_that_is_cut_is_no_change(tmp_path: Path, opened: OpenIndex):
    line = orjson.dumps(rollout("b")) + b"\n"
    path = write(tmp_path / "r.jsonl", [rollout("a"), line[:50]])
    index = opened(path)
    state = index.refresh()
    assert (counts(state), state.complete, state.bytes) == ((1, 0, 0), True, path.stat().st_size - 50)
    os.truncate(path, path.stat().st_size - 50)  # as the collector does when it goes on
    write(path, [line[:-1]], "ab")  # all but its line end
    assert counts(index.refresh()) == (2, 0, 0)
    write(path, [b"\n", rollout("c")], "ab")
    assert counts(index.refresh()) == (3, 0, 0)
    assert [index.find(f"{name}/0") for name in "abc"] == [1, 2, 3]
    assert index.state.rebuilt is None


ROW_BYTES = len(orjson.dumps(rollout("a"))) + 1


def cut(path: Path) -> None:
    os.truncate(path, ROW_BYTES)


def replace(path: Path) -> None:
    write(path.with_name("other"), [rollout("a"), rollout("c"), rollout("d")]).rename(path)


def empty_and_fill(path: Path) -> None:
    os.truncate(path, 0)
    write(path, [rollout("a"), rollout("c"), rollout("d")], "ab")


@pytest.mark.parametrize(
    ("change", "left", "why"),
    [
        (cut, ["a/0"], CHANGED),
        (replace, ["a/0", "c/0", "d/0"], CHANGED),
        (empty_and_fill, ["a/0", "c/0", "d/0"], CHANGED),
        (Path.unlink, [], GONE),
    ],
)
def test_a_file_that_is_another_is_read_again_with_a_note(
    index_of: OpenIndex, change: Callable[[Path], None], left: list[str], why: str
):
    index = index_of([rollout("a"), rollout("b")])
    path = index.rollouts
    change(path)
    state = index.refresh()
    assert (keys(index), state.rebuilt) == (left, f"r.jsonl: {why}; read again from the start")
    write(path, [rollout("e")], "ab")
    index.refresh()
    assert keys(index) == [*left, "e/0"]


def test_a_file_that_was_changed_without_growing_is_read_again(index_of: OpenIndex):
    clock = Clock()
    rows = [rollout("a", repeat, reward=0.0, prompt="x" * 70_000) for repeat in range(3)]
    index = index_of(rows, clock=clock)
    path = index.rollouts
    rows[1]["reward"] = 1.0
    with path.open("rb+") as stream:
        stream.write(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    touched = os.stat(path)
    os.utime(path, ns=(touched.st_atime_ns, touched.st_mtime_ns + 1_000_000))
    assert orjson.loads(index.line(2))["reward"] == 1.0  # the file was read again first
    clock.now = touched.st_mtime + 1
    assert CHANGED in (index.state.rebuilt or "")
    assert index.state.live
    clock.now = touched.st_mtime + 6
    assert not index.state.live
    assert [entry.reward for entry in index.repeats("a").entries] == [0.0, 1.0, 0.0]


def test_a_budget_is_kept_and_the_next_call_goes_on(tmp_path: Path, opened: OpenIndex):
    rows = [rollout("a", repeat, prompt="word " * 4000) for repeat in range(100)]  # several parts of a file
    index = opened(write(tmp_path / "r.jsonl", rows))
    first = index.refresh(0.0)
    assert 0 < first.rows < 100
    assert not first.complete
    calls = 1
    while index.refresh(0.0).rows < 100:
        calls += 1
    assert calls > 3
    assert counts(index.state) == (100, 0, 0)
    assert keys(index) == [f"a/{repeat}" for repeat in range(100)]
