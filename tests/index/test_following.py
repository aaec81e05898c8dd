"""A file that grows, is cut, replaced or damaged while it is looked at."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from index_rows import OpenIndex, failure, rollout, write

from velodrome.errors import InputError
from velodrome.index import FAILED, Index, Query, Sort, State
from velodrome.records.jsonl import MAX_LINE_BYTES

Json = dict[str, Any]


class Clock:
    """A clock that stands where it is put."""

    def __init__(self) -> None:
        self.now = 2_000_000_000.0

    def __call__(self) -> float:
        return self.now


def keys(index: Index, text: str = "") -> list[str]:
    return [entry.key for entry in index.page(Query.parse(text), Sort(), limit=1000).entries]


def counts(state: State) -> tuple[int, int, int, int]:
    return state.rows, state.failed, state.unreadable, state.searchable


def test_rows_that_are_appended_are_read_on_from_where_it_was(tmp_path: Path, opened: OpenIndex):
    path = write(tmp_path / "r.jsonl", [rollout("a", repeat) for repeat in range(3)])
    index = opened(path)
    assert counts(index.refresh()) == (3, 0, 0, 3)
    write(path, [rollout("b", 0, answer="quite another thing")], "ab")
    state = index.refresh()
    assert counts(state) == (4, 0, 0, 4)
    assert (state.bytes, state.size, state.complete, state.rebuilt, state.notes) == (
        path.stat().st_size,
        path.stat().st_size,
        True,
        None,
        [],
    )
    assert keys(index) == ["a/0", "a/1", "a/2", "b/0"]
    assert keys(index, '"another thing"') == ["b/0"]


def test_the_numbers_of_entries_are_the_lines_of_the_file(tmp_path: Path, opened: OpenIndex):
    rows = [rollout("a"), b"\n", b"not json\n", rollout("b"), b'"a text"\n', rollout("c")]
    index = opened(write(tmp_path / "r.jsonl", rows))
    state = index.refresh()
    assert counts(state) == (3, 0, 2, 3)
    assert state.notes == [f"r.jsonl:{line}: not a rollout; it is not shown" for line in (3, 5)]
    assert [
        (index.find(f"{name}/0"), index.row(line)["meta"]["key"]) for name, line in (("a", 1), ("b", 4), ("c", 6))
    ] == [
        (1, "a/0"),
        (4, "b/0"),
        (6, "c/0"),
    ]


def test_notes_are_bounded_and_the_rest_is_counted(tmp_path: Path, opened: OpenIndex):
    state = opened(write(tmp_path / "r.jsonl", [b"garbage\n"] * 500 + [rollout()])).refresh()
    assert (state.rows, state.unreadable, len(state.notes)) == (1, 500, 21)
    assert state.notes[-1] == "r.jsonl: and 480 more lines like these"


def test_a_torn_last_line_waits_until_it_is_whole(tmp_path: Path, opened: OpenIndex):
    line = orjson.dumps(rollout("b")) + b"\n"
    path = write(tmp_path / "r.jsonl", [rollout("a"), line[:50]])
    index = opened(path)
    state = index.refresh()
    assert (counts(state), state.complete, state.bytes) == ((1, 0, 0, 1), True, path.stat().st_size - 50)
    write(path, [line[50:-1]], "ab")  # all but its line end
    assert counts(index.refresh()) == (2, 0, 0, 2)
    write(path, [b"\n", rollout("c")], "ab")
    assert counts(index.refresh()) == (3, 0, 0, 3)
    assert [index.find(f"{name}/0") for name in "abc"] == [1, 2, 3]
    assert index.state.rebuilt is None


def test_a_torn_line_that_the_collector_cuts_is_no_change(tmp_path: Path, opened: OpenIndex):
    path = write(tmp_path / "r.jsonl", [rollout("a")])
    whole = path.stat().st_size
    write(path, [b'{"torn": '], "ab")
    index = opened(path)
    index.refresh()
    os.truncate(path, whole)
    write(path, [rollout("b")], "ab")
    state = index.refresh()
    assert (keys(index), state.rebuilt) == (["a/0", "b/0"], None)


def cut(path: Path) -> None:
    os.truncate(path, len(orjson.dumps(rollout("a"))) + 1)


def replace(path: Path) -> None:
    write(path.with_name("other"), [rollout("a"), rollout("c"), rollout("d")]).rename(path)


def empty_and_fill(path: Path) -> None:
    os.truncate(path, 0)
    write(path, [rollout("a"), rollout("c"), rollout("d")], "ab")


@pytest.mark.parametrize(
    ("change", "left", "why"),
    [
        (cut, ["a/0"], "the file was cut from {size} to {now} bytes"),
        (replace, ["a/0", "c/0", "d/0"], "the file was replaced by another"),
        (empty_and_fill, ["a/0", "c/0", "d/0"], "the start of the file is another"),
        (Path.unlink, [], "the file is gone"),
    ],
)
def test_a_file_that_is_another_is_read_again_with_a_note(
    index_of: OpenIndex, change: Callable[[Path], None], left: list[str], why: str
):
    index = index_of([rollout("a"), rollout("b")])
    path = index.rollouts
    size = path.stat().st_size
    change(path)
    now = path.stat().st_size if path.exists() else 0
    state = index.refresh()
    assert (keys(index), state.rebuilt) == (
        left,
        f"r.jsonl: {why}; read again from the start".format(size=size, now=now),
    )
    write(path, [rollout("e")], "ab")
    index.refresh()
    assert keys(index) == [*left, "e/0"]


def test_a_line_changed_in_place_is_noticed_once_the_file_is_quiet(index_of: OpenIndex):
    clock = Clock()
    rows = [rollout("a", repeat, reward=0.0, prompt="x" * 70_000) for repeat in range(3)]
    index = index_of(rows, clock=clock)
    path = index.rollouts
    rows[1]["reward"] = 1.0
    with path.open("rb+") as stream:
        stream.write(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    touched = os.stat(path)
    os.utime(path, ns=(touched.st_atime_ns, touched.st_mtime_ns + 1_000_000))
    clock.now = touched.st_mtime + 1
    assert index.refresh().rebuilt is None  # a write may be under way
    clock.now = touched.st_mtime + 3
    state = index.refresh()
    assert state.rebuilt == "r.jsonl: the file was changed without growing; read again from the start"
    assert [entry.reward for entry in index.repeats("a").entries] == [0.0, 1.0, 0.0]


def test_a_row_is_compared_with_what_was_read_before_it_is_given_out(index_of: OpenIndex):
    rows = [rollout("a", repeat, prompt="x" * 70_000) for repeat in range(4)]
    index = index_of(rows)
    path = index.rollouts
    assert index.row(2) == rows[1]
    text = path.read_bytes().replace(b'"a/1"', b'"b/1"')
    with path.open("rb+") as stream:
        stream.write(text)
    write(path, [rollout("c")], "ab")  # it grew as well, so nothing else tells
    with pytest.raises(InputError, match="changed since it was indexed; it is being read again"):
        index.row(2)
    state = index.refresh()
    assert state.rebuilt == "r.jsonl: a line was changed; read again from the start"
    assert keys(index) == ["a/0", "b/1", "a/2", "a/3", "c/0"]


def test_a_copied_folder_needs_no_new_index(tmp_path: Path, opened: OpenIndex):
    path = write(tmp_path / "r.jsonl", [rollout("a"), rollout("b")])
    first = Index(path)
    first.refresh()
    first.close()
    folder = tmp_path / "copy"
    folder.mkdir()
    for each in tmp_path.glob("r.jsonl*"):
        (folder / each.name).write_bytes(each.read_bytes())
        status = each.stat()
        os.utime(folder / each.name, ns=(status.st_atime_ns, status.st_mtime_ns))
    index = opened(folder / "r.jsonl")
    assert counts(index.state) == (2, 0, 0, 2)  # before anything is read
    assert index.refresh().rebuilt is None


def test_a_missing_file_or_a_folder_is_one_line(tmp_path: Path):
    for path, problem in ((tmp_path / "none.jsonl", "there is no such file"), (tmp_path, "Is a directory")):
        with pytest.raises(InputError, match=problem):
            Index(path)


def test_a_line_that_is_too_long_is_passed_over(tmp_path: Path, opened: OpenIndex):
    long = b'{"x":"' + b"y" * MAX_LINE_BYTES + b'"}\n'
    index = opened(write(tmp_path / "r.jsonl", [rollout("a"), long, rollout("b")]))
    state = index.refresh()
    assert (keys(index), state.unreadable) == (["a/0", "b/0"], 1)
    assert state.notes == ["r.jsonl:2: longer than 32 MiB; it is not shown"]
    assert index.find("b/0") == 3


def test_line_ends_and_byte_order_marks_of_other_systems_are_fine(tmp_path: Path, opened: OpenIndex):
    lines = [b"\xef\xbb\xbf" + orjson.dumps(rollout("a")) + b"\r\n", orjson.dumps(rollout("b")) + b"\r\n"]
    index = opened(write(tmp_path / "r.jsonl", lines))
    state = index.refresh()
    assert (keys(index), state.notes) == (["a/0", "b/0"], [])
    assert [index.row(line)["meta"]["key"] for line in (1, 2)] == ["a/0", "b/0"]


def test_a_budget_is_kept_and_the_next_call_goes_on(tmp_path: Path, opened: OpenIndex):
    rows = [rollout("a", repeat, prompt="word " * 4000) for repeat in range(100)]  # some parts of a file
    index = opened(write(tmp_path / "r.jsonl", rows))
    first = index.refresh(0.0)
    assert 0 < first.rows < 100
    assert not first.complete
    calls = 1
    while index.refresh(0.0).searchable < 100:
        calls += 1
    assert calls > 3
    assert counts(index.state) == (100, 0, 0, 100)
    assert keys(index) == [f"a/{repeat}" for repeat in range(100)]


SEARCHED = "searched: prompts, answers, reasoning, tools"


def test_a_search_says_what_it_does_not_cover_yet(index_of: OpenIndex):
    index = index_of([rollout("a", answer="quick")])
    path = index.rollouts
    write(path, [rollout("b", answer="quick")], "ab")
    state = index.refresh(search=False)
    page = index.page(Query.parse("quick"), Sort())
    assert (state.rows, state.searchable) == (2, 1)
    assert ([entry.key for entry in page.entries], page.note) == (["a/0"], f"{SEARCHED}; 1 of 2 so far")
    index.refresh()
    page = index.page(Query.parse("quick"), Sort())
    assert ([entry.key for entry in page.entries], page.note) == (["a/0", "b/0"], SEARCHED)
    assert index.page(Query.parse("reward=1"), Sort()).note is None


def test_live_means_that_it_was_written_to_within_seconds(tmp_path: Path, opened: OpenIndex):
    clock = Clock()
    path = write(tmp_path / "r.jsonl", [rollout("a")])
    index = opened(path, clock=clock)
    os.utime(path, (0, clock.now - 4))
    assert index.state.live
    os.utime(path, (0, clock.now - 6))
    assert not index.state.live


def test_a_file_of_many_parts_is_read_to_its_end(tmp_path: Path, opened: OpenIndex):
    rows = [rollout(f"t{number // 4}", number % 4, score=number, prompt="x" * 4000) for number in range(3000)]
    path = write(tmp_path / "r.jsonl", [*rows[:2000], b"garbage\n", *rows[2000:]])
    write(tmp_path / "r.failures.jsonl", [failure("t1", 0), failure("z", 0)])
    index = opened(path)
    state = index.refresh()
    assert (counts(state), state.complete) == ((3000, 1, 1, 3001), True)
    assert state.notes == ["r.jsonl:2001: not a rollout; it is not shown"]
    assert [index.row(number)["score"] for number in (1, 2000, 2002, 3001)] == [0, 1999, 2000, 2999]
    assert index.find("z/0") == FAILED + 2
    assert index.repeats("t7").task.n == 4
