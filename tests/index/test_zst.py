"""Compressed files: a frame a line as the collector writes them, and compressed anew in any other way."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.index_rows import OpenIndex, rollout
from velodrome.index import Index, Query, Sort
from velodrome.index.lines import Place, ZstLines
from velodrome.records.appender import Appender
from velodrome.records.zst import pack

Json = dict[str, Any]
TEXT = st.lists(
    st.sampled_from([b'{"a":1}\n', b"\n", b"x\n", b'{"b":"' + b"y" * 300 + b'"}\n', b'{"c":2}\r\n']), max_size=12
)


def keys(index: Index) -> list[str]:
    return [entry.key for entry in index.page(Query(), Sort()).entries]


def lines(rows: list[Json]) -> list[bytes]:
    return [orjson.dumps(row) + b"\n" for row in rows]


def test_a_file_the_collector_writes_is_followed_frame_by_frame(opened: OpenIndex, tmp_path: Path):
    path = tmp_path / "r.jsonl.zst"
    rows = [rollout("a", repeat, answer=f"word{repeat}") for repeat in range(5)]
    writer = Appender(path)
    for line in lines(rows[:3]):
        writer.append(line)
    index = opened(path)
    first = index.refresh()
    for line in lines(rows[3:]):
        writer.append(line)
    second = index.refresh()
    writer.close()
    assert (first.rows, second.rows, second.bytes, second.size) == (3, 5, path.stat().st_size, path.stat().st_size)
    assert (second.rebuilt, second.notes, second.complete) == (None, [], True)
    assert [index.row(number) for number in range(1, 6)] == rows
    assert [entry.key for entry in index.page(Query.parse("word4"), Sort()).entries] == ["a/4"]
    assert index.path.name == "r.jsonl.zst.index.sqlite"


def test_a_torn_frame_waits_and_one_that_is_cut_is_no_change(opened: OpenIndex, tmp_path: Path):
    path = tmp_path / "r.jsonl.zst"
    first, second, third = map(pack, lines([rollout(name) for name in "abc"]))
    path.write_bytes(first + second[:-7])
    index = opened(path)
    state = index.refresh()
    assert (keys(index), state.bytes, state.notes, state.complete) == (["a/0"], len(first), [], True)
    os.truncate(path, len(first))
    with path.open("ab") as stream:
        stream.write(third)
    state = index.refresh()
    assert (keys(index), state.rebuilt) == (["a/0", "c/0"], None)
    path.write_bytes(second)
    assert index.refresh().rows == 1
    assert keys(index) == ["b/0"]


@settings(max_examples=60, deadline=None)
@given(result=TEXT, cuts=st.lists(st.integers(0, 1500), max_size=6), sized=st.booleans(), stop=st.integers(0, 12))
def test_lines_are_the_same_however_the_text_is_cut_into_frames(
    tmp_path_factory: pytest.TempPathFactory, result: list[bytes], cuts: list[int], sized: bool, stop: int
):
    text = b"".join(result)
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    packer = zstandard.ZstdCompressor(write_content_size=sized)
    path = tmp_path_factory.mktemp("frames") / "r.jsonl.zst"
    parts = [packer.compress(text[start:end]) for start, end in pairwise(edges)]
    path.write_bytes(b"".join([b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc", *parts]))
    frames = ZstLines(path)
    all_at_once = [line for group, _ in frames.lines(Place()) for line in group]
    assert [(number, line) for number, _, _, line in all_at_once] == list(enumerate(result, start=1))
    assert [frames.line_at(offset, within, len(line or b"")) for _, offset, within, line in all_at_once] == result
    groups = list(frames.lines(Place(), chunk=1))
    place = groups[stop][1] if stop < len(groups) else Place()
    resumed = [line for group, _ in frames.lines(place) for line in group]
    assert resumed == (all_at_once[place.line :])
    frames.close()
