"""Where finished work goes: two files, locked while the collection lives."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from patience import DEADLINE_S

from velodrome.collector.sink import Sink
from velodrome.errors import InputError, StorageError
from velodrome.records.appender import Appender


def test_rollouts_and_failures_are_in_their_files_before_anybody_is_told(tmp_path: Path):
    path = tmp_path / "r.jsonl"
    sink = Sink(path)
    sink.keep(b'{"a":1}\n')
    sink.fail({"key": "k/0"})
    assert path.read_bytes() == b'{"a":1}\n'
    assert (tmp_path / "r.failures.jsonl").read_bytes() == b'{"key":"k/0"}\n'
    sink.close()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["r.failures.jsonl", "r.jsonl"]


def test_a_failures_file_that_stayed_empty_is_removed(tmp_path: Path):
    sink = Sink(tmp_path / "r.jsonl")
    sink.keep(b"1\n")
    sink.close()
    assert [file.name for file in tmp_path.iterdir()] == ["r.jsonl"]


def test_a_resumed_sink_says_what_it_found_and_what_it_mended(tmp_path: Path):
    path = tmp_path / "r.jsonl"
    path.write_bytes(b'{"a":1}\n{"a":')
    (tmp_path / "r.failures.jsonl").write_bytes(b'{"key":"k/0"}')
    sink = Sink(path)
    sink.close()
    assert (sink.size_found, sink.size_before) == (13, 8)
    assert sink.notes == [
        f"{path}: the last line was torn (5 bytes); it is cut and will be run again",
        f"{tmp_path / 'r.failures.jsonl'}: the last line had no line end; it is whole and kept",
    ]


def test_overwriting_empties_both_files(tmp_path: Path):
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"1\n")
    (tmp_path / "r.failures.jsonl").write_bytes(b"2\n")
    sink = Sink(path, overwrite=True)
    sink.keep(b"3\n")
    sink.close()
    assert sink.size_before == 0
    assert path.read_bytes() == b"3\n"
    assert not (tmp_path / "r.failures.jsonl").exists()


def test_a_second_sink_is_refused_and_leaves_the_first_ones_files_alone(tmp_path: Path):
    path = tmp_path / "r.jsonl"
    first = Sink(path)
    first.keep(b"1\n")
    with pytest.raises(InputError, match="another collection is writing to it"):
        Sink(path, overwrite=True)
    first.keep(b"2\n")
    first.close()
    assert path.read_bytes() == b"1\n2\n"


def test_a_sink_that_cannot_have_both_files_lets_go_of_the_one_it_has(tmp_path: Path):
    path = tmp_path / "r.jsonl"
    failures = Appender(tmp_path / "r.failures.jsonl")
    with pytest.raises(InputError, match=r"r\.failures\.jsonl: another collection"):
        Sink(path)
    failures.close()
    Sink(path).close()


def test_compressed_rollouts_go_with_plain_failures(tmp_path: Path):
    sink = Sink(tmp_path / "r.jsonl.zst")
    sink.keep(b'{"a":1}\n')
    sink.fail({"key": "k/0"})
    sink.close()
    assert (tmp_path / "r.failures.jsonl").read_bytes() == b'{"key":"k/0"}\n'
    assert (tmp_path / "r.jsonl.zst").read_bytes()[:4] == b"\x28\xb5\x2f\xfd"


def test_a_disk_that_cannot_sync_stops_the_next_write(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    sink = Sink(path, sync_every_s=0.01)
    sink.keep(b"{}\n")
    held = os.open(path, os.O_PATH)  # the same file, and it cannot be synced through this
    os.dup2(held, sink.rows.file._fd)
    sink.rows.file._synced = 0
    sink._syncer.join(timeout=DEADLINE_S)
    with pytest.raises(StorageError, match="the disk does not keep what is written"):
        sink.keep(b"{}\n")
    for each in (held, sink.rows.file._fd):
        os.close(each)
