"""A `.zst` file is a row of frames: read as one stream, cut at the last whole one."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest
import zstandard

from velodrome.errors import InputError
from velodrome.records.appender import Appender
from velodrome.records.jsonl import read_lines
from velodrome.records.zst import pack

ROWS = [b'{"n":%d,"text":"%s"}\n' % (n, os.urandom(n * 2).hex().encode()) for n in range(4)]


def kept(path: Path) -> list[bytes]:
    return [line for _, line in read_lines(path, lost=lambda *_: None)]


def test_appended_lines_are_read_back_and_any_zstd_tool_reads_them_too(tmp_path: Path):
    path = tmp_path / "x.jsonl.zst"
    appender = Appender(path)
    for row in ROWS:
        appender.append(row)
    appender.close()
    assert [line for _, line in read_lines(path)] == ROWS
    with path.open("rb") as stream:
        whole = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True).read()
    assert whole == b"".join(ROWS)


def test_a_file_torn_at_any_byte_is_cut_to_its_whole_lines_and_those_are_what_a_resume_counts(tmp_path: Path):
    path = tmp_path / "x.jsonl.zst"
    frames = [pack(row) for row in ROWS]
    data = b"".join(frames)
    ends = [sum(map(len, frames[:count])) for count in range(len(frames) + 1)]
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        count = sum(end <= cut for end in ends) - 1
        assert kept(path) == ROWS[:count], cut
        appender = Appender(path)
        appender.append(b'{"again":1}\n')
        appender.close()
        assert [line for _, line in read_lines(path)] == [*ROWS[:count], b'{"again":1}\n'], cut
        assert bool(appender.notes) == (cut not in ends)


def test_an_input_that_is_cut_short_is_refused_rather_than_read_in_part(tmp_path: Path):
    path = tmp_path / "tasks.jsonl.zst"
    path.write_bytes(pack(b"1\n2\n") + pack(b"3\n")[:-1])
    with pytest.raises(InputError, match=r"tasks\.jsonl\.zst: cut short after line 2; the rest of the file is missing"):
        list(read_lines(path))


def test_one_big_frame_without_a_last_line_end_is_read_and_gets_its_line_end_before_more_is_added(tmp_path: Path):
    path = tmp_path / "x.jsonl.zst"
    path.write_bytes(zstandard.ZstdCompressor().compress(b'{"a":1}\n{"a":2}'))
    appender = Appender(path)
    appender.append(b'{"a":3}\n')
    appender.close()
    assert [line for _, line in read_lines(path)] == [b'{"a":1}\n', b'{"a":2}\n', b'{"a":3}\n']


def test_what_is_not_zstd_is_refused_and_stays_as_it_is(tmp_path: Path):
    path = tmp_path / "x.jsonl.zst"
    first = pack(b"1\n")
    path.write_bytes(first + b"plain text, not a frame")
    with pytest.raises(InputError, match=rf"x\.jsonl\.zst: not a zstd file from byte {len(first)} on"):
        list(read_lines(path))
    path.write_bytes(b"plain text, not a frame")
    for _ in range(2):  # the second time it is not "another collection is writing"
        with pytest.raises(InputError, match=r"x\.jsonl\.zst: not a zstd file from byte 0 on"):
            Appender(path)
    assert path.read_bytes() == b"plain text, not a frame"


def test_a_file_damaged_in_the_middle_is_appended_to_and_read_on_both_sides_of_the_damage(tmp_path: Path):
    path = tmp_path / "x.jsonl.zst"
    frames = [pack(row) for row in ROWS]
    spoilt = bytes(len(frames[1]))
    path.write_bytes(frames[0] + spoilt + frames[2])
    appender = Appender(path)
    appender.append(ROWS[3])
    appender.close()
    assert appender.notes == []
    assert path.read_bytes() == frames[0] + spoilt + frames[2] + frames[3]
    assert kept(path) == [ROWS[0], ROWS[2], ROWS[3]]


def test_a_few_bytes_that_expand_to_half_a_gigabyte_are_never_held_whole(tmp_path: Path):
    path = tmp_path / "r.jsonl.zst"
    frame = zstandard.ZstdCompressor(level=1).compressobj()
    spaces = b" " * 1_000_000
    path.write_bytes(b"".join(frame.compress(spaces) for _ in range(512)) + frame.compress(b"\n") + frame.flush())
    lost: list[object] = []
    tracemalloc.start()
    try:
        assert list(read_lines(path, lost=lost.append)) == []
        assert tracemalloc.get_traced_memory()[1] < 300_000_000  # a piece is at most 32 MB, of which a few copies exist
    finally:
        tracemalloc.stop()
    assert len(lost) == 1  # one line that is too long
