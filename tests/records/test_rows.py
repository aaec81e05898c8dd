"""What others write as JSON is read, and what cannot be read is reports and passed over."""

from __future__ import annotations

import json
import random
from math import inf, isnan
from pathlib import Path
from typing import Any

import orjson
import pytest

from velodrome.records.jsonl import MAX_LINE_BYTES, LostLine, loads
from velodrome.records.rollout import key_in
from velodrome.records.rows import read_rows
from velodrome.records.zst import pack

Reports = list[LostLine]


def read(path: Path) -> tuple[list[tuple[int, Any, int]], Reports]:
    reports: Reports = []
    return list(read_rows(path, reports.append)), reports


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{"a":[Infinity,-Infinity,1e999]}', {"a": [inf, -inf, inf]}),
        (b'{"a":NaN,"b":18446744073709551616}', {"a": None, "b": 2.0**64}),
        (b'{"a":-' + b"9" * 5000 + b"}", {"a": -inf}),
        (b'{"\\ud800":"\\udfff"}', {"?": "?"}),
        (b'{"a":"\xff"}', {"a": "\ufffd"}),
    ],
)
def test_json_that_only_some_take_is_read_and_can_be_written(text: bytes, value: Any):
    found = loads(text)
    if "NaN" in str(text):
        assert isnan(found.pop("a"))
        found = {"a": None, **found}
    assert found == value
    orjson.dumps(found)
    assert loads(b'{"a":[NaN,{"b":-Infinity}],"c":1.5}', finite=True) == {"a": [None, {"b": None}], "c": 1.5}
    assert key_in(b'{"reward":NaN,"meta":{"key":"a/0"}}\n') == key_in(b'{"meta":{"key":"a/0"},"r":NaN}\n') == "a/0"


@pytest.mark.parametrize("text", [b"", b"[" * 5000, b'{"a":NaN,"b":' + b"[" * 100_000, b"nan"])
def test_what_is_no_json_even_so_is_a_value_error_in_the_words_of_strict_json(text: bytes):
    with pytest.raises(orjson.JSONDecodeError) as lenient:
        loads(text)
    with pytest.raises(orjson.JSONDecodeError) as strict:
        orjson.loads(text)
    assert str(lenient.value) == str(strict.value)


def test_every_object_is_a_row_and_every_other_line_is_told(tmp_path: Path):
    path = tmp_path / "r.jsonl"
    long = b"x" * (MAX_LINE_BYTES + 9)
    path.write_bytes(b'{"a":1}\n\n[1]\n' + long + b'\n{"a":NaN}\n{\n{"a":2}\n{"a"')
    rows, reports = read(path)
    assert [(number, size) for number, _, size in rows] == [(1, 8), (5, 10), (7, 8)]
    assert [(line, torn) for line, _, torn, _ in reports] == [(3, False), (4, False), (6, False), (8, True)]
    assert reports[0].reason == "not an object"
    assert reports[1].reason == "longer than 32 MiB"


def test_damaged_bytes_are_passed_over_up_to_the_next_frame_and_told_in_bytes(tmp_path: Path):
    path = tmp_path / "r.jsonl.zst"
    first, second = pack(b'{"a":1}\n'), pack(b'{"a":2}\n')
    path.write_bytes(first + second[:-3])
    assert read(path) == ([(1, {"a": 1}, 8)], [LostLine(2, "cut short", torn=True)])
    path.write_bytes(first + b"garbage" + second + b"more")
    rows, reports = read(path)
    assert rows == [(1, {"a": 1}, 8), (3, {"a": 2}, 8)]
    assert reports == [
        LostLine(2, f"7 bytes from byte {len(first)} on cannot be decompressed", damaged=7),
        LostLine(4, f"4 bytes from byte {len(first + second) + 7} on cannot be decompressed", damaged=4),
    ]


def test_one_bad_byte_costs_no_row_but_its_own(tmp_path: Path):
    path = tmp_path / "r.jsonl.zst"
    lines = [b'{"a":%d,"text":"%s"}\n' % (n, random.Random(n).randbytes(40).hex().encode()) for n in range(5)]
    frames = [pack(line) for line in lines]
    start, size = len(frames[0] + frames[1]), len(frames[2])
    gaps = 0
    for place in range(start, start + size):
        data = bytearray(b"".join(frames))
        data[place] ^= 0xFF
        path.write_bytes(data)
        rows, reports = read(path)
        assert [row["a"] for _, row, _ in rows if row != json.loads(lines[2])] == [0, 1, 3, 4], place
        gaps += reports == [LostLine(3, f"{size} bytes from byte {start} on cannot be decompressed", damaged=size)]
    assert gaps >= size - 1  # the other is the flag that says there is a checksum


def test_of_a_long_frame_that_breaks_off_the_whole_lines_count_and_the_cut_one_is_the_gap(tmp_path: Path):
    path = tmp_path / "r.jsonl.zst"
    chance = random.Random(1)
    text = b"".join(b'{"a":%d,"text":"%s"}\n' % (n, chance.randbytes(5000).hex().encode()) for n in range(60))
    damaged = bytearray(pack(text))
    damaged[len(damaged) * 3 // 4 :] = b"\xff" * (len(damaged) - len(damaged) * 3 // 4)
    path.write_bytes(bytes(damaged) + pack(b'{"a":"last"}\n'))
    rows, reports = read(path)
    *before, last = rows
    assert 10 < len(before) < 46
    assert [row["a"] for _, row, _ in before] == list(range(len(before)))
    assert (last[0], last[1]) == (len(before) + 2, {"a": "last"})
    assert [(lost.number, lost.damaged) for lost in reports] == [(len(before) + 1, len(damaged))]
