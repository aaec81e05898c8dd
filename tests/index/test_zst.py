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
from index_rows import OpenIndex, rollout

from velodrome.index import Index, Query, Sort
from velodrome.index.lines.followed_file import Place, is_object
from velodrome.index.lines.zst_lines import ZstLines
from velodrome.records.appender import Appender
from velodrome.records.rows import read_rows
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
    assert (second.rebuilt, second.notes, second.complete, second.searchable) == (None, [], True, 5)
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


@pytest.mark.parametrize("sized", [True, False])
def test_a_file_in_one_frame_is_read_the_same(opened: OpenIndex, tmp_path: Path, sized: bool):
    path = tmp_path / "r.jsonl.zst"
    rows = [rollout("a", repeat, prompt="x" * 5000 * repeat) for repeat in range(30)]
    text = b"".join(lines(rows))
    packer = zstandard.ZstdCompressor(write_checksum=True, write_content_size=sized)
    path.write_bytes(packer.compress(text))
    index = opened(path)
    state = index.refresh()
    assert (state.rows, state.bytes, state.searchable) == (30, path.stat().st_size, 30)
    assert [index.row(number) for number in (1, 30, 7)] == [rows[0], rows[29], rows[6]]


def test_a_long_frame_that_is_cut_short_gives_what_is_whole(opened: OpenIndex, tmp_path: Path):
    path = tmp_path / "r.jsonl.zst"
    rows = [rollout("a", repeat, prompt=os.urandom(20_000).hex()) for repeat in range(60)]
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(b"".join(lines(rows)))
    path.write_bytes(packed[: len(packed) // 2])
    index = opened(path)
    state = index.refresh()
    assert 20 < state.rows < 40
    assert (index.row(state.rows), state.complete) == (rows[state.rows - 1], True)
    path.write_bytes(packed)
    assert index.refresh().rows == 60


def test_damaged_bytes_are_passed_over_and_end_the_list_where_nothing_follows(opened: OpenIndex, tmp_path: Path):
    path = tmp_path / "r.jsonl.zst"
    first, second, third = map(pack, lines([rollout(name) for name in "abc"]))
    path.write_bytes(first + second + b"garbage, not zstd")
    index = opened(path)
    where = len(first) + len(second)
    assert (index.refresh().notes, keys(index)) == ([f"{path}: not zstd from byte {where} on"], ["a/0", "b/0"])
    with path.open("ab") as stream:
        stream.write(third)
    note = f"r.jsonl.zst:3: 17 bytes from byte {where} cannot be decompressed; it is not shown"
    assert (index.refresh().notes, keys(index)) == ([note], ["a/0", "b/0", "c/0"])
    assert index.row(4) == rollout("c")


def test_one_bad_byte_costs_the_same_rows_here_and_to_every_other_reader(tmp_path: Path):
    frames = list(map(pack, lines([rollout(name) for name in "abcde"])))
    start = len(frames[0] + frames[1])
    for place in range(start, start + len(frames[2])):
        data = bytearray(b"".join(frames))
        data[place] ^= 0xFF
        path = tmp_path / f"{place}.jsonl.zst"
        path.write_bytes(data)
        source = ZstLines(path)
        result = [line for group, _ in source.lines(Place()) for line in group]
        source.close()
        rows = [number for number, _, _ in read_rows(path, lambda *_: None)]
        assert [number for number, _, _, text in result if is_object(bytes(text or b""))] == rows, place
        assert len(rows) >= 4


@pytest.mark.slow
def test_frames_that_unpack_to_far_too_much_do_not_fill_the_memory(opened: OpenIndex, tmp_path: Path):
    path = tmp_path / "r.jsonl.zst"
    bomb = zstandard.ZstdCompressor().compress(b" " * 100_000_000 + b"\n")
    path.write_bytes(bomb + pack(lines([rollout("a")])[0]))
    index = opened(path)
    state = index.refresh()
    assert (keys(index), state.notes) == (["a/0"], ["r.jsonl.zst:1: longer than 32 MiB; it is not shown"])


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
