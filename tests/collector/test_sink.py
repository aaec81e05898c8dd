"""Where finished work goes: two files, locked while the collection lives, and compared with what was written."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.patience import DEADLINE_S
from velodrome.collector.keys import keys_path
from velodrome.collector.sink import Sink
from velodrome.errors import ChangedError, InputError, StorageError
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


def test_a_second_sink_is_refused_and_leaves_the_first_ones_files_alone(tmp_path: Path):
    path = tmp_path / "r.jsonl"
    first = Sink(path)
    first.keep(b"1\n")
    with pytest.raises(InputError, match="another collection is writing to it"):
        Sink(path, overwrite=True)
    first.keep(b"2\n")
    first.close()
    assert path.read_bytes() == b"1\n2\n"
    assert [file.name for file in tmp_path.iterdir()] == ["r.jsonl"]  # no failure, no failures file


def test_a_sink_that_cannot_have_both_files_lets_go_of_the_one_it_has(tmp_path: Path):
    path = tmp_path / "r.jsonl"
    failures = Appender(tmp_path / "r.failures.jsonl")
    with pytest.raises(InputError, match=r"r\.failures\.jsonl: another collection"):
        Sink(path)
    failures.close()
    Sink(path).close()


def test_a_disk_that_cannot_sync_stops_the_next_write(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    sink = Sink(path, sync_every_s=0.01)
    sink.keep(b"{}\n")
    held = os.open(path, os.O_PATH)  # the same file, and it cannot be synced through this
    os.dup2(held, sink.rows._fd)
    sink.rows._synced = 0
    sink._syncer.join(timeout=DEADLINE_S)
    with pytest.raises(StorageError, match="the disk does not keep what is written"):
        sink.keep(b"{}\n")
    for each in (held, sink.rows._fd):
        os.close(each)


def replaced(path: Path) -> None:
    path.with_name("other").touch()
    path.with_name("other").replace(path)


def appended_to(path: Path) -> None:
    with path.open("ab") as stream:
        stream.write(b'{"half')


def overwritten(path: Path) -> None:
    with path.open("r+b") as stream:
        stream.write(b"####")


CHANGES: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "renamed": lambda path: path.rename(path.with_name("elsewhere")),
    "replaced": replaced,
    "emptied": lambda path: path.write_bytes(b""),
    "cut in a line": lambda path: os.truncate(path, path.stat().st_size - 3),
    "appended to": appended_to,
    "overwritten": overwritten,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("name", ["r.jsonl", "r.failures.jsonl", "r.jsonl.zst"])
def test_a_file_that_another_program_changed_is_reported_and_gets_no_more_lines(tmp_path: Path, change: Any, name: str):
    path = tmp_path / "out" / name
    sink = Sink(path if name != "r.failures.jsonl" else path.with_name("r.jsonl"))
    for number in range(3):
        sink.keep(b'{"meta":{"key":"%d/0"}}\n' % number, (str(number), 0, None))
        sink.fail({"key": f"{number}/1"})
    sink.seal()
    sink.compare(reread=True)
    assert sink.changed is None
    change(path)
    sink.compare(reread=True)
    assert str(sink.changed).startswith(f"{path}: ")
    with pytest.raises(ChangedError, match=re.escape(f"{path}: ")):
        sink.keep(b"{}\n")
    sink.close()
    assert not keys_path(sink.path).exists()


def test_a_change_is_noticed_while_nothing_is_written(tmp_path: Path):
    sink = Sink(tmp_path / "out" / "r.jsonl", sync_every_s=0.01)
    sink.path.parent.rename(tmp_path / "gone")
    sink._syncer.join(timeout=DEADLINE_S)
    assert sink.changed == f"{sink.path}: it was removed or renamed"
    sink.close()
